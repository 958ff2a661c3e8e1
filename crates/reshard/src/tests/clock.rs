//! What messages take.

use arbtest::arbitrary::{Result, Unstructured};
use arbtest::arbtest;
use cost_models::units::{BytesPerSecond, Seconds, exact as number};
use planner_ir::Mesh;

use super::world::{NETWORK, pair, plain, sides, value};
use crate::strategy::Reach;
use crate::transfer::timed;
use crate::{
    Choice, Message, Network, Place, Policy, Side, Strategy, chunks, estimate, quickest, reshard, simulate,
    unit_tasks,
};

/// What a value on some devices of a node, of an adapter each, takes to other nodes, all of whose devices need it.
fn to_all(strategy: Strategy, elements: u64, reach: Reach, network: &Network, most_chunks: u64) -> Seconds {
    let Reach { nodes, devices, entries, exits } = reach;
    let (first, second) = (Mesh::of_sizes(&[exits]), Mesh::of_sizes(&[nodes, devices]));
    let layouts = [&first, &second].map(|mesh| plain(mesh, &[&[]]));
    let [have, need] = layouts;
    let from = Side::successive(first, have, 0, [exits, exits]);
    let to = Side::successive(second, need, exits.next_multiple_of(devices), [devices, entries]);
    let policy = Policy { strategy: Choice::Only(strategy), most_chunks, ..Policy::default() };
    let found = reshard(&value(&[elements]), &from, &to, network, &policy).unwrap();
    simulate(&found.messages, &from, &to, network).end
}

/// One adapter sends to one in each of so many nodes.
fn by_one(nodes: u64, devices: u64) -> Reach {
    Reach { nodes, devices, entries: 1, exits: 1 }
}

/// Nodes of up to so many devices each, with as many adapters as a divisor of these.
fn reach(u: &mut Unstructured<'_>, nodes: u64, devices: u64) -> Result<Reach> {
    let devices = u.int_in_range(1..=devices)?;
    let divisors: Vec<u64> = (1..=devices).filter(|it| devices % it == 0).collect();
    let (entries, exits) = (*u.choose(&divisors)?, u.int_in_range(1..=4)?);
    Ok(Reach { nodes: u.int_in_range(1..=nodes)?, devices, entries, exits })
}

#[test]
fn a_chain_takes_what_the_formula_says() {
    for nodes in 1..=4 {
        for devices in 1..=3 {
            for count in [1, 8, 64] {
                let elements = 64 * 16 * 9;
                let network = Network { latency: Seconds(0.0), ..NETWORK };
                let found = to_all(Strategy::Broadcast, elements, by_one(nodes, devices), &network, count);
                // Without latency more chunks are always better, as soon as there are two hops.
                let count = if nodes * devices == 1 { 1 } else { count };
                let t = number(4 * elements) / network.between.0;
                let s = number(4 * elements) / network.inside.0;
                let hops = number(nodes - 1) * t + number(devices - 1) * s;
                let expected = t + hops / number(count);
                assert!((found.0 / expected - 1.0).abs() < 1e-9, "{nodes} {devices} {count}: {found}");
            }
        }
    }
}

/// How much less than its estimate something may take.
fn least(strategy: Strategy, reach: Reach) -> f64 {
    match strategy {
        // Parts between nodes begin before the last one has left the sender.
        Strategy::GlobalGather => 0.5,
        // Few chunks do not keep devices that pass on several chains busy all the time.
        Strategy::Broadcast if reach.chains() > 1 => 0.9,
        _ => 0.98,
    }
}

#[test]
fn estimates_are_what_the_clock_says_of_one_unit_task() {
    arbtest(|u| {
        let reach = reach(u, 5, 4)?;
        let network = Network { latency: Seconds(number(u.int_in_range(0..=100)?)), ..NETWORK };
        let elements = 64 * 60 * u.int_in_range(16..=40)?;
        for strategy in Strategy::ALL {
            // Chunks of equal size: other numbers of chunks are off by rows.
            let most = *u.choose(&[1, 2, 4])?;
            let clock = to_all(strategy, elements, reach, &network, most);
            let estimated = estimate(strategy, 4 * elements, reach, &network, most);
            let ratio = clock / estimated;
            assert!(
                ratio > least(strategy, reach) && ratio < 1.02,
                "{}: {clock} {estimated} {reach:?}",
                strategy.name()
            );
        }
        Ok(())
    });
}

