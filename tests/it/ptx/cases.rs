//! What `bench gpu` compares with processors, of every family of kernels, compared without a GPU.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use bench::Case;
use kernels::cuda::{FAMILIES, Piece, Work, kernels};
use planner_ir::{DType, Type};

use super::emulation::{ARCHITECTURES, Kernels, Value, by_kernels, compiler};
use super::trial::{Trial, faults};
use crate::corpus::expect_none;
use crate::cuda::known;
use crate::cuda::loops::divisions;

/// What computes a case.
fn work(case: &Case) -> Work {
    let whole = |types: &[Type]| types.iter().cloned().map(Piece::whole).collect::<Vec<_>>();
    match &case.trial {
        device::Trial::Kernels { work, .. } => work.clone(),
        device::Trial::Operation { op, operands, results } => {
            let work = kernels(op, &whole(operands), &whole(results));
            by_kernels(work).unwrap_or_else(|| panic!("{} has no kernels", case.name))
        }
        device::Trial::Copy(_) | device::Trial::Launch(_) => unreachable!("neither computes anything"),
    }
}

/// All of them.
pub(super) static TRIALS: LazyLock<Vec<Trial>> = LazyLock::new(|| {
    let trial = |case: Case| Trial {
        title: case.name.clone(),
        work: work(&case),
        operands: case.operands.iter().map(|it| Value::given(it.bytes())).collect(),
        results: case.expected.iter().map(|it| Value::made(it.bytes().len())).collect(),
        expected: case.expected,
        most: case.most,
    };
    bench::cases().flat_map(|it| it.unwrap()).map(trial).collect()
});

#[test]
fn what_a_gpu_is_to_compute_its_ptx_computes() {
    let Some(nvrtc) = compiler() else { return };
    let launches = TRIALS.iter().flat_map(|it| &it.work.launches);
    let families: BTreeSet<&str> = launches.map(|it| it.kernel.family()).collect();
    assert!(FAMILIES.iter().all(|it| families.contains(it)), "{families:?} are not all families");
    expect_none(&faults(&nvrtc, &TRIALS));
}

/// The widest access (bytes).
const WIDEST: u64 = 16;

/// Accesses to narrow elements, several of them at a time. What is loaded and stored at once is words.
const NARROW: [&str; 4] = [".v2.u16", ".v4.u16", ".v2.u8", ".v4.u8"];

/// How wide the accesses of a kernel's source are that load or store several elements at once (bytes).
fn meant(source: &str, calls: &str) -> BTreeSet<u64> {
    let several = |call: &str| {
        let (dtype, width) = call.split('(').next()?.rsplit_once('_')?;
        let dtype = DType::ALL.into_iter().find(|it| it.name() == dtype)?;
        let width: u64 = width.parse().ok()?;
        (width > 1).then(|| (width * dtype.bytes()).min(WIDEST))
    };
    source.split(calls).skip(1).filter_map(several).collect()
}

/// How wide the accesses to global memory of a kernel's PTX are (bytes).
fn made(text: &str, instruction: &str) -> BTreeSet<u64> {
    let wide = |line: &str| {
        let mut name = line.split_whitespace().find(|it| it.starts_with(instruction))?.split('.');
        let bits: u64 = name.next_back()?[1..].parse().ok()?;
        let count = name.next_back().and_then(|it| it.strip_prefix('v')).map_or(Ok(1), str::parse::<u64>);
        Some(bits / 8 * count.ok()?)
    };
    text.lines().filter_map(wide).collect()
}

#[test]
fn accesses_are_whole_and_loops_divide_no_wide_numbers() {
    let Some(nvrtc) = compiler() else { return };
    let kernels: Kernels = TRIALS.iter().flat_map(Trial::kernels).collect();
    let texts = known::ptx(&nvrtc, ARCHITECTURES[0], &kernels);
    let (mut faults, mut widths) = (vec![], BTreeSet::new());
    for (name, kernel) in &kernels {
        let text = &texts[name];
        for (calls, instruction) in [("t_load_", "ld.global"), ("t_store_", "st.global")] {
            let meant = meant(&kernel.source, calls);
            for bytes in meant.difference(&made(text, instruction)) {
                faults.push(format!("{name}: no {instruction} of {bytes} bytes"));
            }
            widths.extend(meant);
        }
        let is_narrow = |it: &&str| it.contains(".global") && NARROW.iter().any(|narrow| it.contains(narrow));
        let divided = divisions(text).into_values();
        faults.extend(divided.map(|count| format!("{name}: {count} divisions of 64 bits in loops")));
        faults.extend(text.lines().find(is_narrow).map(|it| format!("{name}: {}", it.trim())));
    }
    assert_eq!(widths, BTreeSet::from([2, 4, 8, 16]), "cases have no accesses of each width");
    expect_none(&faults);
}
