//! What is written for others to show.

use lower::CollectiveKind;
use serde_json::Value;

use super::script::{Script, machine};
use crate::{Order, memory_trace, simulate, trace};

fn script() -> Script {
    let mut script = Script::new(&[2, 4], &[&[1]]);
    let [a, b] = [0; 2].map(|_| script.buffer(1 << 16));
    script.compute(a, b);
    script.collective(CollectiveKind::AllReduce, 0, [a, b], 1 << 16);
    script
}

fn events(text: &[u8]) -> Vec<Value> {
    let parsed: Value = serde_json::from_slice(text).unwrap();
    parsed["traceEvents"].as_array().unwrap().clone()
}

#[test]
fn every_rank_has_a_track_for_each_stream() {
    let script = script();
    let timeline = simulate(&script.alike, &machine("h100-80g-8x"), Order::Streams).unwrap();
    let mut text = Vec::new();
    trace(&timeline, &mut text).unwrap();
    let events = events(&text);
    let of = |phase: &str| events.iter().filter(|it| it["ph"] == phase).collect::<Vec<_>>();
    let names: Vec<&str> = of("M").iter().filter_map(|it| it["args"]["name"].as_str()).collect();
    assert_eq!(names.iter().filter(|it| **it == "compute").count(), 8);
    assert_eq!(names.iter().filter(|it| **it == "communication").count(), 8);
    assert!(names.contains(&"rank 7"));
    assert_eq!(of("X").len(), 16);
    for (event, span) in of("X").iter().zip(timeline.spans(&timeline.classes[0])) {
        let [start, length] = ["ts", "dur"].map(|it| event[it].as_f64().unwrap() / 1e6);
        assert!((start - span.start).abs() < 1e-12 && (start + length - span.end).abs() < 1e-12);
    }
}

#[test]
fn memory_is_a_counter_of_every_rank() {
    let script = script();
    let timeline = simulate(&script.alike, &machine("h100-80g-8x"), Order::Streams).unwrap();
    let mut text = Vec::new();
    memory_trace(&timeline, &mut text).unwrap();
    let events = events(&text);
    let counters: Vec<&Value> = events.iter().filter(|it| it["ph"] == "C").collect();
    let levels = timeline.memory(&timeline.classes[0]);
    assert_eq!(counters.len(), 8 * levels.len());
    assert_eq!(counters[0]["args"]["bytes"], levels[0].bytes);
}

#[test]
fn of_very_many_ranks_one_of_each_kind_is_shown() {
    let mut script = Script::new(&[1024], &[]);
    let [a, b] = [0; 2].map(|_| script.buffer(16));
    for _ in 0..200 {
        script.compute(a, b);
    }
    let timeline = simulate(&script.alike, &machine("h100-80g-1024x"), Order::Streams).unwrap();
    let mut text = Vec::new();
    trace(&timeline, &mut text).unwrap();
    let events = events(&text);
    assert_eq!(events.iter().filter(|it| it["ph"] == "X").count(), 200);
    assert_eq!(events[0]["args"]["name"], "rank 0 and 1023 like it");
}

#[test]
fn what_cannot_be_written_is_said() {
    struct Full;
    impl std::io::Write for Full {
        fn write(&mut self, _: &[u8]) -> std::io::Result<usize> {
            Err(std::io::Error::other("no room"))
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let script = script();
    let timeline = simulate(&script.alike, &machine("h100-80g-8x"), Order::Streams).unwrap();
    assert_eq!(trace(&timeline, &mut Full).unwrap_err().to_string(), "no room");
    assert_eq!(memory_trace(&timeline, &mut Full).unwrap_err().to_string(), "no room");
}