#[test]
fn the_number_of_chunks_is_the_best_one() {
    arbtest(|u| {
        let reach = reach(u, 20, 8)?;
        let bytes = 1 << u.int_in_range(0..=30)?;
        let network = Network {
            between: BytesPerSecond(1.25e9),
            inside: BytesPerSecond(*u.choose(&[1e11, 1e9])?),
            latency: Seconds(1e-7 * number(u.int_in_range(1..=1000)?)),
        };
        let most = u.int_in_range(1..=300)?;
        let found = chunks(bytes, reach, &network, most);
        let chains = reach.entries.min(reach.exits);
        let most = most.min(bytes / chains).max(1);
        assert!(found >= 1 && found <= most);
        let [t, s] = [network.between, network.inside].map(|it| number(bytes) / it.0 / number(chains));
        let time = |count: u64| {
            let [x, y] = [t, s].map(|it| it / number(count) + network.latency.0);
            let slower = x.max(number(chains.min(reach.devices - 1)) * y);
            number(reach.nodes) * x + number(count - 1) * slower + number(reach.devices - 1) * y
        };
        let best = (1..=most).map(time).fold(f64::INFINITY, f64::min);
        assert!(time(found) <= best * (1.0 + 1e-12), "{found}");
        let estimated = estimate(Strategy::Broadcast, bytes, reach, &network, most);
        assert!((estimated.0 / time(found) - 1.0).abs() < 1e-9);
        if reach.devices == 1 && found > 1 && found < most {
            let formula = (number(reach.nodes - 1) * t / network.latency.0).sqrt();
            assert!((number(found) - formula).abs() <= 1.0, "{found} {formula}");
        }
        Ok(())
    });
}

#[test]
fn a_message_waits_for_what_it_needs_and_for_its_links() {
    let (from, to) = pair(&[2], &[&[]], &[4], &[&[]], 2);
    let message = |order: usize, from: u64, to: u64, bytes: u64, after: &[usize]| Message {
        order,
        task: 0,
        from,
        to,
        portions: vec![],
        bytes,
        after: after.to_vec(),
    };
    let network = Network { latency: Seconds(0.0), ..NETWORK };
    // Ranks 0 and 1 share an adapter, as do 2 and 3, and 4 and 5.
    let messages = [
        message(0, 0, 2, 1000, &[]),
        message(1, 1, 4, 2000, &[]),
        message(2, 2, 3, 1000, &[0]),
        message(3, 2, 5, 1000, &[0]),
        message(4, 4, 5, 5000, &[1]),
    ];
    let found = simulate(&messages, &from, &to, &network);
    let expected = [(0.0, 1.0), (1.0, 3.0), (1.0, 1.1), (3.0, 4.0), (3.0, 3.5)];
    for (place, (found, expected)) in found.times.iter().zip(expected).enumerate() {
        let far = (found.0.0 - expected.0).abs() + (found.1.0 - expected.1).abs();
        assert!(far < 1e-9, "{place}: {found:?}");
    }
    assert!((found.end.0 - 4.0).abs() < 1e-9);
}

#[test]
fn the_cheapest_strategy_depends_on_size_and_reach() {
    let network =
        Network { between: BytesPerSecond(1e9), inside: BytesPerSecond(1e11), latency: Seconds(1e-5) };
    let cheapest = |elements: u64, nodes: u64, devices: u64| {
        let (from, to) = pair(&[1], &[&[]], &[nodes, devices], &[&[]], devices);
        let found = reshard(&value(&[elements]), &from, &to, &network, &Policy::default()).unwrap();
        found.strategies[0].unwrap()
    };
    assert_eq!(cheapest(1 << 24, 1, 1), Strategy::SendReceive);
    assert_eq!(cheapest(1 << 24, 4, 4), Strategy::Broadcast);
    assert_eq!(cheapest(16, 4, 1), Strategy::SendReceive);
    assert_eq!(cheapest(1 << 24, 1, 2), Strategy::Broadcast);
}

