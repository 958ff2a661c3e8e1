//! Tests of what is trained.

use super::{Constant, Roles, Tie, Why};

#[test]
fn what_is_asked_to_be_trained_wins_and_copies_are_meant_by_both_names() {
    let names = |all: &[&str]| all.iter().map(|it| (*it).to_owned()).collect::<Vec<_>>();
    let constant = |name: &str| Constant { name: name.to_owned(), why: Why::Mask };
    let tie = Tie { copy: "val_3".to_owned(), original: "embed".to_owned(), transposed: true };
    let roles = Roles { constants: vec![constant("mask"), constant("slopes")], ..Roles::default() };
    let kept = |roles: &Roles| {
        let all = ["embed", "a.weight", "b.weight", "mask", "slopes"];
        all.into_iter().filter(|name| roles.keeps(name)).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(kept(&roles), "mask slopes");
    let asked = Roles { frozen: names(&["*"]), trained: names(&["b.*", "slopes"]), ..roles.clone() };
    assert_eq!(kept(&asked), "embed a.weight mask");
    let copies = Roles { frozen: names(&["val_*"]), ties: vec![tie], ..roles };
    assert_eq!(kept(&copies), "embed mask slopes");
    let unique: std::collections::BTreeSet<&str> = Why::ALL.iter().map(|it| it.name()).collect();
    assert_eq!(unique.len(), Why::ALL.len());
}
