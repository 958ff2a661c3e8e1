//! What is received is what is needed.

use std::collections::BTreeSet;

use arbtest::arbtest;

use super::world::{NETWORK, held, sides};
use crate::error::{End, ReshardError};
use crate::portion::{Portion, Span, divide};
use crate::{Choice, ExecuteError, Order, Policy, Strategy, execute, reshard, unit_tasks};

#[test]
fn every_strategy_brings_each_rank_what_direct_slicing_gives() {
    let mut cases = 0;
    arbtest(|u| {
        let Some((type_, from, to)) = sides(u)? else { return Ok(()) };
        cases += 1;
        let have = held(&type_, &from);
        let need = held(&type_, &to);
        let chosen = [Choice::Cheapest].into_iter().chain(Strategy::ALL.map(Choice::Only));
        for strategy in chosen {
            let order = if u.ratio(1, 2)? { Order::Listed } else { Order::Scheduled };
            let policy = Policy { strategy, order, most_chunks: u.int_in_range(1..=9)? };
            let found = reshard(&type_, &from, &to, &NETWORK, &policy).unwrap();
            let got = execute(&type_, &from, &to, &found.messages, &have);
            assert_eq!(got.as_ref(), Ok(&need), "{policy:?}");
            for (place, message) in found.messages.iter().enumerate() {
                assert_eq!(message.order, place);
                assert!(message.after.iter().all(|&before| before < place));
                let elements: u64 = message.portions.iter().map(Portion::elements).sum();
                assert_eq!(message.bytes, elements * type_.dtype.bytes());
            }
        }
        Ok(())
    })
    .budget_ms(2000);
    assert!(cases > 10, "{cases}");
}

#[test]
fn unit_tasks_are_the_sets_of_elements_with_the_same_holders() {
    arbtest(|u| {
        let Some((type_, from, to)) = sides(u)? else { return Ok(()) };
        let tasks = unit_tasks(&type_, &from, &to).unwrap();
        let (have, need) = (held(&type_, &from), held(&type_, &to));
        let mut different = BTreeSet::new();
        let mut covered = BTreeSet::new();
        for task in &tasks {
            let ranks = |places: &[crate::Place]| places.iter().map(|it| it.rank).collect::<BTreeSet<_>>();
            let holders = (ranks(&task.senders), ranks(&task.receivers));
            let elements: Vec<u64> = task.portions.iter().flat_map(|it| it.places(&type_.shape)).collect();
            assert_eq!(task.bytes, u64::try_from(elements.len()).unwrap() * type_.dtype.bytes());
            for element in elements {
                let of = |held: &std::collections::BTreeMap<u64, Vec<u64>>| -> BTreeSet<u64> {
                    let has = |it: &(&u64, &Vec<u64>)| it.1.binary_search(&element).is_ok();
                    held.iter().filter(has).map(|it| *it.0).collect()
                };
                assert_eq!((of(&have), of(&need)), holders);
                assert!(covered.insert(element));
            }
            assert!(different.insert(holders));
        }
        assert_eq!(u64::try_from(covered.len()), Ok(type_.elements()));
        Ok(())
    });
}

#[test]
fn a_portion_is_one_box_of_what_a_device_holds() {
    arbtest(|u| {
        let Some((type_, from, to)) = sides(u)? else { return Ok(()) };
        for task in unit_tasks(&type_, &from, &to).unwrap() {
            let ends = [(&from, &task.senders, End::Sending), (&to, &task.receivers, End::Receiving)];
            for (side, places, _) in ends {
                let held = held(&type_, side);
                let shape = side.layout.local_shape(&type_.shape);
                for (place, portion) in
                    places.iter().flat_map(|it| task.portions.iter().map(move |p| (it, p)))
                {
                    let device = side.device(place.rank).unwrap();
                    let local = side.local(&type_, device, portion).unwrap().places(&shape);
                    let elements = local.iter().map(|&it| held[&place.rank][usize::try_from(it).unwrap()]);
                    assert!(elements.eq(portion.places(&type_.shape)));
                }
            }
        }
        Ok(())
    });
}

