//! Shipped machines, their names, and everything that is refused.

use arbtest::arbtest;
use expect_test::{Expect, expect, expect_file};
use serde_json::Value;

use super::*;
use crate::machine::measured::{Measurements, host};
use crate::machine::shipped::{device_names, named, text};

mod refused; // files with one wrong field

/// The shipped file that the tests damage.
const SOUND: &str = "h100-80g";

fn parsed(device: &str) -> Value {
    serde_json::from_str(text(device).expect("a shipped device")).expect("JSON")
}

/// Calls `visit` on every `{value, unit, source}` in a file.
fn numbers(path: &str, value: &Value, visit: &mut impl FnMut(&str, &Value)) {
    let Value::Object(fields) = value else { return };
    if fields.contains_key("value") || fields.contains_key("source") {
        visit(path, value);
        return;
    }
    for (name, field) in fields {
        let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
        numbers(&path, field, visit);
    }
}

#[test]
fn every_shipped_file_is_a_machine_of_its_name() {
    for device in device_names() {
        let machine = json::read(device, text(device).unwrap()).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(machine.name, device);
    }
}

#[test]
fn every_number_has_a_source_and_every_cited_ledger_line_exists() {
    let repository = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    for device in device_names() {
        let mut count = 0;
        numbers("", &parsed(device), &mut |path, number| {
            count += 1;
            let source = number["source"].as_str().unwrap_or_default();
            assert!(source.trim().len() > 10, "{device}: {path} has source `{source}`");
            let Some(cited) = source.find("docs/ledger/").map(|start| &source[start..]) else {
                return;
            };
            let (file, rest) = cited.split_once(", line ").expect("a file and a line");
            let line: String = rest.chars().take_while(char::is_ascii_digit).collect();
            let ledger = std::fs::read_to_string(repository.join(file)).expect(file);
            let marker = format!("{{\"line\":{line},");
            let found = ledger.lines().any(|entry| entry.starts_with(&marker));
            assert!(found, "{device}: {path} cites {file} line {line}");
        });
        assert!(count >= 45, "{device} has {count} numbers");
    }
}

#[test]
fn writing_and_reading_a_machine_gives_it_back() {
    for device in device_names() {
        let machine = json::read(device, text(device).unwrap()).unwrap();
        let written = json::write(&machine);
        assert_eq!(json::read(device, &written).unwrap(), machine);
        assert_eq!(json::write(&json::read(device, &written).unwrap()), written);
    }
}

#[test]
fn the_written_text_of_a_machine_is_as_it_was() {
    let machine = named("v100-16g-8x").unwrap();
    expect_file!["../../cases/v100-16g.json"].assert_eq(&json::write(&machine));
}

#[test]
fn a_name_says_how_many_devices_and_nodes() {
    let shape = |name: &str| {
        let machine = named(name).unwrap_or_else(|error| panic!("{error}"));
        (machine.devices(), machine.nodes(), machine.devices_per_node())
    };
    assert_eq!(shape("h100-80g-8x"), (8, 1, 8));
    assert_eq!(shape("h100-80g-64x"), (64, 8, 8));
    assert_eq!(shape("a100-40g-1024x"), (1024, 128, 8));
    assert_eq!(shape("v100-32g-2x"), (2, 1, 2));
    assert_eq!(shape("h200-141g-1x"), (1, 1, 1));
    assert_eq!(shape("cpu-4x"), (4, 1, 4));
}

