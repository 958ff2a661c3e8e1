//! Times of operations on the blocks of a device.

use planner_ir::DType;

use super::*;
use crate::known::Known;
use crate::machine::shipped::named;
use crate::machine::{Packing, Turned};
use crate::units::BytesPerSecond;

/// Of causal attention a thread does 64 queries at a time, with all keys that one of them sees.
#[test]
fn scores_are_computed_for_stretches_of_queries() {
    let of = |queries: u64, keys: u64, mask: Mask| {
        let precision = Precision::F32;
        let it = Attention { heads: 1, queries, keys, key_size: 8, value_size: 8, mask, precision };
        keys_computed(&it)
    };
    // Two stretches of 128: 64 and 128 keys.
    assert_eq!(of(128, 128, Mask::Causal), 96);
    assert_eq!(of(64, 64, Mask::Causal), 64);
    assert_eq!(of(8, 8, Mask::Causal), 8);
    assert_eq!(of(128, 128, Mask::Full), 128);
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
