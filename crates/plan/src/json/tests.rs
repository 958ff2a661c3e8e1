//! Tests of the JSON form.

mod pipelines; // files of pipelines
mod places; // every place in a file
mod schema; // whether JSON is as the schema says

use arbtest::arbitrary::{Result, Unstructured};
use arbtest::arbtest;
use expect_test::{Expect, expect};
use serde_json::Value;

use super::file::Body;
use super::{Content, ReadError, checksum, read, read_any, write, write_generation};
use crate::{Cache, Form, Generation, Growth, Kept, Plan, Positions, samples};
use places::with_other_fields;
use schema::{Schema, document};

/// The one place that knows how an error is shown.
fn check_error(text: &str, expected: Expect) {
    expected.assert_eq(&read(text.as_bytes()).unwrap_err().to_string());
}

/// A file as JSON.
fn value(plan: &Plan) -> Value {
    serde_json::from_str(&write(plan)).unwrap()
}

/// The file with the checksum of its content, if it has one and the content has the right form.
fn signed(mut file: Value) -> String {
    let body = file.get("plan").and_then(|body| serde_json::from_value::<Body>(body.clone()).ok());
    let written = |checksum: &&mut Value| checksum.as_str().is_some_and(|it| it.len() == 64);
    if let (Some(body), Some(found)) = (body, file.get_mut("checksum").filter(written)) {
        *found = checksum(&body).into();
    }
    file.to_string()
}

#[test]
fn plans_are_read_as_they_were_written() {
    arbtest(|u| {
        let plan = samples::random(u)?;
        let text = write(&plan);
        assert_eq!(read(text.as_bytes()).as_ref(), Ok(&plan), "{text}");
        assert_eq!(write(&plan), text);
        Ok(())
    });
}

#[test]
fn the_shortest_form_of_a_file_is_the_same_plan() {
    let plan = samples::small();
    let short = value(&plan).to_string();
    assert_eq!(read(short.as_bytes()), Ok(plan));
}

#[test]
fn the_example_of_the_document_is_what_is_written() {
    let text = document("plan-format.md");
    let start = text.find("```json\n").unwrap() + "```json\n".len();
    let example = &text[start..start + text[start..].find("```").unwrap()];
    let written = write(&samples::example());
    assert!(example == written, "{written}");
    assert_eq!(crate::check(&samples::example()), Ok(()));
}

#[test]
fn the_document_names_every_field() {
    let text = document("plan-format.md");
    let named = |name: &str| text.contains(&format!("`{name}`"));
    let schema: Value = serde_json::from_str(&document("plan.schema.json")).unwrap();
    let mut open = vec![&schema];
    while let Some(it) = open.pop() {
        for name in it.get("properties").and_then(Value::as_object).into_iter().flat_map(|it| it.keys()) {
            assert!(named(name), "{name}");
        }
        open.extend(it.as_object().into_iter().flat_map(|it| it.values()));
    }
}

#[test]
fn written_plans_are_as_the_schema_says() {
    let schema = Schema::of_plans();
    arbtest(|u| {
        let plan = samples::random(u)?;
        assert_eq!(schema.check(&value(&plan)), Ok(()));
        Ok(())
    });
}

#[test]
fn plans_of_generation_are_read_as_they_are_written_and_are_as_the_schema_says() {
    let schema = Schema::of_plans();
    arbtest(|u| {
        let name = |u: &mut Unstructured<'_>| u.arbitrary::<String>();
        let positions =
            if u.arbitrary()? { Some(Positions { name: name(u)?, nodes: vec![name(u)?] }) } else { None };
        let cache = Cache {
            tokens: name(u)?,
            mask: u.arbitrary()?,
            positions,
            logits: name(u)?,
            kept: vec![Kept {
                past: name(u)?,
                present: name(u)?,
                form: if u.arbitrary()? { Form::State } else { Form::Entries },
                window: if u.arbitrary()? { Some(u.int_in_range(1..=u64::MAX)?) } else { None },
            }],
            dim: u.int_in_range(0..=4)?,
            growth: *u.choose(&Growth::ALL)?,
            capacity: u.arbitrary()?,
            slot: u.arbitrary()?,
        };
        let prefill = if u.arbitrary()? { Some(samples::random(u)?) } else { None };
        let generation = Generation { cache, prefill, decode: samples::random(u)?, capacity: u.arbitrary()? };
        let text = write_generation(&generation);
        assert_eq!(read_any(text.as_bytes()), Ok(Content::Generation(Box::new(generation))));
        assert_eq!(schema.check(&serde_json::from_str(&text).unwrap()), Ok(()));
        Ok(())
    });
}

