//! What enters nodes, and how often.

use std::collections::{BTreeMap, BTreeSet};

use arbtest::arbtest;
use planner_ir::Type;

use super::world::{NETWORK, held, pair, sides, value};
use crate::{Choice, Policy, Side, Strategy, reshard, simulate};

/// The elements that each node holds on a side, by node.
fn by_node(type_: &Type, side: &Side) -> BTreeMap<u64, BTreeSet<u64>> {
    let held = held(type_, side);
    let mut nodes: BTreeMap<u64, BTreeSet<u64>> = BTreeMap::new();
    for place in &side.places {
        nodes.entry(place.node).or_default().extend(&held[&place.rank]);
    }
    nodes
}

/// What a node needs and does not have (elements).
pub(super) fn lacking(type_: &Type, from: &Side, to: &Side) -> BTreeMap<u64, u64> {
    let have = by_node(type_, from);
    let lacks = |(node, needs): (u64, BTreeSet<u64>)| {
        let none = BTreeSet::new();
        let elements = needs.difference(have.get(&node).unwrap_or(&none)).count();
        (node, u64::try_from(elements).unwrap())
    };
    by_node(type_, to).into_iter().map(lacks).collect()
}

#[test]
fn what_a_node_lacks_enters_it_exactly_once_unless_each_device_gets_its_own() {
    arbtest(|u| {
        let Some((type_, from, to)) = sides(u)? else { return Ok(()) };
        let expected = lacking(&type_, &from, &to);
        for strategy in [Strategy::LocalGather, Strategy::GlobalGather, Strategy::Broadcast] {
            let policy = Policy { strategy: Choice::Only(strategy), ..Policy::default() };
            let found = reshard(&type_, &from, &to, &NETWORK, &policy).unwrap();
            let entered = simulate(&found.messages, &from, &to, &NETWORK).entered;
            for (node, elements) in &expected {
                let bytes = entered.get(node).copied().unwrap_or(0);
                assert_eq!(bytes, elements * type_.dtype.bytes(), "{}", strategy.name());
            }
            assert!(entered.keys().all(|node| expected.contains_key(node)));
        }
        Ok(())
    });
}

#[test]
fn what_each_device_gets_by_itself_enters_its_node_as_often() {
    arbtest(|u| {
        let Some((type_, from, to)) = sides(u)? else { return Ok(()) };
        let policy = Policy { strategy: Choice::Only(Strategy::SendReceive), ..Policy::default() };
        let found = reshard(&type_, &from, &to, &NETWORK, &policy).unwrap();
        let entered = simulate(&found.messages, &from, &to, &NETWORK).entered;
        let (have, needs) = (by_node(&type_, &from), held(&type_, &to));
        let mut expected: BTreeMap<u64, u64> = BTreeMap::new();
        for place in &to.places {
            let none = BTreeSet::new();
            let there = have.get(&place.node).unwrap_or(&none);
            let lacks = needs[&place.rank].iter().filter(|element| !there.contains(element)).count();
            *expected.entry(place.node).or_default() += u64::try_from(lacks).unwrap() * type_.dtype.bytes();
        }
        expected.retain(|_, bytes| *bytes > 0);
        assert_eq!(entered, expected);
        Ok(())
    });
}

#[test]
fn a_thousand_devices_are_few_steps() {
    // A stage of GPT-3 on 512 devices to the next one, split otherwise: the activations of 16
    // sequences, from data and tensor parallelism of 64 x 8 to 16 x 32.
    let type_ = value(&[64, 2048, 12288]);
    let (from, to) = pair(&[64, 8], &[&[0], &[1], &[]], &[16, 32], &[&[0], &[], &[1]], 8);
    let policy = Policy { strategy: Choice::Only(Strategy::Broadcast), ..Policy::default() };
    let found = reshard(&type_, &from, &to, &NETWORK, &policy).unwrap();
    assert_eq!(found.tasks.len(), 64 * 8 * 32);
    let ratio =
        cost_models::units::exact(found.schedule.end) / cost_models::units::exact(found.schedule.bound);
    assert!(ratio <= 1.05, "{ratio}");
    let entered = simulate(&found.messages, &from, &to, &NETWORK).entered;
    // Each node has four devices of two blocks along one dimension, and two along the other.
    assert_eq!(entered.values().sum::<u64>(), found.tasks.iter().map(|task| task.bytes).sum::<u64>());
}
