//! What may be done in time steps, of extents that fall into twos and threes.

use planner_ir::DType;

use super::Elements::{Floats, Indices, Integers, Positive, Small};
use super::{Case, case};

pub(in super::super) fn in_time() -> Vec<Case> {
    vec![
        case("contract \"mk,kn->mn\"", &[Floats(&[6, 6]), Floats(&[6, 6])]),
        case("contract \"mn,kn->mk\"", &[Floats(&[6, 12]), Floats(&[6, 12])]),
        case("contract \"abk,abn->kn\"", &[Floats(&[2, 6, 6]), Floats(&[2, 6, 6])]),
        case("contract \"mk,kn->mn\"", &[Integers(DType::I64, &[6, 6]), Integers(DType::I64, &[6, 6])]),
        case("gather dim=0", &[Floats(&[12, 6]), Indices(12, &[6])]),
        case("gather_gradient dim=0 extent=12", &[Indices(12, &[6]), Floats(&[6, 6])]),
        case(
            "attention scale=0.5 causal=true softcap=0.0 window=none",
            &[Floats(&[1, 6, 6, 2]), Floats(&[1, 3, 6, 2]), Floats(&[1, 3, 6, 2])],
        ),
        case(
            "attention_gradient scale=0.5 causal=true softcap=0.0 window=none mask=false",
            &[
                Small(&[1, 3, 6, 2]),
                Small(&[1, 3, 6, 2]),
                Small(&[1, 3, 6, 2]),
                Small(&[1, 3, 6, 2]),
                Positive(&[1, 3, 6, 2]),
                Small(&[1, 3, 6, 2]),
            ],
        ),
        case(
            "experts activation=silu active=2",
            &[Floats(&[6, 4]), Floats(&[6, 6]), Floats(&[6, 6, 4]), Floats(&[6, 6, 4]), Floats(&[6, 4, 6])],
        ),
        case(
            "conv strides=[1] dilations=[1] before=[1] after=[0] groups=1",
            &[Floats(&[6, 6, 4]), Floats(&[6, 6, 2])],
        ),
    ]
}
