//! That nothing is left out of what is compared.

use std::collections::BTreeSet;

use kernels::cuda::FAMILIES;

use super::{Extent, apart, makers};

#[test]
fn there_is_something_of_every_family_of_kernels() {
    let mut compared = BTreeSet::new();
    let mut names = BTreeSet::new();
    for make in makers() {
        for case in make(Extent::Small).unwrap() {
            assert!(names.insert(case.name.clone()), "`{}` is there twice", case.name);
            let launches = case.trial.work().into_iter().flat_map(|it| it.launches);
            compared.extend(launches.map(|it| it.kernel.family().to_owned()));
        }
    }
    let missing: Vec<&str> = FAMILIES.into_iter().filter(|it| !compared.contains(*it)).collect();
    assert!(missing.is_empty(), "`bench gpu` compares no kernel of {missing:?}");
}

#[test]
fn what_is_not_as_its_reference_is_apart() {
    let array = |numbers: &[f64]| kernels::Array::of::<f64>([3], numbers).unwrap();
    let expected = array(&[1.0, -4.0, 2.0]);
    let apart = |found: &[f64]| apart(&array(found), &expected);
    assert!(apart(&[1.0, -4.0, 2.0]).abs() < 1e-12);
    assert!((apart(&[1.0, -4.0, 2.4]) - 0.1).abs() < 1e-12);
    assert!(apart(&[1.0, f64::NAN, 2.0]).is_infinite());
}
