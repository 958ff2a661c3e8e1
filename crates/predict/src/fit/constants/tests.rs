//! Fits of machines find again what rows were made with.

use super::*;

const HEAD: &str = "row_id,source,gpu,op,m,n,k,batch,precision,time_us,tflops,mem_gbs,min_bytes,notes";

/// Rows of attention, made with other numbers than the file states.
#[test]
fn numbers_that_rows_were_made_with_are_found_again_and_judged_on_the_others() {
    let fit = FITS.iter().find(|fit| fit.what == What::Attention).unwrap();
    let mut lines = vec![HEAD.to_owned()];
    for number in 0..40_u64 {
        let queries = 1024 << (number % 4);
        let op = if number % 8 < 4 { "sdp_fwd" } else { "sdp_bwd" };
        let heads = 16 + number;
        lines.push(format!(
            "r{number},simumax_attn_a100pcie,A100-PCIe,{op},{queries},{heads},128,1,bf16,1,,,,"
        ));
    }
    let table = |lines: &[String]| Table::read("gemm_rows.csv", &lines.join("\n"), &[]).unwrap();
    let mut file: Value = serde_json::from_str(shipped::text(fit.machine).unwrap()).unwrap();
    let made = [0.5, 0.4];
    for (fields, value) in fit.numbers.iter().zip(made) {
        *file.pointer_mut(&pointer(fields[0])).unwrap() = Value::from(value);
    }
    let machine = json::read("made", &file.to_string()).unwrap();
    let unmeasured = table(&lines);
    for (line, row) in lines[1..].iter_mut().zip(unmeasured.rows()) {
        let time = products::priced_on(&row, &machine.device).unwrap().predicted;
        *line = line.replace("bf16,1,", &format!("bf16,{time},"));
    }
    let refit = refit(fit, &table(&lines)).unwrap();
    assert_eq!(refit.rows[0] + refit.rows[1], 40);
    for ((name, stated, found), made) in refit.numbers.iter().zip(made) {
        assert!((found / made - 1.0).abs() < 0.02 && (stated - made).abs() > 0.05, "{name}: {found}");
    }
    assert!(refit.found[1] < 0.02 && refit.stated[1] > 0.1, "{refit:?}");
}

/// Each field is there, and cites the ledger that fits are kept in or a file that does.
#[test]
fn every_number_that_is_fitted_is_one_of_its_file_and_cites_a_ledger() {
    for fit in FITS {
        let file: Value = serde_json::from_str(shipped::text(fit.machine).unwrap()).unwrap();
        for field in fit.numbers.iter().copied().flatten() {
            let stated = value(&file, field).unwrap_or_else(|| panic!("{}: {field}", fit.machine));
            let (least, most) = range(field, stated);
            assert!(least < stated && stated <= most, "{field}");
            let source = pointer(field).replace("/value", "/source");
            let source = file.pointer(&source).and_then(Value::as_str).unwrap();
            assert!(source.contains("docs/ledger/"), "{}: {field}: {source}", fit.machine);
        }
    }
}

#[test]
fn tables_without_such_rows_are_left_alone() {
    let table = Table::read("gemm_rows.csv", HEAD, &[]).unwrap();
    assert!(FITS.iter().all(|fit| refit(fit, &table).is_none()));
}
