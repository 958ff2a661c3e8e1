//! Named partitions in time.

use std::collections::BTreeMap;

use kernels::Array;
use planner_ir::{
    Contract, Conv, DType, Digit, Label, Layout, LoopId, Loops, Mesh, Move, Op, Partition, Type, Unary,
    ValueId, parse_layout, parse_partition,
};

use super::sketch::Sketch;
use super::{check, programs};
use crate::Session;

const DTYPES: [DType; 3] = [DType::F32, DType::F64, DType::BF16];

fn contract(left: &str, right: &str, result: &str) -> Op {
    let labels = |text: &str| text.bytes().map(|it| Label(it - b'a')).collect();
    Op::Contract(Contract { left: labels(left), right: labels(right), result: labels(result) })
}

/// The three products of a linear operation, by whose gradient they are: Y, X and W.
fn phase(of: char) -> Op {
    match of {
        'Y' => contract("mk", "kn", "mn"),
        'X' => contract("mn", "kn", "mk"),
        _ => contract("mk", "mn", "kn"),
    }
}

/// One of the products of a linear operation with m, k and n of these extents, partitioned as the
/// text says: what all ranks together receive of the left and the right operand and the result.
fn moved(mesh: &Mesh, dtype: DType, [m, k, n]: [u64; 3], of: char, text: &str) -> [u64; 3] {
    let mut sketch = Sketch::new(mesh);
    let x = Type::new(dtype, [m, k]);
    let w = Type::new(dtype, [k, n]);
    let y = Type::new(dtype, [m, n]);
    let [left, right] = match of {
        'Y' => [x, w],
        'X' => [y, w],
        _ => [x, y],
    };
    let op = phase(of);
    let result = op.infer(&[left.clone(), right.clone()]).unwrap();
    let loops = op.loops(&[left.clone(), right.clone()], &result);
    let partition = parse_partition(mesh, text).unwrap();
    let left = sketch.input("left", left, partition.operand(&loops, 0).dims);
    let right = sketch.weight("right", right, partition.operand(&loops, 1).dims);
    let made = partition.result(&loops, 0);
    let y = sketch.node(op, &[left, right], partition)[0];
    assert!(sketch.plan.transfers.is_empty());
    sketch.output("result", y, made.dims, &mut |_, _, _, _| None);
    let outcome = check(&sketch.plan);
    let bytes = |what: lower::Moving| {
        let of = |origin: &lower::Origin| matches!(*origin, lower::Origin::Motion { moving, .. } if moving == what);
        outcome.received.iter().filter(|it| of(&it.0)).map(|it| it.1).sum()
    };
    [lower::Moving::Operand(0), lower::Moving::Operand(1), lower::Moving::Result(0)].map(bytes)
}

/// RTP: weights rotate; in the backward pass so do their gradients, which collect addends.
#[test]
fn rotated_weights() {
    for (s, dtype) in [2, 3, 4].into_iter().flat_map(|s| DTYPES.map(|dtype| (s, dtype))) {
        let mesh = Mesh::of_sizes(&[s]);
        let (m, k, n) = (2 * s, 3 * s, s);
        let check = |of: char, text: &str| {
            moved(&mesh, dtype, [m, k, n], of, &format!("{s} steps {}", text.replace('s', &s.to_string())))
        };
        let w = (s - 1) * k * n * dtype.bytes();
        let sum = (s - 1) * k * n * dtype.accumulated().bytes();
        assert_eq!(check('Y', "[a,-,(a-@t:s)]"), [0, w, 0]);
        assert_eq!(check('Y', "[a,(a-@t:s),-]"), [0, w, 0]);
        assert_eq!(check('X', "[a,(a+@t:s),-]"), [0, w, 0]);
        assert_eq!(check('X', "[a,-,(a+@t:s)]"), [0, w, 0]);
        assert_eq!(check('W', "[a,-,(a+@t+1:s)]"), [0, 0, sum]);
        assert_eq!(check('W', "[a,(a+@t+1:s),-]"), [0, 0, sum]);
    }
}

