//! Each thing that a kernel may not do, beside what it may.

use super::{Given, What, fault, program, run};
use crate::{Access, Grid, Memory, Module, launch};

const WORDS: [u8; 128] = [7; 128];

/// Each thread stores its number to shared memory.
const STORE: &str =
    "\tmov.u64 %rd80, t_arena;\n\tadd.s64 %rd81, %rd80, %rd91;\n\tst.shared.u32 [%rd81], %r0;\n";

#[test]
fn an_access_outside_every_buffer_is_found() {
    let body = "\tadd.s64 %rd2, %rd0, %rd91;\n\tld.global.u32 %r1, [%rd2+4];\n";
    let found = fault((1, 32), &[Given::Read(&WORDS)], body);
    assert!(matches!(found.what, What::Outside { bytes: 4, .. }), "{found}");
    // The last thread, in the line that loads.
    assert_eq!((found.thread, found.block, found.line), (31, 0, 20));
    assert!(found.to_string().contains("buffer 0 of 128 bytes, 128 behind its start"), "{found}");
    assert!(run((1, 31), &[Given::Read(&WORDS)], body).is_ok());
    // Of a wide access a part is outside.
    let found =
        fault((1, 1), &[Given::Read(&WORDS[..24])], "\tld.global.v4.u32 {%r1, %r2, %r3, %r4}, [%rd0+16];\n");
    assert!(matches!(found.what, What::Outside { bytes: 16, .. }), "{found}");
    let found = fault((1, 1), &[], "\tmov.u64 %rd5, 512;\n\tst.shared.u32 [%rd5], %r0;\n");
    assert!(found.to_string().contains("shared memory of 512 bytes, 512 behind"), "{found}");
}

#[test]
fn an_access_that_is_not_aligned_is_found() {
    let found = fault((1, 1), &[Given::Read(&WORDS)], "\tld.global.u32 %r1, [%rd0+2];\n");
    assert!(matches!(found.what, What::Misaligned { bytes: 4, .. }), "{found}");
    let found = fault((1, 1), &[Given::Read(&WORDS)], "\tld.global.v2.u32 {%r1, %r2}, [%rd0+4];\n");
    assert!(matches!(found.what, What::Misaligned { bytes: 8, .. }), "{found}");
    // Shared memory begins at a multiple of all sizes.
    let found = fault((1, 1), &[], "\tst.shared.v4.u32 [t_arena+8], {%r0, %r0, %r0, %r0};\n");
    assert!(matches!(found.what, What::Misaligned { bytes: 16, .. }), "{found}");
}

#[test]
fn a_read_of_what_nobody_wrote_is_found() {
    let body = "\tst.global.u32 [%rd0], %r0;\n\tld.global.v2.u32 {%r1, %r2}, [%rd0];\n";
    let found = fault((1, 1), &[Given::Room(8)], body);
    assert!(matches!(found.what, What::Unwritten { .. }), "{found}");
    assert!(found.to_string().contains("buffer 0 of 8 bytes, 4 behind its start"), "{found}");
    // The same where only the first half is used.
    let used = body.replace("\tld.", "\t.pragma \"used_bytes_mask 15\";\n\tld.");
    assert!(run((1, 1), &[Given::Room(8)], &used).is_ok());
    let found = fault((1, 1), &[], "\tld.shared.u32 %r1, [t_arena];\n");
    assert!(matches!(found.what, What::Unwritten { .. }), "{found}");
    // What one block wrote is not in the next one's.
    let body = "\tmov.u32 %r1, %ctaid.x;\n\tsetp.eq.s32 %p0, %r1, 0;\n\t@%p0 st.shared.u32 [t_arena], %r0;\n\
                \tld.shared.u32 %r2, [t_arena];\n";
    let found = fault((2, 1), &[], body);
    assert_eq!((found.block, matches!(found.what, What::Unwritten { .. })), (1, true), "{found}");
}