#[test]
fn a_box_that_a_device_does_not_hold_in_one_piece_has_no_place_in_it() {
    let (mut some, mut none) = (0, 0);
    arbtest(|u| {
        let Some((type_, side, _)) = sides(u)? else { return Ok(()) };
        let held = held(&type_, &side);
        let shape = side.layout.local_shape(&type_.shape);
        for (device, place) in (0..).zip(&side.places) {
            let span = |&extent: &u64| {
                let start = u.int_in_range(0..=extent - 1)?;
                Ok(Span { start, length: u.int_in_range(1..=extent - start)? })
            };
            let portion = Portion { spans: type_.shape.iter().map(span).collect::<Result<_, _>>()? };
            let elements = portion.places(&type_.shape);
            let has = elements.iter().all(|it| held[&place.rank].binary_search(it).is_ok());
            let blocks = side
                .layout
                .dims
                .iter()
                .zip(&type_.shape)
                .map(|(digits, extent)| extent / digits.iter().map(|digit| digit.size).product::<u64>());
            let inside =
                |(span, block): (&Span, u64)| span.start / block == (span.start + span.length - 1) / block;
            let whole = portion.spans.iter().zip(blocks).all(inside);
            let local = side.local(&type_, device, &portion);
            assert_eq!(local.is_some(), has && whole);
            let Some(local) = local else {
                none += 1;
                continue;
            };
            some += 1;
            let places = local.places(&shape).into_iter().map(|it| usize::try_from(it).unwrap());
            assert!(places.map(|it| held[&place.rank][it]).eq(elements));
        }
        let long = type_.shape.iter().map(|&extent| Span { start: 0, length: extent + 1 });
        let long = Portion { spans: long.collect() };
        assert!(type_.rank() == 0 || side.local(&type_, 0, &long).is_none());
        Ok(())
    });
    assert!(some > 0 && none > 0, "{some} {none}");
}

#[test]
fn parts_are_even_and_in_order() {
    arbtest(|u| {
        let rank = u.int_in_range(1..=3)?;
        let shape = vec![40; rank];
        let span = |u: &mut arbtest::arbitrary::Unstructured<'_>| {
            let start = u.int_in_range(0..=20)?;
            Ok(Span { start, length: u.int_in_range(1..=20)? })
        };
        let portion = |u: &mut arbtest::arbitrary::Unstructured<'_>| {
            Ok(Portion { spans: (0..rank).map(|_| span(u)).collect::<Result<_, _>>()? })
        };
        let portions =
            (0..u.int_in_range(1..=3)?).map(|_| portion(u)).collect::<Result<Vec<Portion>, _>>()?;
        let parts = u.int_in_range(1..=9)?;
        let divided = divide(&portions, parts);
        assert_eq!(u64::try_from(divided.len()), Ok(parts));
        let places =
            |portions: &[Portion]| -> Vec<u64> { portions.iter().flat_map(|it| it.places(&shape)).collect() };
        let whole = places(&portions);
        assert_eq!(divided.iter().flat_map(|part| places(part)).collect::<Vec<_>>(), whole);
        // A part differs by one row at each end from an equal one, of so many.
        let even = u64::try_from(whole.len()).unwrap() / parts;
        for part in &divided {
            let elements = part.iter().map(Portion::elements).sum::<u64>();
            assert!(elements.abs_diff(even) <= 1 + even / 8, "{elements} of {even}");
            let boxes = portions.len() * (2 * rank - 1);
            assert!(part.len() <= boxes, "{} boxes", part.len());
        }
        Ok(())
    });
}

#[test]
fn messages_that_do_not_bring_everything_are_found() {
    let (from, to) = super::world::pair(&[2, 2], &[&[0]], &[2, 2], &[&[]], 2);
    let type_ = super::world::value(&[8]);
    let policy = Policy { most_chunks: 2, strategy: Choice::Only(Strategy::Broadcast), ..Policy::default() };
    let found = reshard(&type_, &from, &to, &NETWORK, &policy).unwrap().messages;
    let given = held(&type_, &from);
    let run = |messages: &[crate::Message]| execute(&type_, &from, &to, messages, &given);
    assert!(run(&found).is_ok());

    let lacks = &found[..found.len() - 1];
    assert_eq!(run(lacks), Err(ExecuteError::Missing(found[found.len() - 1].to)));
    let passed_on = found.iter().position(|message| !message.after.is_empty()).unwrap();
    let mut early = found.clone();
    early[passed_on].after.clear();
    assert_eq!(run(&early), Err(ExecuteError::After(passed_on)));
    let mut twice = found.clone();
    twice.push(found[0].clone());
    assert_eq!(run(&twice), Err(ExecuteError::Twice(0)));
    let mut elsewhere = found.clone();
    elsewhere[0].portions[0].spans[0].start += 4;
    assert_eq!(run(&elsewhere), Err(ExecuteError::Held(0)));
    assert_eq!(
        reshard(&type_, &from, &from, &NETWORK, &policy).unwrap_err(),
        ReshardError::Rank(from.places[0].rank)
    );
}