/// Rows of x come around while columns of w stay; rows of y go around and collect addends.
#[test]
fn ring_gather_and_ring_scatter() {
    for (s, dtype) in [2, 3, 4].into_iter().flat_map(|s| DTYPES.map(|dtype| (s, dtype))) {
        let mesh = Mesh::of_sizes(&[s]);
        let (m, k, n) = (2 * s, s, 3 * s);
        let check = |text: &str| {
            moved(&mesh, dtype, [m, k, n], 'Y', &format!("{s} steps {}", text.replace('s', &s.to_string())))
        };
        assert_eq!(check("[(a+@t:s),-,a]"), [(s - 1) * m * k * dtype.bytes(), 0, 0]);
        assert_eq!(check("[(a+@t+1:s),a,-]"), [0, 0, (s - 1) * m * n * dtype.accumulated().bytes()]);
    }
}

/// As many bytes as one way, half of them the other; of two devices both neighbours are one.
#[test]
fn half_of_each_block_goes_the_other_way() {
    for (s, dtype) in [2, 3, 4].into_iter().flat_map(|s| DTYPES.map(|dtype| (s, dtype))) {
        let mesh = Mesh::of_sizes(&[s]);
        let (m, k, n) = (2 * s, 4 * s, 6 * s);
        let check = |of: char, text: &str| {
            let text = format!("{s} steps both ways {}", text.replace('s', &s.to_string()));
            moved(&mesh, dtype, [m, k, n], of, &text)
        };
        let operand = |elements: u64| (s - 1) * elements * dtype.bytes();
        let sum = |elements: u64| (s - 1) * elements * dtype.accumulated().bytes();
        assert_eq!(check('Y', "[a,-,(a-@t:s)]"), [0, operand(k * n), 0]);
        assert_eq!(check('Y', "[a,(a-@t:s),-]"), [0, operand(k * n), 0]);
        assert_eq!(check('Y', "[(a+@t:s),-,a]"), [operand(m * k), 0, 0]);
        assert_eq!(check('Y', "[(a+@t+1:s),a,-]"), [0, 0, sum(m * n)]);
        assert_eq!(check('X', "[a,(a+@t:s),-]"), [0, operand(k * n), 0]);
        assert_eq!(check('W', "[a,(a+@t+1:s),-]"), [0, 0, sum(k * n)]);
    }
    let grid = Mesh::of_sizes(&[3, 3]);
    let square = moved(&grid, DType::F32, [6, 12, 18], 'Y', "3 steps both ways [a,(a+b+@t:3),b]");
    assert_eq!(square, [2 * 6 * 12 * 4, 2 * 12 * 18 * 4, 0]);
}

/// RTP with one slot: in all phases the same bits and bytes as with two, in chunks.
#[test]
fn blocks_come_over_those_that_were_worked_on() {
    let trials = [2, 3, 4].into_iter().flat_map(|s| DTYPES.map(|dtype| (s, dtype)));
    for ((s, dtype), ways) in trials.flat_map(|it| ["", "both ways "].map(|ways| (it, ways))) {
        let mesh = Mesh::of_sizes(&[s]);
        let (m, k, n) = (2 * s, 6 * s, 4 * s);
        let check = |of: char, text: &str| {
            let text = format!("{s} steps {ways}in place {}", text.replace('s', &s.to_string()));
            moved(&mesh, dtype, [m, k, n], of, &text)
        };
        let operand = |elements: u64| (s - 1) * elements * dtype.bytes();
        let sum = |elements: u64| (s - 1) * elements * dtype.accumulated().bytes();
        assert_eq!(check('Y', "[a,-,(a-@t:s)]"), [0, operand(k * n), 0]);
        assert_eq!(check('Y', "[a,(a-@t:s),-]"), [0, operand(k * n), 0]);
        assert_eq!(check('Y', "[(a+@t:s),-,a]"), [operand(m * k), 0, 0]);
        assert_eq!(check('Y', "[(a+@t+1:s),a,-]"), [0, 0, sum(m * n)]);
        assert_eq!(check('X', "[a,(a+@t:s),-]"), [0, operand(k * n), 0]);
        assert_eq!(check('W', "[a,(a+@t+1:s),-]"), [0, 0, sum(k * n)]);
    }
}