#[test]
fn the_cheapest_way_takes_no_longer_than_any_one_strategy() {
    arbtest(|u| {
        let Some((type_, from, to)) = sides(u)? else { return Ok(()) };
        let network = Network { latency: Seconds(1e-3 * number(u.int_in_range(0..=100)?)), ..NETWORK };
        let taken = |strategy| {
            let policy = Policy { strategy, ..Policy::default() };
            let found = reshard(&type_, &from, &to, &network, &policy).unwrap();
            simulate(&found.messages, &from, &to, &network).end
        };
        let cheapest = taken(Choice::Cheapest);
        let others = [Choice::Estimated].into_iter().chain(Strategy::ALL.map(Choice::Only)).map(taken);
        let least = others.fold(Seconds(f64::INFINITY), Seconds::min);
        assert_eq!(cheapest.total_cmp(&least), std::cmp::Ordering::Equal, "{cheapest} {least}");
        Ok(())
    })
    .budget_ms(500);
}

#[test]
fn what_takes_too_long_is_given_up_and_nothing_else() {
    arbtest(|u| {
        let Some((type_, from, to)) = sides(u)? else { return Ok(()) };
        let network = Network { latency: Seconds(1e-3 * number(u.int_in_range(0..=100)?)), ..NETWORK };
        let tasks = unit_tasks(&type_, &from, &to).unwrap();
        for strategy in Strategy::ALL {
            let policy = Policy { strategy: Choice::Only(strategy), ..Policy::default() };
            let whole = reshard(&type_, &from, &to, &network, &policy).unwrap();
            let end = simulate(&whole.messages, &from, &to, &network).end;
            let within = |most| timed(&tasks, type_.dtype.bytes(), (&from, &to, &network), &policy, most);
            assert_eq!(within(end), Some((whole, end)));
            if end > Seconds::ZERO {
                assert_eq!(within(Seconds(0.99 * end.0)), None);
            }
        }
        Ok(())
    })
    .budget_ms(500);
}

#[test]
fn the_quickest_of_policies_is_the_first_that_none_is_quicker_than() {
    arbtest(|u| {
        let Some((type_, from, to)) = sides(u)? else { return Ok(()) };
        let network = Network { latency: Seconds(1e-3 * number(u.int_in_range(0..=100)?)), ..NETWORK };
        let policies = Strategy::ALL.map(|it| Policy {
            strategy: Choice::Only(it),
            most_chunks: 4,
            ..Policy::default()
        });
        let whole = policies.map(|policy| reshard(&type_, &from, &to, &network, &policy).unwrap());
        let taken: Vec<(Seconds, usize)> = whole
            .iter()
            .map(|it| (simulate(&it.messages, &from, &to, &network).end, it.messages.len()))
            .collect();
        let (number, found, end) = quickest(&type_, (&from, &to), &network, &policies).unwrap().unwrap();
        assert_eq!((&found, (end, found.messages.len())), (&whole[number], taken[number]));
        assert!(taken[..number].iter().all(|it| *it > taken[number]), "{taken:?}, not {number}");
        assert!(taken[number..].iter().all(|it| *it >= taken[number]), "{taken:?}, not {number}");
        Ok(())
    })
    .budget_ms(500);
}

#[test]
fn a_chain_inside_a_node_has_the_best_number_of_chunks() {
    let (from, mut to) = pair(&[1], &[&[]], &[4], &[&[]], 8);
    to.places.iter_mut().for_each(|place| place.node = from.places[0].node);
    let elements = 1 << 20;
    let policy = Policy { strategy: Choice::Only(Strategy::Broadcast), ..Policy::default() };
    for latency in [0.1, 1.0, 10.0] {
        let network = Network { latency: Seconds(latency), ..NETWORK };
        let found = reshard(&value(&[elements]), &from, &to, &network, &policy).unwrap();
        let s = number(4 * elements) / network.inside.0;
        let time = |count: u64| (number(count) + 3.0) * (s / number(count) + latency);
        let best = (1..=policy.most_chunks).map(time).fold(f64::INFINITY, f64::min);
        let taken = simulate(&found.messages, &from, &to, &network).end.0;
        assert!((taken / best - 1.0).abs() < 1e-3, "{latency}: {taken}, not {best}");
    }
}

