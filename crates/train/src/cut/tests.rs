//! Cuts against all cuts.

use arbtest::arbitrary::Unstructured;
use arbtest::arbtest;

use super::Network;

/// What a cut pays whose source side has these places.
fn cost(arcs: &[(usize, usize, u128)], side: &[bool]) -> u128 {
    arcs.iter().filter(|&&(from, to, _)| side[from] && !side[to]).map(|arc| arc.2).sum()
}

#[test]
fn cuts_are_the_cheapest_and_of_these_the_smallest() {
    arbtest(|u: &mut Unstructured<'_>| {
        let places = u.int_in_range(2..=7)?;
        let arcs: Vec<(usize, usize, u128)> = (0..u.int_in_range(0..=14)?)
            .map(|_| {
                let capacity = u128::from(u.int_in_range(0..=5u32)?);
                Ok((u.choose_index(places)?, u.choose_index(places)?, capacity))
            })
            .collect::<Result<_, _>>()?;
        let mut network = Network::new(places);
        for &(from, to, capacity) in &arcs {
            network.arc(from, to, capacity);
        }
        let found = network.cut();
        assert!(found[Network::SOURCE] && !found[Network::SINK]);
        let sides = (0..1usize << places).map(|set| (0..places).map(|it| set >> it & 1 == 1).collect());
        let cuts = sides.filter(|side: &Vec<bool>| side[Network::SOURCE] && !side[Network::SINK]);
        let size = |side: &[bool]| side.iter().filter(|&&it| it).count();
        let best = cuts.map(|side| (cost(&arcs, &side), size(&side))).min();
        assert_eq!(Some((cost(&arcs, &found), size(&found))), best, "{arcs:?}");
        Ok(())
    })
    .budget_ms(1000);
}