/// One object or array somewhere in a value.
fn somewhere<'a>(value: &'a mut Value, u: &mut Unstructured<'_>) -> Result<&'a mut Value> {
    let count = match &*value {
        Value::Object(object) => object.len(),
        Value::Array(array) => array.len(),
        _ => 0,
    };
    if count == 0 || u.ratio(1, 6)? {
        return Ok(value);
    }
    let place = u.choose_index(count)?;
    let inner = match value {
        Value::Object(object) => object.values_mut().nth(place),
        Value::Array(array) => array.get_mut(place),
        _ => None,
    };
    somewhere(inner.unwrap(), u)
}

fn any_value(u: &mut Unstructured<'_>) -> Result<Value> {
    Ok(match u.int_in_range(0..=7)? {
        0 => Value::Null,
        1 => u.arbitrary::<bool>()?.into(),
        2 => u.arbitrary::<i64>()?.into(),
        3 => u.arbitrary::<u64>()?.into(),
        4 => (*u.choose(&["made", "prepared", "optimal", "", "[a]", "[-,-] owes a", "a]", "*3.b"])?).into(),
        5 => Value::Array(vec![]),
        6 => 0.5.into(),
        _ => u.int_in_range(0..=9u64)?.into(),
    })
}

#[test]
fn what_the_reader_takes_is_as_the_schema_says() {
    let schema = Schema::of_plans();
    let (mut taken, mut refused) = (0, 0);
    let test = |u: &mut Unstructured<'_>| {
        let mut file = value(&samples::random(u)?);
        let place = somewhere(&mut file, u)?;
        match place {
            Value::Object(object) if u.arbitrary()? => {
                object.insert("unknown".to_owned(), Value::Null);
            }
            Value::Object(object) if u.arbitrary()? => {
                let name = object.keys().next().cloned();
                object.remove(&name.unwrap_or_default());
            }
            Value::Array(array) if u.arbitrary()? => array.push(any_value(u)?),
            place => *place = any_value(u)?,
        }
        match (read(signed(file.clone()).as_bytes()), schema.check(&file)) {
            (Ok(_), Ok(())) => taken += 1,
            (Ok(_), Err(message)) => panic!("the schema refuses what is read: {message}\n{file:#}"),
            (Err(ReadError::Form { .. }), Ok(())) => {
                // Numbers that no field holds are none of the schema's business.
            }
            (Err(_), _) => refused += 1,
        }
        Ok(())
    };
    arbtest(test).budget_ms(3_000);
    // About one of a hundred is taken: of few, on a busy machine, perhaps none.
    assert!(refused > 10 && (taken > 0 || refused < 1_000), "{taken} taken, {refused} refused");
}

#[test]
fn unknown_and_missing_fields_are_refused_everywhere() {
    let schema = Schema::of_plans();
    let refuse = |file: &Value| {
        assert!(read(signed(file.clone()).as_bytes()).is_err(), "{file}");
        assert!(schema.check(file).is_err(), "{file}");
    };
    with_other_fields(&value(&samples::small()), None, refuse);
}

#[test]
fn no_change_of_bytes_goes_unnoticed() {
    arbtest(|u| {
        let plan = samples::random(u)?;
        let mut bytes = write(&plan).into_bytes();
        for _ in 0..u.int_in_range(1..=3)? {
            let place = u.choose_index(bytes.len())?;
            match u.int_in_range(0..=3)? {
                0 => bytes.truncate(place.max(1)),
                1 => bytes[place] = u.arbitrary()?,
                2 => bytes[place] ^= 1 << u.int_in_range(0..=7)?,
                _ => drop(bytes.remove(place)),
            }
        }
        // Only blanks may differ.
        if let Ok(read) = read(&bytes) {
            assert_eq!(read, plan);
        }
        Ok(())
    })
    .budget_ms(1_000);
}

