//! Gradients of mixtures of experts, some of them added to sums.

use super::Elements::Small;
use super::{Case, case};

pub(super) fn gradients() -> Vec<Case> {
    vec![
        case(
            "experts_gradient activation=silu active=2",
            &[
                Small(&[4, 4]),
                Small(&[4, 2]),
                Small(&[2, 2, 4]),
                Small(&[2, 2, 4]),
                Small(&[2, 4, 2]),
                Small(&[4, 4]),
            ],
        ),
        case(
            "experts_gradient activation=silu active=2 adds=[2,4]",
            &[
                Small(&[4, 4]),
                Small(&[4, 2]),
                Small(&[2, 2, 4]),
                Small(&[2, 2, 4]),
                Small(&[2, 4, 2]),
                Small(&[4, 4]),
                Small(&[2, 2, 4]),
                Small(&[2, 4, 2]),
            ],
        ),
        case(
            "experts_gradient activation=gelu active=2 adds=[3]",
            &[
                Small(&[2, 2]),
                Small(&[2, 2]),
                Small(&[2, 2, 2]),
                Small(&[2, 2, 2]),
                Small(&[2, 2]),
                Small(&[2, 2, 2]),
            ],
        ),
        case(
            "experts_gradient activation=gelu active=4",
            &[Small(&[4, 2]), Small(&[4, 4]), Small(&[4, 4, 2]), Small(&[4, 2, 4]), Small(&[4, 2])],
        ),
    ]
}
