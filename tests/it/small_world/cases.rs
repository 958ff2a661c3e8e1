//! Operations with small operands.

mod experts; // gradients of mixtures of experts
mod in_time; // of what may be done in time steps
mod narrow; // of numbers of 8 bits with scales
mod recurrences; // states that go from token to token

use kernels::Array;
use planner_ir::{Binary, DType, Op, Type, Unary, parse_op};

use super::simulate::{of_floats, of_integers};
pub(super) use in_time::in_time;
pub(super) use narrow::narrow;
pub(super) use recurrences::recurrences;

/// An operation with several sets of operands, so that nothing is right by chance.
pub(super) struct Case {
    pub(super) op: Op,
    pub(super) trials: Vec<Trial>,
}

/// Operands, and what the operation makes of them.
pub(super) struct Trial {
    seed: u64,
    pub(super) operands: Vec<Array>,
    pub(super) results: Vec<Array>,
}

/// How many sets of operands there are.
const TRIALS: u64 = 12;

impl Case {
    pub(super) fn operand_types(&self) -> Vec<Type> {
        self.trials[0].operands.iter().map(|it| it.type_().clone()).collect()
    }

    pub(super) fn result_types(&self) -> Vec<Type> {
        self.trials[0].results.iter().map(|it| it.type_().clone()).collect()
    }
}

impl Trial {
    /// What addends of an operand are made of: others for each operand.
    pub(super) fn random(&self, operand: usize) -> Random {
        Random::new(self.seed << 8 | u64::try_from(operand).unwrap())
    }
}

/// Numbers from a seed.
pub(super) struct Random {
    state: u64,
}