#[test]
fn no_bytes_and_no_signed_file_make_reader_or_checker_panic() {
    arbtest(|u| {
        let bytes: Vec<u8> = u.arbitrary()?;
        assert!(read(&bytes).is_err());
        let mut file = value(&samples::random(u)?);
        for _ in 0..u.int_in_range(1..=3)? {
            *somewhere(&mut file, u)? = any_value(u)?;
        }
        if let Ok(plan) = read(signed(file).as_bytes()) {
            drop(crate::check(&plan));
            let text = write(&plan);
            assert_eq!(write(&read(text.as_bytes()).unwrap()), text);
        }
        Ok(())
    })
    .budget_ms(2_000);
}

#[test]
fn errors_name_place_found_and_expected() {
    let text = write(&samples::small());
    let replaced = |from: &str, to: &str| {
        assert!(text.contains(from), "{from}");
        text.replacen(from, to, 1)
    };
    check_error(
        "",
        expect![[
            r#"field `format`: found an empty file, expected `"shardloom-plan"`: this is no plan; make the plan again with `shardloom plan`"#
        ]],
    );
    check_error(
        "ir_version: 8",
        expect![[
            r#"field `format`: found a file that is no JSON object, expected `"shardloom-plan"`: this is no plan; make the plan again with `shardloom plan`"#
        ]],
    );
    check_error(
        "{\"version\": 1}",
        expect![[
            r#"field `format`: found nothing that names a format, expected `"shardloom-plan"`: this is no plan; make the plan again with `shardloom plan`"#
        ]],
    );
    check_error(
        "{\"format\": \"onnx\", \"version\": 1}",
        expect![[
            r#"field `format`: found "onnx", expected `"shardloom-plan"`: this is no plan; make the plan again with `shardloom plan`"#
        ]],
    );
    check_error(
        &text[..2000],
        expect![
            "line 49, column 157: the file ends here, expected the rest of a plan: copy the whole file, or make the plan again with `shardloom plan`"
        ],
    );
    check_error(
        &replaced("\"version\": 3", "\"version\": 1"),
        expect![
            "field `version`: found 1, expected 3: use the version of shardloom that wrote the plan, or make the plan again with `shardloom plan`"
        ],
    );
    check_error(
        &replaced("\"version\": 3", "\"version\": \"one\""),
        expect![[
            r#"field `version`: found "one", expected 3: use the version of shardloom that wrote the plan, or make the plan again with `shardloom plan`"#
        ]],
    );
    check_error(
        &replaced("\"capacity\": 896", "\"capacity\": 897"),
        expect![
            "field `checksum`: found `bd79c301743e7c325793722543fdac265f6bda7cb1ee3dcd5689ddff25271208`, expected `ff052de1521b823f8498147a48dccde56bd7110520edea5908071033a795a8ff` for this content: the plan was changed after it was written; make the plan again with `shardloom plan`"
        ],
    );
    check_error(
        &replaced("\"capacity\": 896", "\"capacity\": -1"),
        expect![
            "line 74, column 18: invalid value: integer `-1`, expected u64: make the plan again with `shardloom plan`"
        ],
    );
    check_error(
        &replaced("\"capacity\": 896,", ""),
        expect!["line 77, column 3: missing field `capacity`: make the plan again with `shardloom plan`"],
    );
    check_error(
        &replaced("\"capacity\": 896,", "\"capacity\": 896, \"power\": 3,"),
        expect![
            "line 74, column 28: unknown field `power`, expected one of `model`, `machine`, `mesh`, `graph`, `layouts`, `partitions`, `values`, `operations`, `transfers`, `outputs`, `carried`, `recipe`, `pins`, `controls`, `estimate`, `hidden`, `memory`, `capacity`, `proof`, `space`: make the plan again with `shardloom plan`"
        ],
    );
    check_error(
        &replaced("\"outputs\": [7]", "\"outputs\": [\"somewhere\"]"),
        expect![[
            r#"line 57, column 27: invalid value: string "somewhere", expected `"made"` or the number of a transfer: make the plan again with `shardloom plan`"#
        ]],
    );
    let changed = |pointer: &str, to: Value| {
        let mut file = value(&samples::small());
        *file.pointer_mut(pointer).unwrap() = to;
        signed(file)
    };
    check_error(
        &changed("/plan/layouts/3", "[-,c]".into()),
        expect![
            "field `plan.layouts[3]`, line 1, column 4: found `c]`, expected one of the axes `data`, `model`: make the plan again with `shardloom plan`"
        ],
    );
    check_error(
        &changed("/plan/layouts/3", "[-]".into()),
        expect![
            "field `plan.values[5]`: found 3, a layout of 1 dimensions, expected one of 2 dimensions, as value 5 has: make the plan again with `shardloom plan`"
        ],
    );
    check_error(
        &changed("/plan/graph/5", "%4 = nothing".into()),
        expect![
            "field `plan.graph`, line 6, column 6: found `nothing`, expected an operation: make the plan again with `shardloom plan`"
        ],
    );
    check_error(
        &changed("/plan/values/2", 99.into()),
        expect![
            "field `plan.values[2]`: found 99, expected the number of one of the 8 layouts, from 0: make the plan again with `shardloom plan`"
        ],
    );
    check_error(
        &changed("/plan/mesh/0/name", "a b".into()),
        expect![
            "field `plan.mesh[0].name`: found `a b`, expected a name of letters, digits and underscores that no other axis has: make the plan again with `shardloom plan`"
        ],
    );
    check_error(
        &changed("/plan/transfers/0/moves/1/slice/digits", "data,data".into()),
        expect![
            "field `plan.transfers[0].moves[1].digits`: found `data,data`, expected the digits of one dimension: make the plan again with `shardloom plan`"
        ],
    );
    check_error(
        &changed("/plan/carried", Value::Array(vec!["made".into()])),
        expect![
            "field `plan.carried`: found 1 entries, expected 0 entries, as `plan.graph` has: make the plan again with `shardloom plan`"
        ],
    );
    check_error(
        &changed("/plan/operations", Value::Array(vec![])),
        expect![
            "field `plan.operations`: found 0 entries, expected 5 entries, as `plan.graph` has: make the plan again with `shardloom plan`"
        ],
    );
}

