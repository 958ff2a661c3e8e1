//! Times of operations on the blocks of a device.

use planner_ir::{DType, Scatter};

use super::*;
use crate::known::Known;
use crate::machine::shipped::named;
use crate::machine::{Packing, Turned};
use crate::units::BytesPerSecond;

/// Of causal attention a thread does 64 queries at a time, with all keys that one of them sees.
#[test]
fn scores_are_computed_for_stretches_of_queries() {
    let of = |queries: u64, keys: u64, seen: Seen| {
        let precision = Precision::F32;
        let it = Attention { heads: 1, queries, keys, seen, key_size: 8, value_size: 8, precision };
        keys_computed(&it)
    };
    // Two stretches of 128: 64 and 128 keys.
    assert_eq!(of(128, 128, Seen::half(128)), 96);
    assert_eq!(of(64, 64, Seen::half(64)), 64);
    assert_eq!(of(8, 8, Seen::half(8)), 8);
    assert_eq!(of(128, 128, Seen::all(128)), 128);
}

/// The keys that queries see are those that the kernel gives them, one by one, an own key being half.
#[test]
fn keys_are_seen_as_far_as_queries_stand_and_windows_reach() {
    for (queries, keys, of) in [(5, 5, 5), (1, 9, 9), (3, 9, 9), (9, 9, 5), (4, 3, 12), (6, 2, 6)] {
        for window in [None, Some(1), Some(2), Some(4), Some(20)] {
            let own = (0..queries).map(|it: u64| it + of).filter(|it| *it >= queries).map(|it| it - queries);
            let bound = exact(window.map_or(keys, |it| it.min(keys)));
            let pairs: f64 = own.map(|own| (exact(own) + 0.5).min(bound)).sum();
            let seen = Seen::earlier([queries, keys], of, window);
            let apart = seen.average * exact(queries) - pairs;
            assert!(apart.abs() < 1e-9, "{queries} of {keys} of {of}, {window:?}: {seen:?}, {pairs}");
        }
    }
}

/// A product of 4 bits is as large as its numbers, of which a byte has two, and has the rate of 4 bits; where there
/// is none, its operands are made wide first.
#[test]
fn products_of_4_bits_have_their_own_rate() {
    let [m, k, n] = [0, 1, 2].map(Label);
    let contract = Contract { left: vec![m, k], right: vec![k, n], result: vec![m, n] };
    let size = 8192;
    let one = Type::new(DType::F32, []);
    let result = Type::new(DType::BF16, [size, size]);
    let four = [
        Type::new(DType::U8, [size, size / 2]),
        Type::new(DType::U8, [size / 2, size]),
        Type::new(DType::F8E4M3FN, [size, size / 16]),
        Type::new(DType::F8E4M3FN, [size / 16, size / 16]),
        one.clone(),
        one.clone(),
    ];
    let eight = Type::new(DType::F8E4M3FN, [size, size]);
    let eight = [eight.clone(), eight, one.clone(), one];
    assert_eq!(product_sizes(&contract, &four), [1, size, size, size]);
    let op = Op::ScaledContract { contract, to: DType::BF16 };
    let results = std::slice::from_ref(&result);
    let price = |machine: &str, operands: &[Type]| {
        let device = named(machine).unwrap().device;
        let rows = Rows::Together;
        let work = Work { op: &op, whole: operands, operands, results, rows };
        let found = operation(&device, &work).0;
        assert!(least(&device, &op, operands, results).0 <= found, "{machine}");
        found
    };
    for machine in ["b200-180g-1x", "gb200-186g-1x", "b300-288g-1x", "gb300-288g-1x", "rtx-pro-6000-96g-1x"] {
        let [four, eight] = [price(machine, &four), price(machine, &eight)];
        assert!(0.4 * eight < four && four < 0.85 * eight, "{machine}: {four}, in 8 bits {eight}");
    }
    assert!(price("h100-80g-1x", &four) > price("h100-80g-1x", &eight));
}