/// PrimePar's primitive: two of three rotate in each phase, each (s - 1)/s of it to each device
/// of a line of s.
#[test]
fn square() {
    for (s, dtype) in [(2, DType::F32), (2, DType::BF16), (3, DType::F64), (3, DType::F32)] {
        let mesh = Mesh::of_sizes(&[s, s]);
        let (m, k, n) = (s, 2 * s, 3 * s);
        let check = |of: char, text: &str| {
            moved(&mesh, dtype, [m, k, n], of, &format!("{s} steps {}", text.replace('s', &s.to_string())))
        };
        let bytes = |elements: u64| (s - 1) * elements * dtype.bytes();
        let (x, w, y) = (bytes(m * k), bytes(k * n), bytes(m * n));
        assert_eq!(check('Y', "[a,(a+b+@t:s),b]"), [x, w, 0]);
        assert_eq!(check('X', "[a,(b+@t:s),(a+b:s)]"), [y, w, 0]);
        assert_eq!(check('W', "[(a+@t:s),(a+b:s),b]"), [x, y, 0]);
    }
}

/// A chain of squares: what the first makes, the second takes, and all at rest stays as it is.
#[test]
fn squares_in_a_chain_move_nothing_between_them() {
    for s in [2, 3] {
        let mesh = Mesh::of_sizes(&[s, s]);
        let mut sketch = Sketch::new(&mesh);
        let type_ = || Type::new(DType::F32, [2 * s, 2 * s]);
        let layout = |text: &str| parse_layout(&mesh, &text.replace('s', &s.to_string())).unwrap().dims;
        let x = sketch.input("x", type_(), layout("[a,(a+b:s)]"));
        let up = sketch.weight("up", type_(), layout("[(a+b:s),b]"));
        let down = sketch.weight("down", type_(), layout("[b,(a+b:s)]"));
        let partition = |text: &str| {
            parse_partition(&mesh, &format!("{s} steps {}", text.replace('s', &s.to_string()))).unwrap()
        };
        let hidden = sketch.node(phase('Y'), &[x, up], partition("[a,(a+b+@t:s),b]"))[0];
        let y = sketch.node(phase('Y'), &[hidden, down], partition("[a,(b+@t:s),(a+b:s)]"))[0];
        assert!(sketch.plan.transfers.is_empty());
        // And back to plain blocks, by a permutation in which one row keeps what it has.
        let plain = layout("[a,b]");
        let mut permute = Some(Move::Permute { dims: plain.clone() });
        sketch.output("y", y, plain, &mut |_, _, _, _| permute.take());
        let outcome = check(&sketch.plan);
        let block = 2 * 2 * 4;
        assert_eq!(outcome.received.last().map(|it| it.1), Some((s - 1) * s * block));
    }
}

/// SUMMA and Tesseract, with different data along the depth.
#[test]
fn streamed() {
    for (q, d, dtype) in
        [(2, 1, DType::F32), (3, 1, DType::F32), (2, 2, DType::F64), (2, 3, DType::F32), (2, 2, DType::BF16)]
    {
        let (m, k, n) = (2 * q * d, q, 3 * q);
        let mesh = Mesh::parse(&format!("r={q},c={q},d={d}")).unwrap();
        let rows = if d == 1 { "r" } else { "d.r" };
        let check = |of: char, text: &str| {
            let text = text.replace("rows", rows).replace('q', &q.to_string());
            moved(&mesh, dtype, [m, k, n], of, &format!("{q} steps {text} streams r,c"))
        };
        let bytes = |elements: u64| (q - 1) * elements * dtype.bytes();
        let (x, w) = (bytes(m * k), bytes(d * k * n));
        assert_eq!(check('Y', "[rows,(@t:q),c]"), [x, w, 0]);
        if d == 1 {
            assert_eq!(check('X', "[rows,c,(@t:q)]"), [0, w, x]);
            assert_eq!(check('W', "[rows,(@t:q),c]"), [x, 0, w]);
        }
    }
}

