//! Machine files with one wrong field.

use expect_test::{Expect, expect};
use serde_json::Value;

use super::{SOUND, numbers, parsed};
use crate::machine::{Machine, json};

/// Reads the sound file with the field at `path` made `value`, or taken out.
fn damaged(path: &str, value: Option<Value>) -> Result<Machine, json::ReadError> {
    let mut file = parsed(SOUND);
    let (sections, last) = path.rsplit_once('.').unwrap_or(("", path));
    let mut section = &mut file;
    for name in sections.split('.').filter(|name| !name.is_empty()) {
        section = &mut section[name];
    }
    let fields = section.as_object_mut().expect("a section");
    match value {
        Some(value) => fields.insert(last.to_owned(), value),
        None => fields.remove(last),
    };
    json::read("cluster.json", &file.to_string())
}

fn check(path: &str, value: impl Into<Option<Value>>, expected: Expect) {
    let error = damaged(path, value.into()).expect_err(path);
    expected.assert_eq(&error.to_string());
}

/// Numbers that a file need not state.
const MAY_BE_MISSING: [&str; 3] =
    ["transport.beside", "device.operations.gemm bfloat16.rate", "device.products.in_step"];

/// A law.
const LAW: &str = "device.operations.gemm bfloat16.";

#[test]
fn every_damaged_value_is_refused_by_name() {
    let mut paths = Vec::new();
    numbers("", &parsed(SOUND), &mut |path, number| {
        // Laws are read alike: one stands for all.
        let is_other_law = path.starts_with("device.operations.") && !path.starts_with(LAW);
        if number.get("value").is_some() && !is_other_law {
            paths.push(path.to_owned());
        }
    });
    let bad: [Value; 6] = [Value::Null, "fast".into(), 0.into(), (-1).into(), true.into(), 1e-30.into()];
    for path in paths {
        for value in &bad {
            let error = damaged(&format!("{path}.value"), Some(value.clone())).expect_err(&path);
            let start = format!("machine file `cluster.json`: `{path}.value` is ");
            assert!(error.to_string().starts_with(&start), "{error}");
        }
        for part in ["value", "unit", "source"] {
            let error = damaged(&format!("{path}.{part}"), None).expect_err(&path);
            let start = format!("machine file `cluster.json`: `{path}.{part}` is nothing, expected ");
            assert!(error.to_string().starts_with(&start), "{error}");
        }
        for unit in ["GB/s", "parsec", "", "ms"] {
            let error = damaged(&format!("{path}.unit"), Some(unit.into())).expect_err(&path);
            let start = format!("machine file `cluster.json`: `{path}.unit` is `\"{unit}\"`");
            assert!(error.to_string().starts_with(&start), "{error}");
        }
        let error = damaged(&format!("{path}.source"), Some("  ".into())).expect_err(&path);
        assert!(error.to_string().contains(&format!("`{path}.source` is `\"  \"`")), "{error}");
        if MAY_BE_MISSING.contains(&path.as_str()) {
            damaged(&path, None).expect("nothing is known of it");
            continue;
        }
        let error = damaged(&path, None).expect_err(&path).to_string();
        let field = path.rsplit('.').next().unwrap_or_default();
        assert!(error.contains(&format!("missing field `{field}`")), "{error}");
    }
}

