//! Plans of generation as files, and with faults.

use plan::json::{Content, read_any, write_generation};
use plan::{Generation, check_generation};

use super::cases::{ALL, open, plan};

fn generation() -> Generation {
    let file = open(&ALL[0]).expect("the first model is in the repository");
    plan(&ALL[0], &file, "2", Some("[-,a,-,-]"))
}

#[test]
fn what_is_written_is_read_again() {
    let generation = generation();
    let text = write_generation(&generation);
    let Ok(Content::Generation(read)) = read_any(text.as_bytes()) else { panic!("it is not read") };
    assert_eq!(*read, generation);
    assert_eq!(write_generation(&read), text);
    // What both may hold is written where it is not what one of the plans may.
    let capacities = |text: &str| text.matches("\"capacity\":").count();
    assert_eq!(capacities(&text), 3, "of the cache and of each plan");
    let more = Generation { capacity: generation.capacity + 1, ..generation };
    let text_of_more = write_generation(&more);
    assert_eq!(capacities(&text_of_more), 4);
    assert_eq!(read_any(text_of_more.as_bytes()), Ok(Content::Generation(Box::new(more))));
    let tampered = text.replacen("\"capacity\":12", "\"capacity\":13", 1);
    assert_ne!(tampered, text);
    let error = read_any(tampered.as_bytes()).unwrap_err().to_string();
    assert!(error.contains("checksum"), "{error}");
}

/// The rule that a changed plan breaks.
#[track_caller]
fn breaks(rule: &str, change: impl FnOnce(&mut Generation)) {
    let mut generation = generation();
    change(&mut generation);
    let violations = check_generation(&generation).expect_err("it breaks a rule");
    assert!(violations.0.iter().any(|it| it.rule == rule), "{violations}");
}

#[test]
fn every_rule_of_generation_is_kept() {
    breaks("roles", |it| it.cache.tokens = "nothing".to_owned());
    breaks("roles", |it| it.cache.mask = None);
    breaks("roles", |it| it.cache.logits = it.cache.kept[0].present.clone());
    breaks("roles", |it| it.cache.mask = Some(it.cache.tokens.clone()));
    breaks("roles", |it| it.cache.positions = None);
    breaks("roles", |it| it.decode = it.prefill.clone().unwrap());
    breaks("kept", |it| it.cache.capacity += 1);
    breaks("kept", |it| it.cache.dim = 3);
    breaks("kept", |it| it.cache.growth = plan::Growth::AtLength);
    breaks("kept", |it| it.cache.kept.clear());
    // A single token is told where its entry comes, and finds all places; prompts are told nothing.
    breaks("roles", |it| it.cache.slot = None);
    breaks("kept", |it| it.cache.slot = None);
    breaks("roles", |it| it.cache.slot = Some("nothing".to_owned()));
    breaks("roles", |it| it.cache.slot = it.cache.positions.as_ref().map(|it| it.name.clone()));
    breaks("roles", |it| it.cache.growth = plan::Growth::AtPosition);
    breaks("roles", |it| {
        let mut graph = it.prefill.clone().unwrap().graph;
        let of_slot =
            |it: &planner_ir::Value| it.source == planner_ir::Source::Input("cache_slot".to_owned());
        assert!(!graph.values.iter().any(of_slot), "prompts are told no slot");
        let mask = it.cache.mask.clone().unwrap();
        let value = graph.values.iter_mut().find(|it| it.source == planner_ir::Source::Input(mask.clone()));
        value.unwrap().source = planner_ir::Source::Input("cache_slot".to_owned());
        it.prefill.as_mut().unwrap().graph = graph;
    });
    // A part has as many places as its window, which is smaller than the room there is.
    for window in [0, 1, 3, ALL[0].capacity, ALL[0].capacity + 1] {
        breaks("kept", |it| it.cache.kept[0].window = Some(window));
    }
    // A state is as large after a step as before.
    breaks("kept", |it| it.cache.kept[0].form = plan::Form::State);
    breaks("kept", |it| it.cache.kept[1] = it.cache.kept[0].clone());
    breaks("kept", |it| it.cache.kept[0].present = "nothing".to_owned());
    breaks("same", |it| it.decode.model.sha256 = "0".repeat(64));
    breaks("capacity", |it| it.capacity = it.decode.capacity - 1);
    // One step holds the cache otherwise: by itself its plan is right.
    let file = open(&ALL[0]).unwrap();
    let whole = plan(&ALL[0], &file, "2", Some("[a,-,-,-]"));
    breaks("same", |it| it.prefill = whole.prefill);
}
