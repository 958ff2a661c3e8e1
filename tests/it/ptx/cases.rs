//! What `bench gpu` compares with processors, of every family of kernels, compared without a GPU.

use std::collections::BTreeSet;

use bench::Case;
use kernels::cuda::{FAMILIES, Piece, Work, kernels};
use planner_ir::Type;

use super::emulation::{Value, by_kernels, compiler};
use super::trial::{Trial, faults};
use crate::corpus::expect_none;

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

/// All of them, one after another.
pub(super) fn trials() -> impl Iterator<Item = Trial> {
    bench::cases().flat_map(|it| it.unwrap()).map(|case| Trial {
        title: case.name.clone(),
        work: work(&case),
        operands: case.operands.iter().map(|it| Value::given(it.bytes())).collect(),
        results: case.expected.iter().map(|it| Value::made(it.bytes().len())).collect(),
        expected: case.expected,
        most: case.most,
    })
}

#[test]
fn what_a_gpu_is_to_compute_its_ptx_computes() {
    let Some(nvrtc) = compiler() else { return };
    let all: Vec<Trial> = trials().collect();
    let launches = all.iter().flat_map(|it| &it.work.launches);
    let families: BTreeSet<&str> = launches.map(|it| it.kernel.family()).collect();
    assert!(FAMILIES.iter().all(|it| families.contains(it)), "{families:?} are not all families");
    expect_none(&faults(&nvrtc, &all));
}