#[test]
fn refusals_name_the_field_and_how_to_go_on() {
    check(
        "device.memory_bandwidth.value",
        Value::from(-3.0),
        expect![
            "machine file `cluster.json`: `device.memory_bandwidth.value` is `-3.0`, expected a number from 1e6 to 1e15"
        ],
    );
    check(
        "device.memory_bandwidth.unit",
        Value::from("GB/s"),
        expect![[
            r#"machine file `cluster.json`: `device.memory_bandwidth.unit` is `"GB/s"`, expected `"B/s"`: state the value in that unit"#
        ]],
    );
    check(
        "device.memory_bandwidth.source",
        Value::from(""),
        expect![[
            r#"machine file `cluster.json`: `device.memory_bandwidth.source` is `""`, expected where the number was read or how it was measured"#
        ]],
    );
    check(
        "device.memory_capacity.value",
        Value::from(1.5),
        expect![[
            r#"machine file `cluster.json`: `device.memory_capacity.value` is `1.5`, expected a whole number from 1 to 2^53"#
        ]],
    );
    check(
        "device.memory_capacity.value",
        Value::from(1e300),
        expect![[
            r#"machine file `cluster.json`: `device.memory_capacity.value` is `1e+300`, expected a whole number from 1 to 2^53"#
        ]],
    );
    check(
        "device.memory_capacity.value",
        Value::from(2_000_000),
        expect![[
            r#"machine file `cluster.json`: `device.memory_reserved` is 1.02 GB, expected less than `device.memory_capacity`, which is 2 MB"#
        ]],
    );
    check(
        "node.ring_share.value",
        Value::from(1.1),
        expect![[
            r#"machine file `cluster.json`: `node.ring_share.value` is `1.1`, expected a number from 1e-4 to 1"#
        ]],
    );
    check(
        "node.devices.value",
        Value::from(100_000),
        expect![[r#"machine file `cluster.json`: `node.devices` is 100000, expected at most 65536"#]],
    );
    // Beyond everything there is, or slower than anybody waits for.
    check(
        "device.memory_bandwidth.value",
        Value::from(3.35e18),
        expect![
            "machine file `cluster.json`: `device.memory_bandwidth.value` is `3.35e+18`, expected a number from 1e6 to 1e15"
        ],
    );
    check(
        "network.adapter_bandwidth.value",
        Value::from(0.25),
        expect![
            "machine file `cluster.json`: `network.adapter_bandwidth.value` is `0.25`, expected a number from 1e6 to 1e15"
        ],
    );
    check(
        "device.matrix_peak.bf16.value",
        Value::from(3.0),
        expect![
            "machine file `cluster.json`: `device.matrix_peak.bf16.value` is `3.0`, expected a number from 1e6 to 1e19"
        ],
    );
    check(
        "device.launch.value",
        Value::from(1e-14),
        expect![
            "machine file `cluster.json`: `device.launch.value` is `1e-14`, expected a number from 1e-13 to 10"
        ],
    );
    check(
        "network.share.value",
        Value::from(1e-5),
        expect![
            "machine file `cluster.json`: `network.share.value` is `0.00001`, expected a number from 1e-4 to 1"
        ],
    );
    check(
        "device.memory_capacity.value",
        Value::from(1000),
        expect!["machine file `cluster.json`: `device.memory_capacity` is 1 kB, expected at least 1 MB"],
    );
    check(
        "device.matrix_peak.bf16.value",
        Value::from(1e21),
        expect![
            "machine file `cluster.json`: `device.matrix_peak.bf16.value` is `1e+21`, expected a number from 1e6 to 1e19"
        ],
    );
    check(
        "device.launch.value",
        Value::from(60),
        expect![
            "machine file `cluster.json`: `device.launch.value` is `60`, expected a number from 1e-13 to 10"
        ],
    );
    check(
        "device.matrix_reached.bf16.value",
        Value::from(1.2),
        expect![
            "machine file `cluster.json`: `device.matrix_reached.bf16.value` is `1.2`, expected a number from 1e-4 to 1"
        ],
    );
    check(
        "device.products.tiles.sizes",
        serde_json::json!([]),
        expect![
            "machine file `cluster.json`: `device.products.tiles` has no sizes, expected at least one, of sides from 1 to 4096"
        ],
    );
    check(
        "device.products.tiles.sizes",
        serde_json::json!([[128, 0]]),
        expect![
            "machine file `cluster.json`: `device.products.tiles` has size `[128, 0]`, expected at least one, of sides from 1 to 4096"
        ],
    );
    check(
        "node.sockets",
        serde_json::json!({
            "count": { "value": 3, "unit": "count", "source": "here, in this test" },
            "bandwidth": { "value": 2e10, "unit": "B/s", "source": "here, in this test" }
        }),
        expect![
            "machine file `cluster.json`: `node.sockets.count` is 3, expected a divisor of `node.devices`, which is 8"
        ],
    );
    check(
        "network.adapters.value",
        Value::from(16),
        expect![[
            r#"machine file `cluster.json`: `network.adapters` is 16, expected at most `node.devices`, which is 8; count adapters that serve one device together as one"#
        ]],
    );
    check(
        "format",
        Value::from(1),
        expect![[r#"machine file `cluster.json`: has format 1, this program reads 2; calibrate anew"#]],
    );
    check(
        "name",
        Value::from(" "),
        expect![[r#"machine file `cluster.json`: `name` is blank, expected the name of a device type"#]],
    );
    check(
        "node.wiring.source",
        Value::from(" "),
        expect![[
            r#"machine file `cluster.json`: `node.wiring.source` is a blank, expected where the wiring was read"#
        ]],
    );
    check(
        "node.wiring.links",
        serde_json::json!([[0, 1, 1]]),
        expect![[
            r#"machine file `cluster.json`: `node.wiring` is a switch with `links`, expected none or kind `links`"#
        ]],
    );
    for link in [[0, 0, 1], [0, 8, 1], [0, 1, 0], [3, 2, 1]] {
        let links = serde_json::json!([[2, 3, 1], link]);
        let wiring = serde_json::json!({"kind": "links", "links": links, "source": "here"});
        let error = damaged("node.wiring", Some(wiring)).expect_err("a bad link").to_string();
        let expected = format!("has link `{link:?}`, expected two different devices below 8");
        assert!(error.contains(&expected), "{error}");
    }
    check(
        "device.colour",
        Value::from("green"),
        expect![
            "machine file `cluster.json`: unknown field `colour`, expected one of `memory_capacity`, `memory_reserved`, `memory_bandwidth`, `memory_efficiency`, `scalar_efficiency`, `launch`, `vector_peak`, `matrix_peak`, `matrix_reached`, `products`, `attention_forward`, `attention_backward`, `passes`, `operations` at line 1 column 266, expected the fields of a machine file; `cost-models/machines/h100-80g.json` has them all"
        ],
    );
}