impl Random {
    pub(super) fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    /// The next 64 bits (`SplitMix64`).
    pub(super) fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.state ^ (self.state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub(super) fn below(&mut self, limit: usize) -> usize {
        usize::try_from(self.next() % u64::try_from(limit).unwrap()).unwrap()
    }

    fn integer(&mut self, from: i64, to: i64) -> i64 {
        from + i64::try_from(self.next() % (to - from).unsigned_abs()).unwrap()
    }

    /// An addend of a sum like this value: quarters, or integers of all sizes.
    pub(super) fn like(&mut self, value: &Array) -> Array {
        let count = usize::try_from(value.type_().elements()).unwrap();
        if value.dtype().is_float() {
            let numbers: Vec<f64> = (0..count).map(|_| self.quarters(-30, 30)).collect();
            return of_floats(value.type_().clone(), &numbers);
        }
        // The extremes of the type, and numbers of all sizes.
        let least = i64::MIN >> (64 - 8 * value.dtype().bytes());
        let mut number = || match self.below(2) {
            0 => least + self.integer(0, 3),
            _ => self.next().cast_signed() >> 8,
        };
        let numbers: Vec<i64> = (0..count).map(|_| number()).collect();
        of_integers(value.type_().clone(), &numbers)
    }

    fn quarters(&mut self, from: i64, to: i64) -> f64 {
        f64::from(i32::try_from(self.integer(from, to)).unwrap()) / 4.0
    }
}

/// What an operand is made of.
pub(super) enum Elements<'a> {
    /// Quarters, of both signs.
    Floats(&'a [u64]),
    /// 64ths of both signs, about as large as 1: for functions that grow fast.
    Small(&'a [u64]),
    /// Thirds of both signs: more than a bf16 can say.
    Thirds(&'a [u64]),
    /// Quarters above 0.
    Positive(&'a [u64]),
    /// 0, 1, infinities and what is no number.
    Special(&'a [u64]),
    /// Integers of that type.
    Integers(DType, &'a [u64]),
    /// Integers (i64) from 0 to below the first.
    Indices(i64, &'a [u64]),
    /// Truth values.
    Truths(&'a [u64]),
    /// Bytes of all values.
    Bytes(&'a [u64]),
    /// From the first to below the second: integers, or quarters of floating point.
    Within(DType, [i64; 2], &'a [u64]),
}

use Elements::{Bytes, Floats, Indices, Integers, Positive, Small, Special, Thirds, Truths, Within};

fn case(op: &str, operands: &[Elements<'_>]) -> Case {
    let op = parse_op(op).unwrap_or_else(|error| panic!("{op}: {error}"));
    Case { trials: (0..TRIALS).map(|seed| trial(&op, operands, seed)).collect(), op }
}

fn trial(op: &Op, operands: &[Elements<'_>], seed: u64) -> Trial {
    let mut random = Random::new(seed);
    let mut array = |elements: &Elements<'_>| {
        let (dtype, shape) = match *elements {
            Floats(shape) | Small(shape) | Thirds(shape) | Positive(shape) | Special(shape) => {
                (DType::F32, shape)
            }
            Integers(dtype, shape) | Within(dtype, _, shape) => (dtype, shape),
            Indices(_, shape) => (DType::I64, shape),
            Truths(shape) => (DType::Bool, shape),
            Bytes(shape) => (DType::U8, shape),
        };
        let type_ = Type::new(dtype, shape);
        let count = type_.elements();
        let mut integers = |from, to| (0..count).map(|_| random.integer(from, to)).collect::<Vec<_>>();
        let floats = |numbers: Vec<i64>, part: f64| {
            let number = |it| f64::from(i32::try_from(it).unwrap()) / part;
            of_floats(type_.clone(), &numbers.into_iter().map(number).collect::<Vec<_>>())
        };
        match *elements {
            Floats(_) => floats(integers(-20, 20), 4.0),
            Small(_) => floats(integers(-80, 80), 64.0),
            Thirds(_) => floats(integers(-2000, 2000), 3.0),
            Positive(_) => floats(integers(1, 30), 4.0),
            Special(_) => {
                let special = |it: &i64| [0.0, 1.0, f64::INFINITY, f64::NAN][usize::try_from(*it).unwrap()];
                of_floats(type_.clone(), &integers(0, 4).iter().map(special).collect::<Vec<_>>())
            }
            Integers(..) => of_integers(type_.clone(), &integers(-9, 9)),
            Indices(limit, _) => of_integers(type_.clone(), &integers(0, limit)),
            Truths(_) => of_integers(type_.clone(), &integers(0, 2)),
            Bytes(_) => of_integers(type_.clone(), &integers(0, 256)),
            Within(dtype, [from, to], _) if dtype.is_float() => floats(integers(from, to), 4.0),
            Within(_, [from, to], _) => of_integers(type_.clone(), &integers(from, to)),
        }
    };
    let operands: Vec<Array> = operands.iter().map(&mut array).collect();
    let results = kernels::evaluate(op, &operands.iter().collect::<Vec<_>>())
        .unwrap_or_else(|error| panic!("{op}: {error}"));
    Trial { seed, operands, results }
}

pub(super) fn elementwise() -> Vec<Case> {
    let mut cases = Vec::new();
    let named =
        |name: &&str| !name.contains('_') || ["gelu_tanh", "gelu_quick", "is_inf", "is_nan"].contains(name);
    for name in Op::names().filter(named) {
        match parse_op(name) {
            Ok(Op::Unary(Unary::Not)) => cases.push(case(name, &[Truths(&[4, 2])])),
            Ok(Op::Unary(Unary::IsInf | Unary::IsNan)) => cases.push(case(name, &[Special(&[4, 2])])),
            Ok(Op::Unary(Unary::Log | Unary::Sqrt)) => cases.push(case(name, &[Positive(&[4, 2])])),
            Ok(Op::Unary(_)) => cases.push(case(name, &[Floats(&[4, 2])])),
            Ok(Op::Binary(Binary::And | Binary::Or | Binary::Xor)) => {
                cases.push(case(name, &[Truths(&[4, 2]), Truths(&[4, 2])]));
            }
            Ok(Op::Binary(_)) => cases.push(case(name, &[Positive(&[4, 2]), Positive(&[4, 2])])),
            _ => {}
        }
    }
    cases.extend([
        case("greater_or_equal", &[Floats(&[4, 2]), Floats(&[4, 2])]),
        case("less_or_equal", &[Floats(&[4, 2]), Floats(&[4, 2])]),
        case("add", &[Floats(&[4, 4]), Floats(&[4])]),
        case("mul", &[Floats(&[4, 1]), Floats(&[1, 4])]),
        case("add", &[Integers(DType::I64, &[4]), Integers(DType::I64, &[4])]),
        case("mul", &[Integers(DType::I32, &[4]), Integers(DType::I32, &[4])]),
        case("select", &[Truths(&[4, 2]), Floats(&[4, 2]), Floats(&[2])]),
        case("cast to=f64", &[Floats(&[4, 2])]),
        case("cast to=i64", &[Floats(&[4, 2])]),
        case("cast to=bool", &[Special(&[4, 2])]),
        case("cast to=f32", &[Integers(DType::I64, &[4, 2])]),
        case("cast to=i32", &[Integers(DType::I64, &[4, 2])]),
        case("cast to=i64", &[Integers(DType::I32, &[4, 2])]),
        case("gated activation=silu", &[Floats(&[4, 2]), Floats(&[4, 2])]),
        case("gated activation=relu", &[Positive(&[4, 4]), Floats(&[4])]),
        case("unary_gradient function=silu", &[Floats(&[4, 2]), Floats(&[4, 2])]),
        case("unary_gradient function=relu", &[Floats(&[4, 2]), Floats(&[4, 2])]),
        case("gated_gradient activation=silu", &[Floats(&[4, 2]), Floats(&[4, 2]), Floats(&[4, 2])]),
    ]);
    cases
}

pub(super) fn products() -> Vec<Case> {
    vec![
        case("contract \"mk,kn->mn\"", &[Floats(&[4, 4]), Floats(&[4, 4])]),
        case("contract \"abk,kn->abn\"", &[Floats(&[2, 4, 4]), Floats(&[4, 2])]),
        case("contract \"bij,bkj->bik\"", &[Floats(&[2, 4, 2]), Floats(&[2, 2, 2])]),
        case("contract \"a,b->ba\"", &[Floats(&[4]), Floats(&[4])]),
        case("contract \"ab,ab->\"", &[Floats(&[4, 2]), Floats(&[4, 2])]),
        case("contract \"mk,kn->mn\"", &[Floats(&[4, 4]), Floats(&[4, 2]), Floats(&[4, 2])]),
        case("contract \"mk,kn->mn\"", &[Integers(DType::I64, &[4, 2]), Integers(DType::I64, &[2, 4])]),
        case(
            "attention scale=0.5 causal=false softcap=0.0 window=none",
            &[Floats(&[2, 4, 4, 2]), Floats(&[2, 2, 4, 2]), Floats(&[2, 2, 4, 2])],
        ),
        case(
            "attention scale=0.5 causal=true softcap=0.0 window=none",
            &[Floats(&[2, 2, 4, 2]), Floats(&[2, 1, 6, 2]), Floats(&[2, 1, 6, 4])],
        ),
        case(
            "attention scale=0.5 causal=false softcap=2.0 window=2",
            &[Floats(&[1, 2, 4, 2]), Floats(&[1, 2, 4, 2]), Floats(&[1, 2, 4, 2]), Floats(&[1, 1, 4, 4])],
        ),
        case(
            "attention scale=1.0 causal=false softcap=0.0 window=none",
            &[Floats(&[1, 4, 2, 2]), Floats(&[1, 2, 4, 2]), Floats(&[1, 2, 4, 2]), Truths(&[4, 2, 4])],
        ),
        case(
            "attention scale=1.0 causal=true softcap=0.0 window=none",
            &[
                Floats(&[2, 2, 4, 2]),
                Floats(&[2, 1, 4, 2]),
                Floats(&[2, 1, 4, 2]),
                Truths(&[2, 1, 1, 4]),
                Indices(2, &[2, 1, 4, 1]),
                Indices(2, &[2, 1, 1, 4]),
            ],
        ),
        case(
            "conv strides=[1] dilations=[1] before=[1] after=[0] groups=1",
            &[Floats(&[2, 4, 4]), Floats(&[4, 4, 2])],
        ),
        case(
            "conv strides=[2] dilations=[1] before=[0] after=[0] groups=1",
            &[Floats(&[2, 4, 4]), Floats(&[4, 4, 2]), Floats(&[4])],
        ),
        case(
            "conv strides=[1] dilations=[1] before=[0] after=[0] groups=2",
            &[Floats(&[2, 4, 4]), Floats(&[4, 2, 2]), Floats(&[4])],
        ),
        case(
            "conv strides=[1] dilations=[1] before=[0] after=[0] groups=4",
            &[Floats(&[1, 4, 4]), Floats(&[8, 1, 2])],
        ),
        case(
            "experts activation=silu active=2",
            &[Floats(&[4, 4]), Floats(&[4, 2]), Floats(&[2, 2, 4]), Floats(&[2, 2, 4]), Floats(&[2, 4, 2])],
        ),
        case(
            "experts activation=relu active=4",
            &[Floats(&[4, 2]), Floats(&[4, 4]), Floats(&[4, 4, 2]), Floats(&[4, 2, 4])],
        ),
        case("dequantize bits=4 block=16 columns=64", &[Bytes(&[4, 4, 8]), Floats(&[4, 4])]),
        case("dequantize bits=4 block=16 columns=64", &[Bytes(&[4, 4, 8]), Floats(&[4, 4]), Bytes(&[4, 2])]),
        case("dequantize bits=8 block=4 columns=16", &[Bytes(&[4, 4, 4]), Floats(&[4, 4]), Bytes(&[4, 4])]),
        case("dequantize bits=4 block=4 columns=14", &[Bytes(&[4, 4, 2]), Floats(&[4, 4]), Bytes(&[4, 2])]),
    ]
}

pub(super) fn product_gradients() -> Vec<Case> {
    let attention = |attributes: &str, mask: bool, [q, k, v]: [&[u64]; 3], masks: Vec<Elements<'_>>| {
        let op = format!("attention_gradient scale=0.5 {attributes} mask={mask}");
        let y = [q[0], q[1], q[2], v[3]];
        let statistics = [q[0], q[1], q[2], 2];
        let mut operands = vec![Small(q), Small(k), Small(v), Small(&y), Positive(&statistics), Small(&y)];
        operands.extend(masks);
        case(&op, &operands)
    };
    let plain = "causal=false softcap=0.0 window=none";
    let mut all = vec![
        case(
            "attention scale=0.5 causal=false softcap=0.0 window=none statistics=true",
            &[Floats(&[2, 4, 4, 2]), Floats(&[2, 2, 4, 2]), Floats(&[2, 2, 4, 2])],
        ),
        case(
            "attention_merge",
            &[Floats(&[4, 2, 4]), Positive(&[4, 2, 2]), Floats(&[4, 2, 4]), Positive(&[4, 2, 2])],
        ),
        attention(plain, false, [&[2, 4, 4, 2], &[2, 2, 4, 2], &[2, 2, 4, 4]], vec![]),
        attention(
            "causal=true softcap=0.0 window=none",
            false,
            [&[2, 2, 4, 2], &[2, 1, 8, 2], &[2, 1, 8, 1]],
            vec![],
        ),
        attention(
            "causal=false softcap=2.0 window=2",
            true,
            [&[1, 2, 4, 2], &[1, 2, 4, 2], &[1, 2, 4, 2]],
            vec![Small(&[1, 1, 4, 4])],
        ),
        attention(plain, true, [&[2, 4, 2, 2], &[2, 2, 4, 2], &[2, 2, 4, 2]], vec![Small(&[4, 1, 4])]),
        attention(plain, false, [&[1, 4, 2, 2], &[1, 2, 4, 2], &[1, 2, 4, 2]], vec![Truths(&[4, 2, 4])]),
        attention(
            plain,
            false,
            [&[2, 2, 4, 2], &[2, 1, 4, 2], &[2, 1, 4, 2]],
            vec![Indices(2, &[2, 1, 4, 1]), Indices(2, &[1, 1, 1, 4])],
        ),
        case(
            "conv_input_gradient strides=[1] dilations=[1] before=[1] after=[0] groups=1 spatial=[4]",
            &[Floats(&[4, 4, 2]), Floats(&[2, 4, 4])],
        ),
        case(
            "conv_input_gradient strides=[2] dilations=[1] before=[0] after=[0] groups=2 spatial=[8]",
            &[Floats(&[4, 2, 2]), Floats(&[2, 4, 4])],
        ),
        case(
            "conv_weight_gradient strides=[1] dilations=[1] before=[1] after=[0] groups=1 window=[2]",
            &[Floats(&[2, 4, 4]), Floats(&[2, 4, 4])],
        ),
        case(
            "conv_weight_gradient strides=[2] dilations=[1] before=[0] after=[0] groups=2 window=[2]",
            &[Floats(&[2, 4, 8]), Floats(&[2, 4, 4])],
        ),
    ];
    all.extend(experts::gradients());
    all
}

pub(super) fn reductions() -> Vec<Case> {
    vec![
        case("reduce_sum dims=[1]", &[Floats(&[4, 4])]),
        case("reduce_sum dims=[0,2]", &[Floats(&[2, 4, 4])]),
        case("reduce_sum dims=[0]", &[Integers(DType::I64, &[4, 4])]),
        case("reduce_mean dims=[1]", &[Floats(&[4, 4])]),
        case("reduce_mean dims=[0]", &[Integers(DType::I64, &[4, 4])]),
        case("reduce_max dims=[1]", &[Floats(&[4, 4])]),
        case("reduce_min dims=[0]", &[Floats(&[4, 4])]),
        case("reduce_product dims=[1]", &[Floats(&[4, 4])]),
        case("arg_extreme extreme=largest dim=1", &[Floats(&[4, 8])]),
        case("softmax dim=1", &[Floats(&[4, 4])]),
        case("log_softmax dim=0", &[Floats(&[4, 4])]),
        case("cum_sum dim=1 exclusive=false reverse=false", &[Floats(&[4, 4])]),
        case("cum_sum dim=0 exclusive=true reverse=true", &[Integers(DType::I64, &[4, 4])]),
        case("layer_norm dims=1 epsilon=1e-5", &[Floats(&[4, 2, 4]), Floats(&[4]), Floats(&[4])]),
        case("layer_norm dims=2 epsilon=1e-5", &[Floats(&[4, 2, 4]), Floats(&[2, 4])]),
        case("rms_norm dims=1 epsilon=1e-6", &[Floats(&[4, 4, 4]), Floats(&[4])]),
        case("rms_norm dims=1 epsilon=1e-6", &[Floats(&[4, 4]), Floats(&[4, 1])]),
        case("instance_norm epsilon=1e-5", &[Floats(&[2, 4, 4]), Floats(&[4]), Floats(&[4])]),
        case("cross_entropy ignored=-1", &[Floats(&[4, 4]), Indices(4, &[4])]),
        case("softmax_gradient dim=1", &[Floats(&[4, 4]), Floats(&[4, 4])]),
        case(
            "layer_norm_gradient dims=1 epsilon=1e-1",
            &[Floats(&[4, 2, 4]), Floats(&[4]), Floats(&[4, 2, 4])],
        ),
        case("rms_norm_gradient dims=1 epsilon=1e-1", &[Floats(&[4, 4]), Floats(&[4, 1]), Floats(&[4, 4])]),
        case("cross_entropy_gradient ignored=1", &[Floats(&[4, 4]), Indices(4, &[4]), Floats(&[4])]),
        case("top_k dim=1 k=2 extreme=largest", &[Floats(&[4, 4])]),
    ]
}

pub(super) fn movement() -> Vec<Case> {
    vec![
        case("reshape shape=[16]", &[Floats(&[4, 4])]),
        case("reshape shape=[6,4]", &[Floats(&[4, 6])]),
        case("reshape shape=[2,6]", &[Floats(&[3, 4])]),
        case("reshape shape=[2,4,1,4]", &[Floats(&[8, 4])]),
        case("reshape shape=[4,8,2]", &[Floats(&[8, 8])]),
        case("transpose permutation=[2,0,1]", &[Floats(&[2, 4, 4])]),
        case("transpose permutation=[1,0]", &[Truths(&[4, 4])]),
        case("expand shape=[4,4]", &[Floats(&[1, 4])]),
        case("expand shape=[4,2,4]", &[Floats(&[2, 1])]),
        case("concat dim=1", &[Floats(&[4, 4]), Floats(&[4, 4])]),
        case("concat dim=0", &[Floats(&[4, 2]), Floats(&[8, 2])]),
        case("concat dim=1", &[Floats(&[4, 1]), Floats(&[4, 3])]),
        case("slice starts=[0,4] steps=[1,1] sizes=[4,4]", &[Floats(&[4, 12])]),
        case("slice starts=[0,0] steps=[1,1] sizes=[4,4]", &[Floats(&[4, 12])]),
        case("slice starts=[1,0] steps=[2,1] sizes=[2,4]", &[Floats(&[4, 4])]),
        case("slice starts=[3,0] steps=[-1,1] sizes=[4,4]", &[Floats(&[4, 4])]),
        case("slice starts=[1] steps=[1] sizes=[4]", &[Floats(&[8])]),
        case("slice starts=[9] steps=[2] sizes=[4]", &[Floats(&[16])]),
        case("pad before=[1,0] after=[1,0] edge=constant(0.0)", &[Floats(&[4, 4])]),
        case("pad before=[1,0] after=[3,0] edge=constant(1.5)", &[Floats(&[4, 4])]),
        case("pad before=[-1,0] after=[-1,0] edge=constant(1.5)", &[Floats(&[4, 4])]),
        case("pad before=[1] after=[3] edge=reflect", &[Floats(&[4])]),
        case("pad before=[1] after=[3] edge=repeat", &[Floats(&[4])]),
        case("pad before=[3] after=[3] edge=wrap", &[Floats(&[4])]),
        case("triangle triangle=upper diagonal=0", &[Floats(&[4, 4])]),
        case("triangle triangle=lower diagonal=1", &[Floats(&[2, 4, 4])]),
        case("rotary pairing=halves", &[Floats(&[2, 4, 8]), Floats(&[4, 8]), Floats(&[4, 8])]),
        case("rotary pairing=neighbours", &[Floats(&[4, 8]), Floats(&[8]), Floats(&[8])]),
        case("rotary_gradient pairing=halves", &[Floats(&[2, 4, 8]), Floats(&[4, 8]), Floats(&[4, 8])]),
        case("rotary_gradient pairing=neighbours", &[Floats(&[4, 8]), Floats(&[8]), Floats(&[8])]),
        case(
            "resize shape=[1,2,8] scales=[1.0,1.0,2.0] half_pixel=true interpolation=linear",
            &[Floats(&[1, 2, 4])],
        ),
        case(
            "resize shape=[4,8] scales=[1.0,2.0] half_pixel=false interpolation=nearest_floor",
            &[Floats(&[4, 4])],
        ),
    ]
}

pub(super) fn indexing() -> Vec<Case> {
    let mut cases = vec![
        case("gather dim=0", &[Floats(&[8, 4]), Indices(8, &[4])]),
        case("gather dim=1", &[Floats(&[2, 4, 2]), Indices(4, &[2, 4])]),
        case("gather dim=0", &[Truths(&[8, 4]), Indices(8, &[4])]),
        case("gather dim=0", &[Integers(DType::I64, &[8]), Indices(8, &[4])]),
        case("gather_gradient dim=0 extent=8", &[Indices(8, &[4]), Floats(&[4, 4])]),
        case("gather_gradient dim=1 extent=4", &[Indices(4, &[2, 4]), Floats(&[2, 2, 4, 2])]),
        case("gather_gradient dim=0 extent=8", &[Indices(8, &[4]), Integers(DType::I64, &[4])]),
        case("gather_elements dim=0", &[Floats(&[4, 4]), Indices(4, &[4, 4])]),
        case("gather_elements dim=1", &[Floats(&[4, 4]), Indices(4, &[2, 4])]),
        case("gather_nd batch_dims=0", &[Floats(&[4, 4, 2]), Indices(4, &[4, 2])]),
        case("gather_nd batch_dims=1", &[Floats(&[4, 4, 2]), Indices(4, &[4, 2, 1])]),
    ];
    for how in ["replace", "add", "mul", "max", "min"] {
        let operands = [Floats(&[4, 4]), Indices(4, &[4, 4]), Floats(&[4, 4])];
        cases.push(case(&format!("scatter_elements dim=0 scatter={how}"), &operands));
        let operands = [Floats(&[4, 4]), Indices(4, &[2, 2]), Floats(&[2, 2])];
        cases.push(case(&format!("scatter_elements dim=1 scatter={how}"), &operands));
        let operands = [Floats(&[4, 4]), Indices(4, &[4, 1]), Floats(&[4, 4])];
        cases.push(case(&format!("scatter_nd scatter={how}"), &operands));
    }
    cases
}

pub(super) fn rest() -> Vec<Case> {
    vec![
        case("constant type=f32[4,2] data=[1.0,2.0,3.0,4.0,5.0,6.0,7.0,8.0]", &[]),
        case("constant type=bool[4] data=[true,false,false,true]", &[]),
        case("fill type=f32[4,4] value=1.5", &[]),
        case("iota dtype=i64 length=8 start=3.0 step=2.0", &[]),
        case("iota dtype=f32 length=4 start=1.0 step=0.5", &[]),
        case("dropout ratio=0.5 seed=3", &[Positive(&[4, 4])]),
        case("dropout ratio=0.5 seed=3", &[Positive(&[4, 4]), Integers(DType::I64, &[])]),
        case("round_stochastically seed=3", &[Thirds(&[4, 4])]),
        case("round_stochastically seed=3", &[Thirds(&[4, 4]), Integers(DType::I64, &[])]),
        case("update_sgd decay=0.1", &[Floats(&[4, 4]), Floats(&[4, 4]), Positive(&[]), Positive(&[])]),
        case(
            "update_momentum momentum=0.9 decay=0.1",
            &[Floats(&[4, 4]), Floats(&[4, 4]), Floats(&[4, 4]), Positive(&[]), Positive(&[])],
        ),
        case(
            "update_adamw beta1=0.9 beta2=0.95 epsilon=1e-8 decay=0.1",
            &[
                Floats(&[4, 2]),
                Floats(&[4, 2]),
                Floats(&[4, 2]),
                Positive(&[4, 2]),
                Positive(&[]),
                Positive(&[]),
                Positive(&[]),
            ],
        ),
        case(REGION, &[Floats(&[4, 4])]),
        case(DYNAMIC, &[Floats(&[16]), Floats(&[4, 4])]),
    ]
}

/// A region in which every result depends on every operand.
const REGION: &str = "region body={
    takes 1
    %1 = softmax dim=1 %0
    %2 = softmax dim=0 %1
    return %2 : f32[4,4]
}";

/// A region whose shapes depend on data.
const DYNAMIC: &str = "region body={
    takes 2
    %2 = dynamic_shape %1
    %3 = dynamic_reshape zero_is_zero=false %0 %2
    %4 = mul %1 %3
    %5 = softmax dim=1 %4
    %6 = softmax dim=0 %5
    return %6 : f32[4,4]
}";