#[test]
fn deep_plans_are_small_and_read_at_once() {
    let plan = samples::deep(96);
    let text = write(&plan);
    assert!(plan.graph.nodes.len() > 1_900, "{} operations", plan.graph.nodes.len());
    assert!(text.len() < 2_000_000, "{} bytes", text.len());
    let start = std::time::Instant::now();
    assert_eq!(write(&plan), text);
    let written = start.elapsed();
    assert!(read(text.as_bytes()).as_ref() == Ok(&plan));
    let read = start.elapsed() - written;
    let start = std::time::Instant::now();
    let violations = crate::check(&plan).unwrap_err();
    assert!(violations.0.iter().all(|it| it.rule == "memory"), "{violations}");
    let checked = start.elapsed();
    println!("{} bytes, written in {written:?}, read in {read:?}, checked in {checked:?}", text.len());
}

/// Plans from before do not say what each of several moves takes: these go at one rate then. Times that do not add up are
/// refused.
#[test]
fn moves_take_what_is_said_or_go_at_one_rate() {
    let mut plan = samples::small();
    let index = plan.transfers.iter().position(|it| it.moves.len() > 1 && it.takes() > 0.0).unwrap();
    let (bytes, takes) = (plan.transfers[index].bytes.clone(), plan.transfers[index].takes());
    plan.transfers[index].seconds = vec![takes / 4.0; 1];
    plan.transfers[index].seconds.resize(bytes.len(), 3.0 * takes / 4.0 / exact_count(bytes.len() - 1));
    let mut file = value(&plan);
    let again = read(signed(file.clone()).as_bytes()).unwrap();
    assert_eq!(again.transfers[index].seconds, plan.transfers[index].seconds);
    let transfer = |file: &mut Value| file["plan"]["transfers"][index].as_object_mut().unwrap().clone();
    assert!(transfer(&mut file).contains_key("each"));
    file["plan"]["transfers"][index].as_object_mut().unwrap().remove("each");
    let before = read(signed(file.clone()).as_bytes()).unwrap();
    assert_eq!(before.transfers[index].seconds, crate::shared(takes, &bytes));
    file["plan"]["transfers"][index]["each"] = vec![takes; bytes.len()].into();
    let error = read(signed(file).as_bytes()).unwrap_err().to_string();
    assert!(error.contains(&format!("plan.transfers[{index}].each")), "{error}");
}

fn exact_count(count: usize) -> f64 {
    f64::from(u32::try_from(count).unwrap())
}