#[test]
fn nodes_that_have_the_same_share_the_sending() {
    let type_ = value(&[1 << 16]);
    let policy = Policy { strategy: Choice::Only(Strategy::Broadcast), ..Policy::default() };
    let network = Network { latency: Seconds(0.0), ..NETWORK };
    // Two nodes have everything, four need a quarter each: each sends half of it.
    let (from, to) = pair(&[2, 4], &[&[]], &[4, 4], &[&[0]], 4);
    let found = reshard(&type_, &from, &to, &network, &policy).unwrap();
    let timeline = simulate(&found.messages, &from, &to, &network);
    assert_eq!(timeline.left.values().copied().collect::<Vec<_>>(), [type_.bytes() / 2; 2]);
    assert_eq!((found.schedule.end, found.schedule.bound), (type_.bytes() / 2, type_.bytes() / 2));
    let devices = found.messages.iter().map(|message| message.from).filter(|rank| *rank < 8);
    assert_eq!(devices.collect::<std::collections::BTreeSet<_>>().len(), 4, "each of two tasks by its own");

    // Of four blocks on two devices each, one node has three: it sends three quarters.
    let (mut from, to) = pair(&[4, 2], &[&[0]], &[4, 4], &[&[0]], 4);
    from.places[4].node = 0;
    from.places[5].node = 0;
    let found = reshard(&type_, &from, &to, &network, &policy).unwrap();
    assert_eq!((found.schedule.end, found.schedule.bound), (3 * type_.bytes() / 4, 3 * type_.bytes() / 4));
}

#[test]
fn devices_with_adapters_of_their_own_send_at_once() {
    // All devices of a node have it all, all of another node need it all.
    let (from, to) = pair(&[4], &[&[]], &[4], &[&[]], 4);
    let (eight, four) = pair(&[8], &[&[]], &[4], &[&[]], 8);
    let adapters = |side: &Side, devices: u64| {
        let places = (0..).zip(&side.places).map(|(it, place)| Place { adapter: it / devices, ..*place });
        Side { places: places.collect(), ..side.clone() }
    };
    let own = [&adapters(&from, 1), &adapters(&to, 1)];
    // Two of eight devices share an adapter: all four are used.
    let twos = [&adapters(&eight, 2), &adapters(&four, 1)];
    let network = Network { latency: Seconds(0.0), inside: BytesPerSecond(1e15), ..NETWORK };
    let took = |sides: [&Side; 2], strategy: Strategy| {
        let policy = Policy { strategy: Choice::Only(strategy), ..Policy::default() };
        let found = reshard(&value(&[4096]), sides[0], sides[1], &network, &policy).unwrap();
        let seconds = simulate(&found.messages, sides[0], sides[1], &network).end;
        seconds.0 * network.between.0 / number(4 * 4096)
    };
    for (strategy, shared, apart) in [
        (Strategy::SendReceive, 4.0, 1.0),
        (Strategy::LocalGather, 1.0, 0.25),
        (Strategy::Broadcast, 1.0, 0.25),
    ] {
        for (sides, expected) in [([&from, &to], shared), (own, apart), (twos, apart)] {
            let times = took(sides, strategy);
            assert!((times - expected).abs() < 1e-6, "{}: {times} instead of {expected}", strategy.name());
        }
    }
}

#[test]
fn chains_take_what_the_formula_says_however_many_there_are() {
    let mut wrong = Vec::new();
    let mut check = |reach: Reach, latency: f64, most: u64| {
        let network = Network { latency: Seconds(latency), ..NETWORK };
        let elements = 64 * 60 * 16;
        let clock = to_all(Strategy::Broadcast, elements, reach, &network, most);
        let ratio = clock / estimate(Strategy::Broadcast, 4 * elements, reach, &network, most);
        if ratio < least(Strategy::Broadcast, reach) || ratio > 1.02 {
            wrong.push(format!("{ratio} {reach:?} latency {latency} most {most}"));
        }
    };
    for devices in 1..=4_u64 {
        for entries in (1..=devices).filter(|it| devices % it == 0) {
            for [nodes, exits] in (1..=3).flat_map(|nodes| (1..=4).map(move |exits| [nodes, exits])) {
                for latency in (0..25).map(|it| f64::from(it) * 4.0) {
                    [1, 2, 4].iter().for_each(|&most| {
                        check(Reach { nodes, devices, entries, exits }, latency, most);
                    });
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
