//! Programs that are not known are refused with their line.

use super::program;
use crate::Module;

fn refused(text: &str) -> String {
    Module::parse(text).map(|_| ()).expect_err("it is refused").to_string()
}

#[test]
fn an_instruction_that_is_not_known_is_refused_with_its_line() {
    let said = refused(&program(0, "\tfma.rn.f32 %f1, %f2, %f3, %f4;\n\tvote.sync.any.pred %p1, %p2, -1;\n"));
    assert_eq!(
        said,
        "line 19 of the PTX: `vote.sync.any.pred %p1, %p2, -1` is not an instruction that the interpreter knows: \
         teach it to crates/ptx"
    );
    // A register that is not declared, a label that is not there, too few operands.
    for body in
        ["\tneg.f32 %f1, %f99;\n", "\tbra $nowhere;\n", "\tadd.s32 %r1, %r2;\n", "\tadd.s32 %r1, %r2, %q3;\n"]
    {
        assert!(refused(&program(0, body)).starts_with("line 18 of the PTX: "), "{body}");
    }
}

#[test]
fn a_text_that_is_no_program_is_refused() {
    assert!(refused("hello").starts_with("line 1 of the PTX: `hello` is not a declaration"));
    let open = program(0, "").trim_end().trim_end_matches('}').to_owned();
    assert!(refused(&open).ends_with("`tried` is not a kernel that ends"));
    assert!(refused(&program(0, "\tret\n")).contains("an instruction on a line of its own"));
}
