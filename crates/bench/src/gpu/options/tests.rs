//! Tests of which parts are measured.

use clap::Parser;

use super::*;

/// The arguments of `bench gpu` alone.
#[derive(Parser)]
struct Asked {
    #[command(flatten)]
    on: OnGpu,
}

#[test]
fn without_names_every_part_is_measured_and_with_names_no_other() {
    let wanted = |arguments: &[&str]| {
        let asked = Asked::try_parse_from([&["gpu"], arguments].concat()).unwrap();
        Part::value_variants()
            .iter()
            .filter(|it| asked.on.wants(**it))
            .map(|it| it.name())
            .collect::<Vec<_>>()
    };
    assert_eq!(wanted(&[]), ["equal", "rates", "ranks", "steps", "decode", "sanitizer"]);
    assert_eq!(wanted(&["--only", "steps,equal"]), ["equal", "steps"]);
}