/// Of causal attention what is computed is priced: behind a cache, of a stretch, within a window, of stripes.
#[test]
fn causal_attention_is_priced_by_the_keys_that_are_seen() {
    let price =
        |causal: bool, window: Option<u64>, [queries, keys]: [u64; 2], whole: [u64; 2], rows: Rows| {
            let attributes = planner_ir::Attention {
                scale: planner_ir::Real(1.0),
                causal,
                softcap: planner_ir::Real(0.0),
                window,
                blind: planner_ir::Blind::Zero,
                sinks: false,
                statistics: false,
            };
            let of = |[queries, keys]: [u64; 2]| {
                let [q, kv] = [queries, keys].map(|it| Type::new(DType::F32, [1, 3, it, 8]));
                [q, kv.clone(), kv]
            };
            let [operands, whole] = [of([queries, keys]), of(whole)];
            let op = Op::Attention(attributes);
            let results = &[operands[0].clone()];
            attention(&attributes, &Work { op: &op, whole: &whole, operands: &operands, results, rows })
                .seen
                .average
        };
    let (together, spread) = (Rows::Together, Rows::Spread);
    let alike = |causal, window, sizes, rows| price(causal, window, sizes, sizes, rows);
    let near =
        |found: f64, expected: f64| assert!((found - expected).abs() < 1e-9, "{found}, not {expected}");
    near(alike(true, None, [16, 16], together), 8.0);
    near(alike(false, None, [16, 16], together), 16.0);
    // A token, and some, behind a cache.
    near(alike(true, None, [1, 16], together), 15.5);
    near(alike(true, None, [4, 16], together), 14.0);
    near(alike(true, Some(4), [4, 16], together), 4.0);
    // The last queries of all, with all keys and with the first.
    near(price(true, None, [4, 16], [16, 16], together), 14.0);
    near(price(true, None, [4, 4], [16, 16], together), 4.0);
    near(price(true, None, [16, 4], [16, 16], together), 3.5);
    // Stripes of queries, with all keys and with stripes of them.
    near(price(true, None, [4, 16], [16, 16], spread), 8.0);
    near(price(true, None, [4, 4], [16, 16], spread), 2.0);
    near(alike(true, Some(4), [16, 16], together), 3.5);
    near(price(true, Some(4), [4, 16], [16, 16], together), 4.0);
}

/// A thread begins a product for each head and each stretch of queries: two of them, and three.
#[test]
fn attention_of_a_thread_begins_products_for_stretches_of_queries() {
    let mut device = named("cpu-1x").expect("is shipped").device;
    let known = |seconds: f64| Known::new(Seconds(seconds), "made").expect("is a time");
    let rate = Known::new(BytesPerSecond(1e10), "made").expect("is a rate");
    let cache = Known::new(Bytes(1 << 30), "made").expect("is a size");
    device.products.packing = Some(Packing { cache, rate, turned: None });
    device.passes.insert(Pass::Score, Pace { start: known(1e-9), element: known(1e-12) });
    let attributes = planner_ir::Attention {
        scale: planner_ir::Real(1.0),
        causal: false,
        softcap: planner_ir::Real(0.0),
        window: None,
        blind: planner_ir::Blind::Zero,
        sinks: false,
        statistics: false,
    };
    let op = Op::Attention(attributes);
    let mut of = |start: f64, queries: u64| {
        device.products.start = known(start);
        let q = Type::new(DType::F32, [1, 3, queries, 8]);
        let kv = Type::new(DType::F32, [1, 3, 64, 8]);
        let operands = [q.clone(), kv.clone(), kv];
        let work =
            Work { op: &op, whole: &operands, operands: &operands, results: &[q], rows: Rows::Together };
        operation(&device, &work).0
    };
    for (queries, products) in [(64, 6.0), (128, 12.0), (160, 18.0)] {
        let more = of(2e-3, queries) - of(1e-3, queries);
        assert!((more / (products * 1e-3) - 1.0).abs() < 1e-9, "{queries}: {more}");
    }
}

/// The square of the norm of a gradient is read once.
#[test]
fn a_product_of_two_vectors_takes_as_long_as_reading_them() {
    let device = &named("h100-80g-8x").expect("is shipped").device;
    let label = Label(0);
    let op = Op::Contract(Contract { left: vec![label], right: vec![label], result: vec![] });
    let (vector, sum) = (Type::new(DType::F32, [1 << 28]), Type::new(DType::F32, []));
    let operands = [vector.clone(), vector];
    let time = operation(
        device,
        &Work { op: &op, whole: &operands, operands: &operands, results: &[sum], rows: Rows::Together },
    );
    let read = 2.0 * 4.0 * exact(1 << 28) / 3.35e12;
    assert!((1.0..1.2).contains(&(time.0 / read)), "{} s, {read} s at the peak", time.0);
}

