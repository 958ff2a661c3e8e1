//! What is kept, against everything that could be.

use arbtest::arbitrary::{Result, Unstructured};
use arbtest::arbtest;

use super::{Item, MOST, Point, hull, least};
use plan::Recompute;

/// A block of a few operations behind up to two values from before.
fn random(u: &mut Unstructured<'_>) -> Result<Vec<Item>> {
    let count = u.int_in_range(1..=7usize)?;
    let before = u.int_in_range(0..=2usize)?;
    let mut items = Vec::new();
    for index in 0..count {
        let is_before = index < before;
        let mut operands = Vec::new();
        for operand in 0..index {
            if !is_before && u.ratio(1, 2)? {
                operands.push(operand);
            }
        }
        items.push(Item {
            bytes: u128::from(u.int_in_range(0..=9u32)?),
            time: if is_before { None } else { Some(u128::from(u.int_in_range(0..=9u32)?)) },
            read: u.arbitrary()?,
            operands,
            number: index.checked_sub(before),
        });
    }
    Ok(items)
}

/// Whether an item is neither, kept, or done again.
type Choice = [usize; 7];

/// Bytes and time of all that can be done: for each item nothing (0), kept (1), done again (2).
fn everything(items: &[Item]) -> Vec<(u128, u128, Choice)> {
    let mut all = Vec::new();
    for number in 0..3usize.pow(u32::try_from(items.len()).expect("a few")) {
        let mut choice = [0; 7];
        let mut rest = number;
        for it in choice.iter_mut().take(items.len()) {
            *it = rest % 3;
            rest /= 3;
        }
        let right = items.iter().enumerate().all(|(index, item)| {
            let needs = choice[index] == 2;
            (!item.read || choice[index] > 0)
                && (!needs || item.time.is_some() && item.operands.iter().all(|&it| choice[it] > 0))
        });
        if right {
            let sum = |of: &dyn Fn(usize) -> u128| (0..items.len()).map(of).sum();
            let bytes = sum(&|it| if choice[it] == 1 { items[it].bytes } else { 0 });
            let time = sum(&|it| if choice[it] == 2 { items[it].time.unwrap_or(0) } else { 0 });
            all.push((bytes, time, choice));
        }
    }
    all
}

#[test]
fn what_is_kept_is_the_best_at_every_price() {
    arbtest(|u| {
        let items = random(u)?;
        let prices = [u.int_in_range(0..=20u32)?, u.int_in_range(1..=20u32)?].map(u128::from);
        let cost = |bytes: u128, time: u128| prices[0] * bytes + prices[1] * time;
        let best = everything(&items).iter().map(|&(bytes, time, _)| cost(bytes, time)).min();
        let Point { bytes, time, kept } = least(&items, prices);
        assert_eq!(Some(cost(bytes, time)), best, "{items:?}");
        // What is kept can be had for this.
        let same = |choice: &Choice| kept.iter().zip(choice).all(|(&kept, &it)| kept == (it == 1));
        let found = everything(&items);
        assert!(found.iter().any(|(b, t, choice)| (*b, *t) == (bytes, time) && same(choice)), "{items:?}");
        Ok(())
    })
    .budget_ms(1000);
}

/// Bytes of what is kept of the operations, and the least time in which the rest can be done.
fn cost_of(items: &[Item], ways: &[(u128, u128, Choice)], kept: &[usize]) -> Option<(u128, u128)> {
    let same = |choice: &Choice| {
        items.iter().zip(choice).all(|(item, &it)| match item.number {
            Some(number) => kept.contains(&number) == (it == 1),
            None => true,
        })
    };
    ways.iter()
        .filter(|(_, _, choice)| same(choice))
        .map(|&(bytes, time, _)| (time, bytes))
        .min()
        .map(|it| (it.1, it.0))
}

#[test]
fn ways_to_keep_are_corners_from_much_to_little() {
    let mut most = 0;
    arbtest(|u| {
        let items = random(u)?;
        let ways = everything(&items);
        let found = hull(&items);
        assert!(found.len() <= MOST);
        most = most.max(found.len());
        let mut before = None;
        for way in &found {
            let Recompute::AllBut(kept) = &way.again else { unreachable!("some is kept") };
            let Some((bytes, time)) = cost_of(&items, &ways, kept) else {
                unreachable!("what is kept suffices: {items:?}, {way:?}")
            };
            // Nothing takes less of both, nor is below the line through two others.
            for &(b, t, _) in &ways {
                assert!(b >= bytes || t >= time || (b, t) == (bytes, time), "{items:?} {way:?}");
                for &(c, s, _) in &ways {
                    if b > bytes && bytes > c && t < time {
                        let line = (time - t) * (b - c) <= (s.max(t) - t) * (b - bytes);
                        assert!(line, "{items:?} {way:?}");
                    }
                }
            }
            assert!(before.is_none_or(|before| (bytes, time) != before && bytes <= before.0), "{items:?}");
            before = Some((bytes, time));
        }
        Ok(())
    })
    .budget_ms(1500);
    assert!(most >= 3, "no more than {most} ways were found");
}