#[test]
fn a_copy_is_there_when_it_has_been_waited_for() {
    let copy = "\tmov.u32 %r5, t_arena;\n\tcp.async.cg.shared.global [%r5], [%rd0], 16, 12;\n\tcp.async.commit_group;\n";
    let load = "\tld.shared.v4.u32 {%r1, %r2, %r3, %r4}, [t_arena];\n\tst.global.v4.u32 [%rd1], {%r1, %r2, %r3, %r4};\n";
    let buffers = || [Given::Read(&WORDS), Given::Room(16)];
    let waited = format!("{copy}\tcp.async.wait_group 0;\n{load}");
    let (made, _) = run((1, 1), &buffers(), &waited).unwrap();
    // What is not asked for is zero.
    assert_eq!(made[1], [vec![7; 12], vec![0; 4]].concat());
    for body in [format!("{copy}{load}"), format!("{copy}\tcp.async.wait_group 1;\n{load}")] {
        let found = fault((1, 1), &buffers(), &body);
        assert!(matches!(found.what, What::Unwritten { .. }), "{found}");
    }
}

#[test]
fn a_write_to_what_is_only_read_is_found() {
    let found = fault((1, 1), &[Given::Read(&WORDS)], "\tst.global.u32 [%rd0], %r0;\n");
    assert!(matches!(found.what, What::ReadOnly { .. }), "{found}");
}

#[test]
fn accesses_that_no_barrier_orders_are_found() {
    // Each thread reads what the one of the other warp wrote.
    let read = "\txor.b32 %r2, %r0, 32;\n\tmul.wide.u32 %rd82, %r2, 4;\n\tadd.s64 %rd83, %rd80, %rd82;\n\tld.shared.u32 %r3, [%rd83];\n";
    let body = format!("{STORE}\tbar.sync 0;\n{read}");
    assert!(run((2, 64), &[], &body).is_ok());
    // A barrier of warps is not enough.
    let found = fault((1, 64), &[], &body.replace("bar.sync 0", "bar.warp.sync -1"));
    assert!(matches!(found.what, What::Race { .. } | What::Unwritten { .. }), "{found}");
    // What is read is written by others afterwards.
    let again = "\tadd.s32 %r4, %r3, 1;\n\tst.shared.u32 [%rd81], %r4;\n";
    let found = fault((1, 64), &[], &format!("{body}{again}"));
    assert!(matches!(found.what, What::Race { .. }), "{found}");
    assert!(run((1, 64), &[], &format!("{body}\tbar.sync 0;\n{again}")).is_ok());
}

#[test]
fn accesses_of_a_warp_that_nothing_orders_are_found() {
    let read = "\txor.b32 %r2, %r0, 1;\n\tmul.wide.u32 %rd82, %r2, 4;\n\tadd.s64 %rd83, %rd80, %rd82;\n\tld.shared.u32 %r3, [%rd83];\n";
    assert!(run((1, 32), &[], &format!("{STORE}\tbar.warp.sync -1;\n{read}")).is_ok());
    let found = fault((1, 32), &[], &format!("{STORE}{read}"));
    assert!(matches!(found.what, What::Race { .. }), "{found}");
}

#[test]
fn a_write_over_what_others_read_is_found_whoever_read_last() {
    let (first, last) =
        ("\tst.shared.u32 [t_arena], 1;\n\tbar.sync 0;\n", "\t@%p0 st.shared.u32 [t_arena], 2;\n");
    // All lanes read, the last of them writes.
    let body = format!("{first}\tld.shared.u32 %r1, [t_arena];\n\tsetp.eq.s32 %p0, %r0, 31;\n{last}");
    let found = fault((1, 32), &[], &body);
    assert_eq!((found.thread, matches!(found.what, What::Race { .. })), (31, true), "{found}");
    let ordered = body.replace("\tsetp", "\tbar.warp.sync -1;\n\tsetp");
    assert!(run((1, 32), &[], &ordered).is_ok());
    // A thread of each warp reads, that of the second one writes.
    let read = "\tand.b32 %r2, %r0, 31;\n\tsetp.eq.s32 %p1, %r2, 0;\n\t@%p1 ld.shared.u32 %r1, [t_arena];\n";
    let body = format!("{first}{read}\tsetp.eq.s32 %p0, %r0, 32;\n{last}");
    let found = fault((1, 64), &[], &body);
    assert_eq!((found.thread, matches!(found.what, What::Race { .. })), (32, true), "{found}");
    assert!(
        run((1, 64), &[], &body.replace("\tsetp.eq.s32 %p0", "\tbar.sync 0;\n\tsetp.eq.s32 %p0")).is_ok()
    );
}

