//! That nothing is left out of what is compared.

use std::collections::BTreeSet;

use kernels::cuda::FAMILIES;

use super::{Extent, makers};

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