/// The gradients of Tesseract; that of w is summed over the depth afterwards.
#[test]
fn streamed_gradients_are_summed_over_the_depth() {
    for (q, d) in [(2, 2), (2, 3)] {
        let mesh = Mesh::parse(&format!("r={q},c={q},d={d}")).unwrap();
        let (m, k, n) = (2 * q * d, q, 3 * q);
        let mut sketch = Sketch::new(&mesh);
        let layout = |text: &str| parse_layout(&mesh, text).unwrap().dims;
        let type_ = |shape: [u64; 2]| Type::new(DType::F32, shape);
        let x = sketch.input("x", type_([m, k]), layout("[d.r,c]"));
        let dy = sketch.input("dy", type_([m, n]), layout("[d.r,c]"));
        let w = sketch.weight("w", type_([k, n]), layout("[r,c]"));
        let partition = |text: &str| {
            let text = format!("{q} steps {} streams r,c", text.replace('q', &q.to_string()));
            parse_partition(&mesh, &text).unwrap()
        };
        let dx = sketch.node(phase('X'), &[dy, w], partition("[d.r,c,(@t:q)]"))[0];
        let dw = sketch.node(phase('W'), &[x, dy], partition("[d.r,(@t:q),c]"))[0];
        sketch.output("dx", dx, layout("[d.r,c]"), &mut |_, _, _, _| None);
        sketch.output("dw", dw, layout("[r,c]"), &mut |_, _, _, _| None);
        let outcome = check(&sketch.plan);
        let total: u64 = outcome.received.iter().map(|it| it.1).sum();
        let (x, w) = (m * k, k * n);
        let of_dx = (q - 1) * (d * w + x);
        let of_dw = (q - 1) * (x + d * w) + 2 * (d - 1) * w;
        assert_eq!(total, (of_dx + of_dw) * 4);
    }
}

/// Computes an operation on values of these types with digits for some loops, each operand at rest
/// as the partition has it.
fn at_rest(
    mesh: &Mesh,
    steps: u64,
    op: Op,
    types: &[Type],
    digits: impl Fn(&Loops) -> Vec<(LoopId, Digit)>,
) -> Sketch {
    let results = op.infer(types).unwrap();
    let loops = op.loops(types, &results);
    let mut partition = Partition::replicated(&loops);
    partition.steps = steps;
    for (it, digit) in digits(&loops) {
        partition.loops[it.0].push(digit);
    }
    partition.check(mesh, &loops).unwrap();
    let mut sketch = Sketch::new(mesh);
    let operand = |(index, type_): (usize, &Type)| {
        let Layout { dims, owed } = partition.operand(&loops, index);
        assert!(owed.is_empty());
        sketch.input(&format!("operand{index}"), type_.clone(), dims)
    };
    let operands: Vec<ValueId> = types.iter().enumerate().map(operand).collect();
    let made: Vec<Layout> = (0..results.len()).map(|index| partition.result(&loops, index)).collect();
    let values = sketch.node(op, &operands, partition);
    for (value, layout) in values.into_iter().zip(made) {
        sketch.output(&format!("y{}", value.0), value, layout.dims, &mut |_, _, _, _| None);
    }
    sketch
}

/// The digits of a ring: the coordinate, and the coordinate back by the time.
fn ring(mesh: &Mesh, s: u64) -> [Digit; 2] {
    let own = Digit::axis(mesh, planner_ir::AxisId(0));
    [own.clone(), Digit { size: s, step: -1, ..own }]
}

