//! What is refused.

use cost_models::units::{BytesPerSecond, Seconds};
use planner_ir::{AxisId, DType, Type};

use super::world::{NETWORK, held, pair, value};
use crate::{Choice, Network, Place, Policy, Side, Strategy, execute, reshard, simulate};

/// What is said of bringing a value over.
fn refused(type_: &Type, from: &Side, to: &Side, network: &Network, policy: &Policy) -> String {
    reshard(type_, from, to, network, policy).unwrap_err().to_string()
}

#[test]
fn what_cannot_be_brought_over_is_refused_with_the_reason() {
    let (from, to) = pair(&[2, 2], &[&[0], &[]], &[4], &[&[], &[0]], 2);
    let type_ = value(&[8, 8]);
    let said = |type_: &Type, from: &Side, to: &Side| refused(type_, from, to, &NETWORK, &Policy::default());

    let mut owed = from.clone();
    owed.layout.owed = vec![AxisId(1)];
    assert_eq!(
        said(&type_, &owed, &to),
        "sending side: a sum is owed over `b`, expected none between meshes"
    );
    let mut needs = to.clone();
    needs.layout.dims[1].clear();
    needs.layout.owed = vec![AxisId(0)];
    assert_eq!(
        said(&type_, &from, &needs),
        "receiving side: a sum is owed over `a`, expected none between meshes"
    );
    assert_eq!(said(&value(&[8]), &from, &to), "sending side: layout has 2 dimensions, expected 1");
    assert_eq!(
        said(&value(&[8, 6]), &from, &to),
        "receiving side: dimension 1 of extent 6 does not fall into 4 equal blocks"
    );
    let mut short = from.clone();
    short.places.pop();
    assert_eq!(said(&type_, &short, &to), "sending side: 3 places, expected one for each of 4 devices");
    let mut twice = to.clone();
    twice.places[3] = Place { rank: 5, node: 9, adapter: 0 };
    assert_eq!(said(&type_, &from, &twice), "rank 5 stands for two devices, expected different ranks");
    twice.places[3].rank = 0;
    assert_eq!(said(&type_, &from, &twice), "rank 0 stands for two devices, expected different ranks");
    let large = Type::new(DType::F64, [1 << 32, 1 << 30]);
    assert_eq!(said(&large, &from, &to), "the value has more than 2^64 bytes");
}

#[test]
fn numbers_that_a_network_cannot_have_are_refused() {
    let (from, to) = pair(&[2], &[&[0]], &[2], &[&[]], 2);
    let said = |network: Network| refused(&value(&[8]), &from, &to, &network, &Policy::default());
    let wrong = "is not a number that it can have";
    for rate in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        let between = Network { between: BytesPerSecond(rate), ..NETWORK };
        assert_eq!(said(between), format!("the rate between nodes of the network {wrong}"));
        let inside = Network { inside: BytesPerSecond(rate), ..NETWORK };
        assert_eq!(said(inside), format!("the rate inside nodes of the network {wrong}"));
    }
    let latency = Network { latency: Seconds(-1.0), ..NETWORK };
    assert_eq!(said(latency), format!("the latency of the network {wrong}"));
    let policy = Policy { most_chunks: 0, ..Policy::default() };
    assert_eq!(refused(&value(&[8]), &from, &to, &NETWORK, &policy), "0 chunks at most, expected 1 or more");
}

#[test]
fn both_sides_may_have_devices_in_one_node() {
    // Two stages in one node of eight devices, and half of the second one in another node.
    let (from, mut to) = pair(&[4], &[&[0]], &[4], &[&[]], 4);
    to.places =
        [(4, 0), (5, 0), (6, 1), (7, 1)].map(|(rank, node)| Place { rank, node, adapter: 0 }).to_vec();
    let type_ = value(&[8]);
    for strategy in Strategy::ALL {
        let policy = Policy { strategy: Choice::Only(strategy), ..Policy::default() };
        let found = reshard(&type_, &from, &to, &NETWORK, &policy).unwrap();
        let got = execute(&type_, &from, &to, &found.messages, &held(&type_, &from));
        assert_eq!(got, Ok(held(&type_, &to)));
        let entered = simulate(&found.messages, &from, &to, &NETWORK).entered;
        assert_eq!(entered.keys().copied().collect::<Vec<_>>(), [1], "{}", strategy.name());
    }
}

#[test]
fn a_value_without_elements_needs_no_messages() {
    let (from, to) = pair(&[2], &[&[], &[]], &[2], &[&[], &[]], 2);
    let found = reshard(&value(&[0, 8]), &from, &to, &NETWORK, &Policy::default()).unwrap();
    assert!(found.tasks.is_empty() && found.messages.is_empty());
    assert_eq!((found.schedule.end, found.schedule.bound), (0, 0));
}
