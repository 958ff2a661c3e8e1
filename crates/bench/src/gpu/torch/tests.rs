//! The program of PyTorch's steps: that it is Python, and where the package is, that it trains.

use std::process::Command;

use super::super::steps::LITTLE;
use super::{MANNERS, PROGRAM, Python, read, steps};

/// The Python that is tried: that of `SHARDLOOM_TORCH_PYTHON`, or the one in the path.
fn python() -> String {
    std::env::var("SHARDLOOM_TORCH_PYTHON").unwrap_or_else(|_| "python3".to_owned())
}

#[test]
fn it_is_python() {
    let parses = "import ast, sys; ast.parse(sys.argv[1])";
    match Command::new(python()).args(["-c", parses, PROGRAM]).output() {
        Ok(output) => assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr)),
        Err(error) => println!("left out: `{}` cannot be started: {error}", python()),
    }
}

/// On a processor, of the models that `bench gpu --quick` trains: with as many parameters as ours, and losses
/// that fall.
#[test]
fn where_pytorch_is_it_trains_our_models() {
    let has = Command::new(python()).args(["-c", "import torch"]).output();
    if !has.is_ok_and(|it| it.status.success()) {
        println!("left out: `{}` has no package torch", python());
        return;
    }
    let (program, device) = (&*python(), "cpu");
    for model in LITTLE {
        let made = MANNERS.map(|manner| {
            let made = steps(&Python { program, device }, &model, [1, 5], manner);
            made.unwrap_or_else(|error| panic!("{}, {manner}: {error}", model.name))
        });
        for made in &made {
            assert_eq!(made.seconds.len(), 5);
            assert!(made.seconds.iter().all(|it| *it > 0.0) && made.losses[1] < made.losses[0], "{made:?}");
        }
        let [eager, compiled] = made.map(|it| it.losses[1]);
        assert!((eager - compiled).abs() < 1e-3 * eager, "{eager}, {compiled}");
    }
}

#[test]
fn what_it_prints_is_read_whole() {
    let first = r#"{"torch": "2.15.0", "cuda": null, "on": "cpu", "parameters": 7}"#;
    let step = |loss: &str| format!("{{\"seconds\": 0.5, \"loss\": {loss}}}\n");
    let text = format!("{first}\n{}{}", step("4.0"), step("3.5"));
    let made = read(&text).unwrap();
    assert_eq!((made.seconds, made.losses, made.parameters), (vec![0.5, 0.5], [4.0, 3.5], 7));
    assert_eq!(made.versions, "PyTorch 2.15.0, CUDA none, on cpu");
    for wrong in [String::new(), format!("{first}\n"), format!("{text}oops\n"), step("4.0")] {
        assert!(read(&wrong).is_none(), "{wrong}");
    }
}