#[test]
fn embeddings_rotate() {
    for (s, dtype) in [2, 3, 4].into_iter().flat_map(|s| DTYPES.map(|dtype| (s, dtype))) {
        let mesh = Mesh::of_sizes(&[s]);
        let [own, back] = ring(&mesh, s);
        let (rows, columns) = (2 * s, 3 * s);
        let types = [Type::new(dtype, [rows, columns]), Type::new(DType::I64, [2 * s])];
        let received = |rotating: usize| {
            let digits = |loops: &Loops| {
                vec![(loops.operands[0][rotating][0], back.clone()), (loops.operands[1][0][0], own.clone())]
            };
            let sketch = at_rest(&mesh, s, Op::Gather { dim: 0 }, &types, digits);
            // Indices below the number of rows.
            check_with(&sketch, "operand1", |it| it.rem_euclid(i64::try_from(rows).unwrap()))
        };
        let table = (s - 1) * rows * columns * dtype.bytes();
        assert_eq!(received(1), table, "embedding dimension");
        assert_eq!(received(0), table, "vocabulary");
    }
}

/// Runs a plan against the reference with one of the inputs changed: what is received.
fn check_with(sketch: &Sketch, name: &str, change: impl Fn(i64) -> i64) -> u64 {
    let mut values = super::sources(&sketch.plan);
    let numbers = values[name].to_floats().unwrap();
    #[expect(clippy::cast_possible_truncation, reason = "small whole numbers")]
    let changed: Vec<i64> = numbers.iter().map(|&it| change(it as i64)).collect();
    let changed = Array::of(values[name].type_().shape.clone(), &changed).unwrap();
    values.insert(name.to_owned(), changed);
    let given = crate::Sources { inputs: &values, weights: &values };
    let expected = crate::reference(&sketch.plan.graph, given).unwrap();
    let outcome = Session::new(programs(&sketch.plan), &values).unwrap().step(&values).unwrap();
    super::check_steps(&sketch.plan, &outcome);
    assert!(outcome.outputs == expected);
    outcome.received.iter().map(|it| it.1).sum()
}

#[test]
fn output_channels_rotate() {
    for s in [2, 3, 4] {
        let mesh = Mesh::of_sizes(&[s]);
        let [own, back] = ring(&mesh, s);
        let conv = Conv {
            strides: vec![1, 1],
            before: vec![1, 1],
            after: vec![1, 1],
            dilations: vec![1, 1],
            groups: 1,
        };
        let types = [Type::new(DType::F32, [s, 3, 4, 4]), Type::new(DType::F32, [2 * s, 3, 3, 3])];
        let digits = |loops: &Loops| {
            let made = *loops.operands[1][0].last().unwrap();
            vec![(loops.operands[0][0][0], own.clone()), (made, back.clone())]
        };
        let sketch = at_rest(&mesh, s, Op::Conv(conv), &types, digits);
        let received: u64 = check(&sketch.plan).received.iter().map(|it| it.1).sum();
        assert_eq!(received, (s - 1) * types[1].bytes());
    }
}

#[test]
fn experts_rotate() {
    for (s, dtype) in [2, 3, 4].into_iter().flat_map(|s| [DType::F32, DType::F64].map(|dtype| (s, dtype))) {
        let mesh = Mesh::of_sizes(&[s]);
        let [own, back] = ring(&mesh, s);
        let (tokens, experts, units, hidden) = (2 * s, 2 * s, 3, 4);
        let type_ = |shape: &[u64]| Type::new(dtype, shape);
        let types = [
            type_(&[tokens, hidden]),
            type_(&[tokens, experts]),
            type_(&[experts, units, hidden]),
            type_(&[experts, hidden, units]),
        ];
        let digits = |loops: &Loops| {
            vec![(loops.operands[0][0][0], own.clone()), (loops.operands[2][0][0], back.clone())]
        };
        let op = Op::Experts { activation: Unary::Relu, limit: None, active: experts };
        let sketch = at_rest(&mesh, s, op, &types, digits);
        let received: u64 = check(&sketch.plan).received.iter().map(|it| it.1).sum();
        assert_eq!(received, (s - 1) * (types[2].bytes() + types[3].bytes()));
    }
}