#[test]
fn accesses_of_blocks_to_the_same_bytes_are_found() {
    let store = "\tmov.u32 %r1, %ctaid.x;\n\tst.global.u32 [%rd0], %r1;\n";
    let found = fault((2, 1), &[Given::Room(4)], store);
    assert!(found.to_string().contains("thread 0 of another block"), "{found}");
    // The same number by both is one.
    assert!(run((2, 1), &[Given::Room(4)], &store.replace("%ctaid.x", "5")).is_ok());
    let read = "\tmov.u32 %r1, %ctaid.x;\n\tsetp.eq.s32 %p0, %r1, 0;\n\t@%p0 st.global.u32 [%rd0], %r1;\n\
                \t@!%p0 ld.global.u32 %r2, [%rd0];\n";
    assert!(matches!(fault((2, 1), &[Given::Room(4)], read).what, What::Race { .. }));
}

#[test]
fn a_barrier_that_some_threads_do_not_reach_is_found() {
    let body = "\tsetp.lt.u32 %p0, %r0, 32;\n\t@%p0 bra $reached;\n\tret;\n$reached:\n\tbar.sync 0;\n";
    let found = fault((1, 64), &[], body);
    assert_eq!(found.what, What::Barrier { missing: 32 });
    assert!(run((1, 32), &[], body).is_ok());
    // Half of a warp goes around it.
    let body = "\tsetp.lt.u32 %p0, %r0, 16;\n\t@%p0 bar.sync 0;\n";
    assert!(matches!(fault((1, 32), &[], body).what, What::Diverged { .. } | What::Barrier { .. }));
}

#[test]
fn a_kernel_that_does_not_end_is_found() {
    let found = fault((1, 1), &[], "$again:\n\tbra.uni $again;\n");
    assert!(matches!(found.what, What::Endless { .. }), "{found}");
}

#[test]
fn a_launch_that_the_kernel_does_not_allow_is_refused() {
    let found = fault((1, 256), &[], "");
    assert_eq!(
        found.to_string(),
        "tried, line 0 of its PTX, block 0, thread 0: it is started with 256 threads, and has 1 to 128"
    );
    assert!(matches!(fault((0, 1), &[], "").what, What::Launch(_)));
}

#[test]
fn what_is_not_written_of_a_result_is_known() {
    let module = Module::parse(&program(1, "\tst.global.u32 [%rd0+4], %r0;\n")).unwrap();
    let mut memory = Memory::new();
    let result = memory.room("result", 12);
    let grid = Grid { blocks: 1, threads: 1, shared: 0 };
    launch(&module.kernels()[0], &mut memory, grid, &[result]).unwrap();
    assert_eq!(memory.first_unwritten(result), Some(0));
    let written = memory.give("written", &WORDS, Access::ReadWrite);
    assert_eq!(memory.first_unwritten(written), None);
    // The next launch writes the rest.
    let module =
        Module::parse(&program(1, "\tst.global.u32 [%rd0], %r0;\n\tst.global.u32 [%rd0+8], %r0;\n")).unwrap();
    launch(&module.kernels()[0], &mut memory, grid, &[result]).unwrap();
    assert_eq!(memory.first_unwritten(result), None);
}
