//! Plans that say what operations and moves take: their programs do what they did, in another order.

use plan::{Assignment, Plan};

/// The plan with prices from 0 to 6, the same for the same seed.
pub(super) fn priced(plan: &Plan, seed: u32) -> Plan {
    let mut state = seed;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        f64::from((state >> 16) % 7)
    };
    let mut plan = plan.clone();
    for assignment in &mut plan.assignments {
        if let Assignment::Computed { seconds, .. } = assignment {
            *seconds = next();
        }
    }
    plan.transfers.iter_mut().for_each(|it| it.seconds.fill_with(&mut next));
    plan
}
