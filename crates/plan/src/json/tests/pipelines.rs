//! Tests of files of pipelines.

use std::collections::BTreeSet;

use arbtest::arbitrary::Unstructured;
use arbtest::arbtest;
use expect_test::{Expect, expect};
use serde_json::Value;

use super::places::{places, with_other_fields};
use super::schema::Schema;
use crate::json::file::PipelineBody;
use crate::json::{Content, ReadError, checksum, read, read_any, write, write_pipeline};
use crate::samples::{self, pipelines};
use crate::{Pipeline, check_pipeline};

/// What is tested by itself.
const PLANS: Option<&str> = Some("/plan");

fn read_pipeline(text: &[u8]) -> Result<Pipeline, ReadError> {
    match read_any(text)? {
        Content::Pipeline(pipeline) => Ok(*pipeline),
        _ => panic!("a pipeline was read as something else"),
    }
}

/// The pipeline that these choices make.
fn one() -> Pipeline {
    let bytes: Vec<u8> = (0..4000_u32).map(|it| u8::try_from(it * 37 % 251).unwrap()).collect();
    pipelines::random(&mut Unstructured::new(&bytes)).unwrap()
}

fn value(pipeline: &Pipeline) -> Value {
    serde_json::from_str(&write_pipeline(pipeline)).unwrap()
}

/// The file with the checksum of its content, if that has the right form.
fn signed(mut file: Value) -> String {
    let body = file.get("pipeline").and_then(|it| serde_json::from_value::<PipelineBody>(it.clone()).ok());
    if let (Some(body), Some(found)) = (body, file.get_mut("checksum")) {
        *found = checksum(&body).into();
    }
    file.to_string()
}

fn check_error(text: &str, expected: Expect) {
    expected.assert_eq(&read_any(text.as_bytes()).unwrap_err().to_string());
}

#[test]
fn pipelines_are_read_as_they_were_written_and_as_the_schema_says() {
    let schema = Schema::of_plans();
    arbtest(|u| {
        let pipeline = pipelines::random(u)?;
        let text = write_pipeline(&pipeline);
        let read = read_pipeline(text.as_bytes()).unwrap();
        assert_eq!(read, pipeline);
        assert_eq!(write_pipeline(&read), text);
        assert_eq!(schema.check(&value(&pipeline)), Ok(()));
        assert_eq!(read_pipeline(value(&pipeline).to_string().as_bytes()), Ok(pipeline));
        Ok(())
    })
    .budget_ms(500);
}

#[test]
fn plans_are_read_as_plans() {
    let plan = samples::small();
    assert_eq!(read_any(write(&plan).as_bytes()), Ok(Content::Plan(Box::new(plan))));
}

#[test]
fn unknown_and_missing_fields_of_pipelines_are_refused_everywhere() {
    let schema = Schema::of_plans();
    let refuse = |file: &Value| {
        assert!(read_any(signed(file.clone()).as_bytes()).is_err(), "{file}");
        assert!(schema.check(file).is_err(), "{file}");
    };
    // What may be missing is.
    let mut pipeline = one();
    pipeline.stages.iter_mut().for_each(|stage| stage.adapters = 1);
    with_other_fields(&value(&pipeline), PLANS, refuse);
}

/// Something else of the same type.
fn other(value: &Value) -> Value {
    match value {
        Value::Null => 1.0.into(),
        Value::Bool(it) => (!it).into(),
        Value::Number(it) => match it.as_u64() {
            Some(it) => (it + 1).into(),
            None => (it.as_f64().unwrap() * 1e6).into(),
        },
        Value::String(it) => format!("{it} F0").into(),
        Value::Array(_) | Value::Object(_) => panic!("it is no leaf"),
    }
}

/// Every field that is changed is found: by the checksum, and if that is made to fit, by the reader or
/// by the checker. Those that neither of them can know are listed: the programs, the machine and the
/// model say what they are.
#[test]
fn every_field_that_is_changed_is_found() {
    let file = value(&one());
    let mut unknown = BTreeSet::new();
    for pointer in places(&file, PLANS) {
        let mut changed = file.clone();
        let field = changed.pointer_mut(&pointer).unwrap();
        if field.is_object() || field.is_array() {
            continue;
        }
        *field = other(field);
        assert!(read_any(changed.to_string().as_bytes()).is_err(), "{pointer}");
        let read = read_pipeline(signed(changed).as_bytes());
        let accepted = read.is_ok_and(|pipeline| check_pipeline(&pipeline).is_ok());
        if accepted && pointer != "/checksum" {
            let words = pointer.split('/').filter(|it| it.parse::<usize>().is_err());
            unknown.insert(words.skip(2).collect::<Vec<_>>().join("/"));
        }
    }
    let expected = [
        "capacity",
        "crossings/to/bytes",
        "crossings/to/chunks",
        "crossings/to/seconds",
        "crossings/to/strategy",
        "devices_per_node",
        "estimate/name",
        "machine/name",
        "memory/bytes",
        "memory/kind",
        // Its tasks say it too.
        "schedule/splits_backward",
        "stages/adapters",
        "stages/first_block",
    ];
    assert_eq!(unknown, expected.into_iter().map(str::to_owned).collect());
}

#[test]
fn no_change_of_bytes_of_a_pipeline_goes_unnoticed() {
    let pipeline = one();
    let text = write_pipeline(&pipeline);
    arbtest(|u| {
        let mut bytes = text.clone().into_bytes();
        let place = u.choose_index(bytes.len())?;
        match u.int_in_range(0..=3)? {
            0 => bytes.truncate(place.max(1)),
            1 => bytes[place] = u.arbitrary()?,
            2 => bytes[place] ^= 1 << u.int_in_range(0..=7)?,
            _ => drop(bytes.remove(place)),
        }
        // Only blanks may differ.
        if let Ok(Content::Pipeline(read)) = read_any(&bytes) {
            assert_eq!(*read, pipeline);
        }
        Ok(())
    })
    .budget_ms(500);
}

#[test]
fn files_that_are_no_pipelines_say_what_is_wrong() {
    let file = value(&one());
    let changed = |pointer: &str, value: Value| {
        let mut file = file.clone();
        *file.pointer_mut(pointer).unwrap() = value;
        signed(file)
    };
    let text = write_pipeline(&one());
    let place = |text: &str| text.rfind(": make").map_or(text.len(), |it| it);
    let says = |text: &str, expected: &[&str]| {
        let error = read_any(text.as_bytes()).unwrap_err().to_string();
        expected.iter().for_each(|part| assert!(error[..place(&error)].contains(part), "{error}"));
    };
    says(&text[..text.len() / 2], &["the file ends here"]);
    says(&text.replacen("\"capacity\": ", "\"capacity\": 1", 1), &["`checksum`", "was changed after"]);
    says(&changed("/pipeline/schedule/groups/0", "F0 X1".into()), &["field `pipeline.schedule`"]);
    says(&changed("/pipeline/schedule/groups/0", "F0\nB0".into()), &["`pipeline.schedule.groups`"]);
    check_error(
        &changed("/version", 2.into()),
        expect![
            "field `version`: found 2, expected 1: use the version of shardloom that wrote the plan, or make the plan again with `shardloom plan`"
        ],
    );
    // A command that takes plans only says that this is none.
    let error = read(text.as_bytes()).unwrap_err().to_string();
    assert!(error.contains("shardloom-pipeline"), "{error}");
}