/// A weight that lies as `[columns, sums]` is turned before it is multiplied, and so is every part of it.
#[test]
fn a_thread_takes_longer_for_a_weight_that_lies_across() {
    let mut device = named("cpu-1x").expect("is shipped").device;
    let rate = |rate: f64| Known::new(BytesPerSecond(rate), "made").expect("is a rate");
    let cache = Known::new(Bytes(1 << 30), "made").expect("is a size");
    let turned = Some(Turned { rate: rate(1e10), aliased: rate(1e9) });
    device.products.packing = Some(Packing { cache, rate: rate(1e10), turned });
    let [row, column, inner] = [0, 1, 2].map(Label);
    let of = |right: [Label; 2], [m, n, k]: [u64; 3]| {
        let op = Op::Contract(Contract {
            left: vec![row, inner],
            right: right.to_vec(),
            result: vec![row, column],
        });
        let shape = right.map(|it| if it == inner { k } else { n });
        let operands = [Type::new(DType::F32, [m, k]), Type::new(DType::F32, shape)];
        let results = &[Type::new(DType::F32, [m, n])];
        let rows = Rows::Together;
        operation(&device, &Work { op: &op, whole: &operands, operands: &operands, results, rows }).0
    };
    for rows in [8, 64] {
        let more = of([column, inner], [rows, 100, 300]) - of([inner, column], [rows, 100, 300]);
        assert!((more / (4.0 * 100.0 * 300.0 / 1e10) - 1.0).abs() < 1e-9, "{more}");
    }
    // A product with a vector reads the matrix as it lies.
    let [turned, read] = [[column, inner], [inner, column]].map(|it| of(it, [1, 100, 300]));
    assert!((turned - read).abs() < 1e-15, "{turned} {read}");
}

/// Biases of experts are added to products: they are none.
#[test]
fn biases_of_experts_are_no_products() {
    let device = &named("h100-80g-8x").expect("is shipped").device;
    let of = |shape: &[u64]| Type::new(DType::BF16, shape.to_vec());
    let (rows, up, bias) = (of(&[4096, 64]), of(&[8, 128, 64]), of(&[8, 128]));
    let plain = vec![rows.clone(), of(&[4096, 8]), up.clone(), up, of(&[8, 64, 128])];
    let biased = [&plain[..], &[bias.clone(), bias]].concat();
    let (activation, active) = (planner_ir::Unary::Silu, 2);
    let limit = Some(planner_ir::Real(7.0));
    let price = |op: &Op, operands: &[Type], results: &[Type]| {
        operation(device, &Work { op, whole: operands, operands, results, rows: Rows::Together })
    };
    for (op, ends) in [
        (Op::Experts { activation, limit, active }, vec![]),
        (Op::ExpertsGradient { activation, limit, active, adds: vec![] }, vec![rows.clone()]),
    ] {
        let [plain, biased] = [&plain, &biased].map(|it| [&it[..], &ends].concat());
        let made = [rows.clone()];
        assert_eq!(price(&op, &plain, &made), price(&op, &biased, &made));
        assert_eq!(least(device, &op, &plain, &made), least(device, &op, &biased, &made));
    }
}

/// A step of few tokens reads the weights of the experts that these go to, in one product for each weight; more tokens
/// take longer, and no longer than where each reads its own.
#[test]
fn few_tokens_take_what_their_experts_weigh() {
    let device = &named("h100-80g-8x").expect("is shipped").device;
    let (hidden, inner, experts, active) = (2048, 768, 128, 8);
    let of = |shape: &[u64]| Type::new(DType::BF16, shape.to_vec());
    let price = |tokens: u64| {
        let (rows, up) = (of(&[tokens, hidden]), of(&[experts, inner, hidden]));
        let operands = [rows.clone(), of(&[tokens, experts]), up.clone(), up, of(&[experts, hidden, inner])];
        let op = Op::Experts { activation: planner_ir::Unary::Silu, limit: None, active };
        let (results, rows) = ([rows], Rows::Together);
        operation(device, &Work { op: &op, whole: &operands, operands: &operands, results: &results, rows }).0
    };
    let reading = |experts: u64| {
        let weights = Bytes(3 * experts * hidden * inner * 2);
        3.0 * device.products.start.value.0 + exact(weights.0) / compute::memory_rate(device)
    };
    let one = price(1);
    assert!(one >= reading(active) && one < 1.5 * reading(active), "{one} s as {} s", reading(active));
    let all = price(4096);
    assert!(all >= reading(experts), "{all} s as {} s", reading(experts));
    // Measured of servers' kernels (ms): ai-dynamo/aiconfigurator at 095f58a, `moe`, h100_sxm, bfloat16, balanced.
    for (tokens, measured) in [(256, 0.45210), (3072, 0.76156), (6144, 1.1593)] {
        let ratio = 1e3 * price(tokens) / measured;
        assert!((0.7..1.4).contains(&ratio), "{tokens}: {ratio} of what is measured");
    }
    for tokens in 1..256 {
        let [fewer, more] = [tokens, tokens + 1].map(price);
        assert!(fewer <= more && more <= 2.0 * fewer, "{tokens}: {fewer} and {more} s");
    }
}