/// 256 and then ones, of which bf16 would lose every one: sums over any number of steps are
/// rounded once, where the sum stays and where it travels.
#[test]
fn narrow_sums_over_steps_are_rounded_once() {
    for (s, text) in [2, 4, 8, 16].into_iter().flat_map(|s| [(s, "[a,(a-@t:s),-]"), (s, "[(a+@t+1:s),a,-]")])
    {
        let mesh = Mesh::of_sizes(&[s]);
        let mut sketch = Sketch::new(&mesh);
        let partition =
            parse_partition(&mesh, &format!("{s} steps {}", text.replace('s', &s.to_string()))).unwrap();
        let types = [Type::new(DType::BF16, [s, s]), Type::new(DType::BF16, [s, 2])];
        let op = phase('Y');
        let loops = op.loops(&types, &op.infer(&types).unwrap());
        let x = sketch.input("x", types[0].clone(), partition.operand(&loops, 0).dims);
        let w = sketch.input("w", types[1].clone(), partition.operand(&loops, 1).dims);
        let made = partition.result(&loops, 0);
        let y = sketch.node(op, &[x, w], partition)[0];
        sketch.output("y", y, made.dims, &mut |_, _, _, _| None);
        let narrow = |numbers: Vec<f32>, shape: [u64; 2]| {
            let wide = Array::of(shape, &numbers).unwrap();
            kernels::evaluate(&Op::Cast(DType::BF16), &[&wide]).unwrap().remove(0)
        };
        let count = usize::try_from(s).unwrap();
        let x = narrow(vec![1.0; count * count], [s, s]);
        let w = narrow((0..2 * count).map(|it| if it < 2 { 256.0 } else { 1.0 }).collect(), [s, 2]);
        let expected = kernels::evaluate(&phase('Y'), &[&x, &w]).unwrap().remove(0);
        let inputs = [("x".to_owned(), x), ("w".to_owned(), w)].into();
        let mut session = Session::new(programs(&sketch.plan), &BTreeMap::new()).unwrap();
        let outcome = session.step(&inputs).unwrap();
        assert!(outcome.outputs["y"] == expected, "{s} steps {text}");
        let right = 256.0 + f64::from(u32::try_from(s - 1).unwrap());
        assert!(expected.to_floats().unwrap().iter().all(|it| (it - right).abs() <= 1.0));
    }
}

/// A rank that fails at a step ends the others, who wait for its message.
#[test]
fn an_error_at_a_time_step_ends_the_others() {
    let mesh = Mesh::of_sizes(&[3]);
    let [own, back] = ring(&mesh, 3);
    let types = [Type::new(DType::F32, [6, 3]), Type::new(DType::I64, [3])];
    let digits =
        |loops: &Loops| vec![(loops.operands[0][1][0], back.clone()), (loops.operands[1][0][0], own.clone())];
    let sketch = at_rest(&mesh, 3, Op::Gather { dim: 0 }, &types, digits);
    let mut session = Session::new(programs(&sketch.plan), &BTreeMap::new()).unwrap();
    let mut inputs = super::sources(&sketch.plan);
    inputs.insert("operand1".to_owned(), Array::of([3], &[1_i64, 2, 9]).unwrap());
    let error = session.step(&inputs).unwrap_err();
    assert!(matches!(error, crate::RunError::Instruction { rank: 2, .. }), "{error}");
    inputs.insert("operand1".to_owned(), Array::of([3], &[1_i64, 2, 5]).unwrap());
    assert!(session.step(&inputs).is_ok());
}