#[test]
fn the_text_of_a_machine_says_what_there_is() {
    expect![[r#"
        h100-80g-64x: 8 nodes of 8
          memory    83.9 GB of 84.9 GB usable, 3.35 TB/s
          products  f64 67 TFLOP/s, f32 67 TFLOP/s, tf32 495 TFLOP/s, f16 989 TFLOP/s, bf16 989 TFLOP/s, f8 1.98 PFLOP/s, integer 33.5 TFLOP/s
          links     450 GB/s per device, switched
          network   8 adapters of 50 GB/s in a full node"#]]
    .assert_eq(&named("h100-80g-64x").unwrap().to_string());
    expect![[r#"
        v100-16g-2x: 1 node of 2
          memory    15.9 GB of 16.9 GB usable, 900 GB/s
          products  f64 7.8 TFLOP/s, f32 15.7 TFLOP/s, tf32 15.7 TFLOP/s, f16 125 TFLOP/s, bf16 15.7 TFLOP/s, f8 125 TFLOP/s, integer 15.7 TFLOP/s
          links     24 of 25 GB/s in a full node
          network   4 adapters of 12.5 GB/s in a full node"#]]
    .assert_eq(&named("v100-16g-2x").unwrap().to_string());
}

#[test]
fn every_element_type_has_an_arithmetic_no_narrower_than_itself() {
    for elements in planner_ir::DType::ALL {
        let precision = Precision::of(elements);
        assert!(precision.bits() >= 8 * elements.bytes(), "{elements:?}");
    }
    assert_eq!(Precision::of(planner_ir::DType::BF16), Precision::Bf16);
    assert_eq!(Precision::of(planner_ir::DType::F32), Precision::F32);
}

#[test]
fn a_wrong_name_says_what_a_name_is() {
    let check = |name: &str, expected: Expect| {
        expected.assert_eq(&named(name).expect_err(name).to_string());
    };
    let form = format!(
        "machine `h100`, expected `<device>-<devices>x` such as `h100-80g-8x`, with a device of {}, \
         or the path of a machine file",
        device_names().join(", ")
    );
    assert_eq!(named("h100").expect_err("no count").to_string(), form);
    for name in ["", "x", "-x", "h100-80g", "h100-80g-x", "h100-80g-8", "8x"] {
        let error = named(name).expect_err(name);
        assert!(error.to_string().contains("expected `<device>-<devices>x`"), "{name}: {error}");
    }
    check(
        "h300-8x",
        expect![
            "device `h300`, expected one of v100-16g, v100-16g-10gbe, v100-16g-25gbe, v100-32g, v100-32g-pcie, v100-32g-sxm3, t4-16g, a100-40g, a100-80g, a100-80g-pcie, a100-80g-pairs, a40-48g, l40s-48g, h100-80g, h100-80g-pcie, h800-80g, h200-141g, gh200-96g, b200-180g, gb200-186g, b300-288g, gb300-288g, rtx-pro-6000-96g, mi250x-64g, cpu; `shardloom calibrate` writes a file for another"
        ],
    );
    check("h100-80g-0x", expect![[r#"machine `h100-80g-0x`: a machine of 0 devices, expected at least 1"#]]);
    check(
        "h100-80g-12x",
        expect![[
            r#"machine `h100-80g-12x`: a machine of 12 devices, expected 1 to 8 or a multiple of 8: a node has 8"#
        ]],
    );
    check(
        "h100-80g-65544x",
        expect![[r#"machine `h100-80g-65544x`: a machine of 65544 devices, expected at most 65536"#]],
    );
    check(
        "cpu-1025x",
        expect![[
            r#"machine `cpu-1025x`: a machine of 1025 devices, expected 1 to 1024: it is a single host, its file has no `network`"#
        ]],
    );
}

#[test]
fn what_is_not_json_is_refused() {
    let whole = text(SOUND).unwrap();
    for text in ["", "{", "[]", "3", "null", "machine: h100", "{\"format\": NaN}"] {
        let error = json::read("x.json", text).expect_err(text).to_string();
        assert!(error.starts_with("machine file `x.json`: "), "{error}");
    }
    let nan = whole.replace("3.35e12", "NaN");
    assert_ne!(nan, whole);
    let error = json::read("x.json", &nan).expect_err("NaN is not JSON").to_string();
    assert!(error.contains("at line 7 column"), "{error}");
    let huge = whole.replace("3.35e12", "1e999");
    let error = json::read("x.json", &huge).expect_err("no such number").to_string();
    assert!(error.contains("number out of range at line 7"), "{error}");
}

#[test]
fn reading_damaged_bytes_never_panics() {
    let whole = text(SOUND).unwrap().as_bytes();
    arbtest(|u| {
        let mut bytes = whole.to_vec();
        for _ in 0..u.int_in_range(1..=4)? {
            let place = u.choose_index(bytes.len())?;
            bytes[place] = u.arbitrary()?;
        }
        bytes.truncate(u.int_in_range(0..=bytes.len())?);
        if let Err(error) = json::read("x.json", &String::from_utf8_lossy(&bytes)) {
            assert!(error.to_string().len() > 30);
        }
        Ok(())
    });
}

fn measurements() -> Measurements {
    use crate::units::{Bytes, BytesPerSecond, FlopsPerSecond, Ratio, Seconds};
    Measurements {
        memory_capacity: Bytes(4_000_000_000),
        memory_reserved: Bytes(10_000_000),
        memory_bandwidth: BytesPerSecond(2e10),
        launch: Seconds(1e-6),
        vector_peak: FlopsPerSecond(1e10),
        matrix_f64: FlopsPerSecond(5e10),
        matrix_f32: FlopsPerSecond(1e11),
        matrix_integer: FlopsPerSecond(2e9),
        product_start: Seconds(1e-6),
        tile: Tile { m: 8, n: 16 },
        tile_start: Seconds(2e-9),
        packing_cache: Bytes(1 << 21),
        packing_rate: BytesPerSecond(3e10),
        turned_rate: BytesPerSecond(1e10),
        aliased_rate: BytesPerSecond(3e9),
        link_bandwidth: BytesPerSecond(1e10),
        local_rate: BytesPerSecond(2e10),
        exchange_start: Seconds(1e-6),
        exchange_round: Seconds(3e-6),
        hop: Seconds(2e-5),
        processors: 2,
        products_together: Ratio(0.5),
        memory_together: Ratio(0.8),
        passes: vec![(Pass::Tanh, Seconds(3e-7), Seconds(2e-9))],
    }
}

#[test]
fn a_measured_host_is_a_machine_file_like_any_other() {
    let host = host("laptop", &measurements(), "ledger/laptop.jsonl, line 1").unwrap();
    let host = json::read("laptop.json", &json::write(&host)).unwrap();
    assert_eq!(host.name, "laptop");
    assert_eq!(host.device.memory_bandwidth.source(), "ledger/laptop.jsonl, line 1");
    assert_eq!(host.usable_memory(), Bytes(3_990_000_000));
    let error = host.clone().with_devices(1025).expect_err("too many");
    assert_eq!(error, SizeError::NoNetwork { devices: 1025, node: 1024 });
    assert_eq!(host.with_devices(6).unwrap().devices_per_node(), 6);
}

#[test]
fn more_ranks_than_processors_take_turns() {
    let host = host("laptop", &measurements(), "ledger/laptop.jsonl, line 1").unwrap();
    let of = |ranks: u64| host.clone().with_devices(ranks).unwrap();
    let [one, two, eight] = [1, 2, 8].map(of);
    let pace = |machine: &Machine| machine.device.passes[&Pass::Tanh].clone();
    let near = |a: f64, b: f64| (a / b - 1.0).abs() < 1e-12;
    assert!(near(pace(&eight).element.value.0, 8e-9) && near(pace(&eight).start.value.0, 1.2e-6));
    assert_eq!(pace(&one), pace(&two));
    assert!(near(eight.device.matrix_peak.f32.value.0, 1.25e10));
    assert!(near(eight.device.memory_bandwidth.value.0, 4e9));
    assert!(near(eight.transport.bulk.hop.value.0, 8e-5));
    assert!(pace(&eight).element.source().ends_with("; 8 ranks take turns on 2"));
    // Said twice, it counts once.
    assert_eq!(eight.clone().with_devices(8).unwrap(), eight);
}

#[test]
fn ranks_beside_others_keep_a_part_of_their_rates() {
    let host = host("laptop", &Measurements { processors: 5, ..measurements() }, "ledger, line 1").unwrap();
    // From all of it to a half, and to four fifths, in even steps.
    for (ranks, products, memory) in [(1, 1.0, 1.0), (2, 0.875, 0.95), (3, 0.75, 0.9), (5, 0.5, 0.8)] {
        let machine = host.clone().with_devices(ranks).unwrap();
        let near = |a: f64, b: f64| (a / b - 1.0).abs() < 1e-12;
        assert!(near(machine.device.matrix_peak.f32.value.0, products * 1e11), "{ranks}");
        assert!(near(machine.device.memory_bandwidth.value.0, memory * 2e10), "{ranks}");
        assert!(near(machine.transport.local_rate.value.0, memory * 2e10), "{ranks}");
        assert_eq!(machine.device.launch, host.device.launch);
        // Said twice, it counts once.
        assert_eq!(machine.clone().with_devices(ranks).unwrap(), machine);
    }
}

#[test]
fn a_pass_that_nothing_is_called_is_refused() {
    let host = host("laptop", &measurements(), "ledger/laptop.jsonl, line 1").unwrap();
    assert_eq!(json::read("laptop", &json::write(&host)).unwrap().device, host.device);
    let text = json::write(&host).replace("\"tanh\"", "\"tan\"");
    let message = json::read("laptop", &text).unwrap_err().to_string();
    assert!(message.contains("`device.passes` has `tan`, expected kinds of operations: `sum`"), "{message}");
}

#[test]
fn every_measurement_stands_where_it_belongs() {
    let host = host("laptop", &measurements(), "ledger/laptop.jsonl, line 1").unwrap();
    let file: Value = serde_json::from_str(&json::write(&host)).unwrap();
    let mut lines = Vec::new();
    numbers("", &file, &mut |path, number| {
        let own = number["source"] == "ledger/laptop.jsonl, line 1" && number["value"] != 1;
        lines.extend(own.then(|| format!("{path} {}", number["value"])));
    });
    expect![[r#"
        device.launch 1e-6
        device.matrix_peak.bf16 100000000000
        device.matrix_peak.f16 100000000000
        device.matrix_peak.f32 100000000000
        device.matrix_peak.f64 50000000000
        device.matrix_peak.f8 100000000000
        device.matrix_peak.integer 2000000000
        device.matrix_peak.tf32 100000000000
        device.memory_bandwidth 20000000000
        device.memory_capacity 4000000000
        device.memory_reserved 10000000
        device.passes.tanh.element 2e-9
        device.passes.tanh.start 3e-7
        device.products.feed 120000000000
        device.products.heating 1e-6
        device.products.packing.cache 2097152
        device.products.packing.rate 30000000000
        device.products.packing.turned.aliased 3000000000
        device.products.packing.turned.rate 10000000000
        device.products.start 1e-6
        device.products.tile_start 2e-9
        device.products.tiles null
        device.vector_peak 10000000000
        node.host_bandwidth 10000000000
        node.link_bandwidth 10000000000
        node.processors 2
        node.together.memory 0.8
        node.together.products 0.5
        transport.bulk.fill 3e-6
        transport.bulk.hop 0.00002
        transport.bulk.start 1e-6
        transport.bulk.tree_hop 0.00002
        transport.eager.fill 3e-6
        transport.eager.hop 0.00002
        transport.eager.start 1e-6
        transport.eager.tree_hop 0.00002
        transport.local_rate 20000000000"#]]
    .assert_eq(&lines.join("\n"));
}

#[test]
fn measurements_that_no_file_may_have_are_no_machine() {
    let check = |name: &str, measurements: Measurements, source: &str, expected: Expect| {
        let error = host(name, &measurements, source).expect_err("no machine");
        expected.assert_eq(&error.to_string());
    };
    let sound = measurements();
    let nan = Measurements { launch: crate::units::Seconds(f64::NAN), ..measurements() };
    let still = Measurements { link_bandwidth: crate::units::BytesPerSecond(0.0), ..measurements() };
    let full = Measurements { memory_reserved: sound.memory_capacity, ..measurements() };
    check(
        "laptop",
        sound.clone(),
        " ",
        expect!["the source is blank, expected how the numbers were measured"],
    );
    check("", sound, "here", expect!["machine file ``: `name` is blank, expected the name of a device type"]);
    check(
        "laptop",
        nan,
        "here",
        expect![
            "machine file `laptop`: `device.launch.value` is nothing, expected a number from 1e-13 to 10"
        ],
    );
    check(
        "laptop",
        still,
        "here",
        expect![
            "machine file `laptop`: `node.link_bandwidth.value` is `0.0`, expected a number from 1e6 to 1e15"
        ],
    );
    check(
        "laptop",
        full,
        "here",
        expect![
            "machine file `laptop`: `device.memory_reserved` is 4 GB, expected less than `device.memory_capacity`, which is 4 GB"
        ],
    );
}

#[test]
fn a_single_host_does_not_grow_into_a_cluster() {
    let mut machine = named("h100-80g-8x").unwrap();
    machine.network = None;
    assert_eq!(
        machine.with_devices(16).expect_err("no network").to_string(),
        "a machine of 16 devices, expected 1 to 8: it is a single host, its file has no `network`"
    );
}