/// A gradient of weights that is added to a sum takes longer, whatever others do, and no longer than to convert it and to
/// add it by operations of their own.
#[test]
fn gradients_of_experts_that_add_take_no_longer_than_sums_of_their_own() {
    for name in ["h100-80g-8x", "a100-80g-8x", "v100-16g-8x", "cpu-2x"] {
        let device = &named(name).expect("is shipped").device;
        for [tokens, hidden, inner, experts, active] in
            [[4096, 4096, 14336, 8, 2], [4096, 7168, 2048, 8, 8], [64, 1024, 512, 16, 1], [1, 64, 64, 4, 1]]
        {
            let of = |dtype: DType, shape: [u64; 3]| Type::new(dtype, shape);
            let (rows, gates) =
                (Type::new(DType::BF16, [tokens, hidden]), Type::new(DType::BF16, [tokens, experts]));
            let weights = [[experts, inner, hidden], [experts, inner, hidden], [experts, hidden, inner]];
            let weights = weights.map(|shape| of(DType::BF16, shape));
            let price = |adds: &[usize]| {
                let (activation, limit) = (planner_ir::Unary::Silu, None);
                let op = Op::ExpertsGradient { activation, limit, active, adds: adds.to_vec() };
                let wide =
                    |it: &usize| of(DType::F32, weights[it - 2].shape.clone().try_into().expect("three"));
                let given =
                    [&[rows.clone(), gates.clone()][..], &weights, std::slice::from_ref(&rows)].concat();
                let operands = [given, adds.iter().map(wide).collect()].concat();
                let results = op.infer(&operands).expect("is one");
                let (rows, whole) = (Rows::Together, &operands);
                let taken =
                    operation(device, &Work { op: &op, whole, operands: &operands, results: &results, rows });
                assert!(least(device, &op, &operands, &results) <= taken);
                taken.0
            };
            let alone = price(&[]);
            let mut sum = alone;
            for (result, type_) in (2..).zip(&weights) {
                let more = price(&[result]) - alone;
                let wide = Type { dtype: DType::F32, ..type_.clone() };
                let one = |op: &Op, operands: &[Type]| {
                    let (results, rows) = (std::slice::from_ref(&wide), Rows::Together);
                    operation(device, &Work { op, whole: operands, operands, results, rows }).0
                };
                let apart = one(&Op::Cast(DType::F32), std::slice::from_ref(type_))
                    + one(&Op::Binary(planner_ir::Binary::Add), &[wide.clone(), wide.clone()]);
                assert!((0.0..apart).contains(&more), "{name}: {more} s more, {apart} s apart");
                sum += more;
            }
            let all = price(&[2, 3, 4]);
            assert!((all / sum - 1.0).abs() < 1e-12, "{name}: {all} s, each by itself {sum} s");
            assert!(experts > 8 || all > alone, "{name}: {all} s as {alone} s");
        }
    }
}

/// What is written over something takes as long however large that is, and less than what is made anew.
#[test]
fn what_is_written_in_place_takes_what_is_written() {
    let device = named("h100-80g-8x").expect("is shipped").device;
    let of = |places: u64, scatter: Scatter| {
        let entries = Type::new(DType::BF16, [8, 8, places, 128]);
        let given = [8, 8, 1, 128];
        let operands = [entries.clone(), Type::new(DType::I64, given), Type::new(DType::BF16, given)];
        let (op, results) = (Op::ScatterElements { dim: 2, scatter }, [entries]);
        let work =
            Work { op: &op, whole: &operands, operands: &operands, results: &results, rows: Rows::Together };
        operation(&device, &work)
    };
    assert_eq!(of(1024, Scatter::Write), of(65_536, Scatter::Write));
    assert!(10.0 * of(65_536, Scatter::Write) < of(65_536, Scatter::Replace));
}
