//! What is read of weights: blocks, never more.

use std::cell::RefCell;
use std::collections::BTreeMap;

use arbtest::arbitrary::{Result, Unstructured};
use arbtest::arbtest;
use kernels::Array;
use lower::{Port, Program, Strided};
use planner_ir::{
    AxisId, Contract, DType, Digit, Label, Layout, Mesh, Op, StateKind, Type, Unary, ValueId, parse_layout,
    parse_partition,
};

use super::random::digits;
use super::regression::{Parallel, Regression};
use super::sketch::Sketch;
use super::{check, programs, some_numbers, sources};
use crate::stored::port_block;
use crate::{Session, Sources, Stored, reference};

/// Arrays that keep what is read of them.
struct Counted {
    arrays: BTreeMap<String, Array>,
    reads: RefCell<Vec<Read>>,
}

/// Of which array, which elements.
struct Read {
    name: String,
    elements: Vec<usize>,
}

impl Counted {
    fn of(arrays: BTreeMap<String, Array>) -> Self {
        Self { arrays, reads: RefCell::new(Vec::new()) }
    }

    /// How often each element of an array has been read.
    fn times(&self, name: &str) -> Vec<u64> {
        let count = self.arrays[name].type_().elements();
        let mut times = vec![0; usize::try_from(count).unwrap()];
        for read in self.reads.borrow().iter().filter(|it| it.name == name) {
            read.elements.iter().for_each(|&element| times[element] += 1);
        }
        times
    }

    /// How many elements of an array have been read at once.
    fn most(&self, name: &str) -> u64 {
        let reads = self.reads.borrow();
        let counts = reads.iter().filter(|it| it.name == name).map(|it| it.elements.len());
        u64::try_from(counts.max().unwrap_or(0)).unwrap()
    }
}

impl Stored for Counted {
    fn type_of(&self, name: &str) -> std::result::Result<Type, String> {
        self.arrays.type_of(name)
    }

    fn read(&self, name: &str, elements: &Strided, to: &mut [u8]) -> std::result::Result<(), String> {
        let mut places = vec![elements.start];
        for it in &elements.loops {
            places = places.iter().flat_map(|at| (0..it.count).map(move |i| at + i * it.from)).collect();
        }
        let elements_read = places.into_iter().map(|it| usize::try_from(it).unwrap()).collect();
        self.reads.borrow_mut().push(Read { name: name.to_owned(), elements: elements_read });
        self.arrays.read(name, elements, to)
    }
}

/// Runs a plan from counted weights, and holds its outputs to those of whole weights, bit by bit.
fn counted(plan: &plan::Plan) -> (Counted, Vec<Program>) {
    let values = sources(plan);
    let expected = reference(&plan.graph, Sources { inputs: &values, weights: &values }).unwrap();
    let (counted, programs) = (Counted::of(values.clone()), programs(plan));
    let outcome = Session::new(programs.clone(), &counted).unwrap().step(&values).unwrap();
    assert!(outcome.outputs == expected);
    (counted, programs)
}

/// The elements of the block that a rank has.
fn local(program: &Program, port: &Port) -> u64 {
    program.buffer(port.buffer).type_.elements()
}

/// A product with a weight, partitioned as the text says.
fn product(mesh: &Mesh, dtype: DType, [m, k, n]: [u64; 3], text: &str) -> Sketch {
    let labels = |text: &str| text.bytes().map(|it| Label(it - b'a')).collect();
    let op = Op::Contract(Contract { left: labels("mk"), right: labels("kn"), result: labels("mn") });
    let types = [Type::new(dtype, [m, k]), Type::new(dtype, [k, n])];
    let loops = op.loops(&types, &op.infer(&types).unwrap());
    let partition = parse_partition(mesh, text).unwrap();
    let mut sketch = Sketch::new(mesh);
    let [x, w] = types;
    let x = sketch.input("x", x, partition.operand(&loops, 0).dims);
    let w = sketch.weight("w", w, partition.operand(&loops, 1).dims);
    let made = partition.result(&loops, 0);
    let y = sketch.node(op, &[x, w], partition)[0];
    sketch.output("y", y, made.dims, &mut |_, _, _, _| None);
    sketch
}

#[test]
fn of_weights_that_rotate_each_rank_reads_its_block_and_all_together_read_each_element_once() {
    let ring = |s: u64| (vec![s], format!("{s} steps [a,-,(a-@t:{s})]"), s);
    let rows = |s: u64| (vec![s], format!("{s} steps [a,(a-@t:{s}),-]"), s);
    let square = (vec![2, 2], "2 steps [a,(a+b+@t:2),b]".to_owned(), 4);
    // On two layers of a square, and along rows, all have the same blocks: they are read once.
    let layers = (vec![2, 2, 2], "2 steps [c.a,(a+b+@t:2),b]".to_owned(), 4);
    let replicated = (vec![4], "[a,-,-]".to_owned(), 1);
    let cases = [2, 3, 4].into_iter().flat_map(|s| [ring(s), rows(s)]).chain([square, layers, replicated]);
    for (sizes, text, blocks) in cases {
        for dtype in [DType::F32, DType::F64, DType::BF16, DType::I32] {
            let sketch = product(&Mesh::of_sizes(&sizes), dtype, [24, 12, 24], &text);
            let (counted, programs) = counted(&sketch.plan);
            for program in &programs {
                assert_eq!(local(program, &program.weights[0]), 12 * 24 / blocks, "{text}");
            }
            assert_eq!(counted.most("w"), 12 * 24 / blocks, "{text}");
            assert!(counted.times("w").iter().all(|&it| it == 1), "{text}");
        }
    }
}

#[test]
fn of_parameters_each_rank_reads_its_block_for_each_state_that_it_has() {
    for parallel in Parallel::ALL {
        let devices = if parallel == Parallel::DataTensor { 4 } else { 3 };
        for dtype in [DType::F32, DType::BF16] {
            let extents = [12, 6, 12, 6];
            let regression = Regression { dtype, extents, ..Regression::new(parallel, devices, 1) };
            let plan = regression.sketch().plan;
            let weight = |(name, shape): (&str, [u64; 2])| {
                (name.to_owned(), some_numbers(name, &Type::new(DType::F32, shape)))
            };
            let counted = Counted::of([("up", [6, 12]), ("down", [12, 6])].map(weight).into());
            let programs = programs(&plan);
            let mut session = Session::new(programs.clone(), &counted).unwrap();
            for name in ["up", "down"] {
                let (mut held, mut largest) = (0, 0);
                for program in &programs {
                    for port in program.states.iter().filter(|it| it.name == name) {
                        let kind = program.storage(port.buffer).kind.state().unwrap();
                        if [StateKind::Parameter, StateKind::Master].contains(&kind) {
                            held += local(program, port);
                            largest = local(program, port).max(largest);
                        }
                    }
                }
                assert_eq!(counted.most(name), largest, "{parallel:?} {dtype}");
                let times = counted.times(name);
                assert_eq!(times.iter().sum::<u64>(), held, "{parallel:?} {dtype}");
                assert!(times.iter().all(|it| *it == times[0]), "{parallel:?} {dtype}");
            }
            // Parameters are the weights, converted.
            for state in session.states().into_iter().filter(|it| it.kind == StateKind::Parameter) {
                let converted = kernels::evaluate(&Op::Cast(dtype), &[&counted.arrays[&state.name]]);
                assert!(session.gather(&state).unwrap() == converted.unwrap()[0]);
                // What replaces a state is read likewise.
                let other = Counted::of(
                    [(state.name.clone(), some_numbers("other", session_type(&plan, &state)))].into(),
                );
                session.set(&state, &other).unwrap();
                assert!(session.gather(&state).unwrap() == other.arrays[&state.name]);
                assert!(other.most(&state.name) <= counted.most(&state.name));
            }
        }
    }
}

/// The type of a state.
fn session_type<'a>(plan: &'a plan::Plan, state: &planner_ir::State) -> &'a Type {
    let is = |it: &&planner_ir::Value| it.source == planner_ir::Source::State(state.clone());
    &plan.graph.values.iter().find(is).unwrap().type_
}

/// The block that a device holds, element by element: those whose block numbers have its digits.
fn sliced(whole: &Array, layout: &Layout, mesh: &Mesh, device: u64) -> Vec<u8> {
    let coordinates = mesh.coordinates(device);
    let holds = |dim: usize, place: u64| {
        let blocks: u64 = layout.dims[dim].iter().map(|it| it.size).product();
        let mut number = place / (whole.shape()[dim] / blocks);
        layout.dims[dim].iter().rev().all(|digit| {
            let value = number % digit.size;
            number /= digit.size;
            digit.is_free() || value == digit.at(&coordinates, 0)
        })
    };
    let size = usize::try_from(whole.dtype().bytes()).unwrap();
    let mut held = Vec::new();
    for (number, element) in whole.bytes().chunks(size).enumerate() {
        let mut rest = u64::try_from(number).unwrap();
        let all = (0..whole.shape().len()).rev().all(|dim| {
            let place = rest % whole.shape()[dim];
            rest /= whole.shape()[dim];
            holds(dim, place)
        });
        if all {
            held.extend_from_slice(element);
        }
    }
    held
}

fn port(layout: &Layout, mesh: &Mesh, device: u64, type_: &Type) -> Port {
    let pieces = layout.pieces(mesh, device, &type_.shape);
    Port { name: "w".to_owned(), value: ValueId(0), type_: type_.clone(), pieces, buffer: lower::BufferId(0) }
}

/// Holds the blocks of all devices to slices of the whole, read as they are and converted.
fn check_blocks(mesh: &Mesh, layout: &Layout, shape: &[u64], from: DType, to: DType) {
    let stored = Counted::of([("w".to_owned(), some_numbers("w", &Type::new(from, shape)))].into());
    let whole = kernels::evaluate(&Op::Cast(to), &[&stored.arrays["w"]]).unwrap().remove(0);
    for device in 0..mesh.devices() {
        let local = layout.local_type(whole.type_());
        let block = port_block(&stored, &port(layout, mesh, device, whole.type_()), &local).unwrap();
        assert_eq!(block.type_(), &local);
        assert!(block.bytes() == sliced(&whole, layout, mesh, device), "{layout:?} {device} {from} {to}");
        let read = stored.reads.take().iter().map(|it| it.elements.len()).sum::<usize>();
        assert_eq!(u64::try_from(read), Ok(local.elements()));
    }
}

/// Digits of the mesh 2x2 in all orders: plain, skewed, constant, behind free ones, so that blocks are
/// stripes, and several of them.
fn dims() -> Vec<Vec<Digit>> {
    let digit = |terms: &[(usize, i64)], offset: i64| Digit {
        size: 2,
        terms: terms.iter().map(|&(axis, coefficient)| (AxisId(axis), coefficient)).collect(),
        step: 0,
        offset,
    };
    let some = [
        digit(&[(0, 1)], 0),
        digit(&[(1, 1)], 0),
        digit(&[(0, 1), (1, 1)], 0),
        digit(&[(0, 1), (1, -1)], 1),
        Digit::free(2),
        Digit::free(3),
    ];
    let mut dims = vec![vec![]];
    for length in 1..=3 {
        let count = some.len();
        for number in 0..count.pow(length) {
            dims.push((0..length).map(|place| some[number / count.pow(place) % count].clone()).collect());
        }
    }
    dims
}

#[test]
fn every_layout_of_a_small_world_is_read_as_it_is_sliced() {
    let mesh = Mesh::of_sizes(&[2, 2]);
    let dims = dims();
    let mut count = 0;
    for shape in [[12, 4], [8, 12]] {
        for first in &dims {
            for second in &dims {
                let layout = Layout { dims: vec![first.clone(), second.clone()], owed: Vec::new() };
                if layout.check(&mesh, &Type::new(DType::I16, shape)).is_ok() {
                    check_blocks(&mesh, &layout, &shape, DType::I16, DType::I16);
                    count += 1;
                }
            }
        }
    }
    assert!(count > 200, "{count}");
}

#[test]
fn every_type_is_read_and_converted() {
    let dtypes = [
        DType::F64,
        DType::F32,
        DType::F16,
        DType::BF16,
        DType::I64,
        DType::I32,
        DType::I16,
        DType::I8,
        DType::U64,
        DType::U32,
        DType::U16,
        DType::U8,
        DType::Bool,
    ];
    let mesh = Mesh::of_sizes(&[2, 2]);
    for text in ["[a,b]", "[*2.a,-]", "[b,*2.a]", "[(a+b:2),b]", "[-,-]"] {
        let layout = parse_layout(&mesh, text).unwrap();
        for from in dtypes {
            for to in dtypes {
                check_blocks(&mesh, &layout, &[8, 12], from, to);
            }
        }
    }
}

#[test]
fn large_blocks_are_converted_piece_by_piece() {
    let mesh = Mesh::of_sizes(&[2, 2]);
    for text in ["[a,b]", "[*2.a,-]", "[-,*2.b]", "[b,(a+b:2)]", "[-,-]"] {
        let layout = parse_layout(&mesh, text).unwrap();
        for shape in [[4, 70_000], [1_000, 300], [200_000, 4]] {
            check_blocks(&mesh, &layout, &shape, DType::F32, DType::BF16);
        }
    }
    let stored =
        Counted::of([("w".to_owned(), some_numbers("w", &Type::new(DType::F32, [1_000, 300])))].into());
    let type_ = Type::new(DType::F16, [1_000, 300]);
    port_block(&stored, &port(&Layout::replicated(2), &mesh, 0, &type_), &type_).unwrap();
    assert!(stored.most("w") <= 1 << 16);
}

/// Values that are prepared, and in which layout each is.
struct Preparing {
    sketch: Sketch,
}

impl Preparing {
    fn on(sizes: &[u64]) -> Self {
        Self { sketch: Sketch::new(&Mesh::of_sizes(sizes)) }
    }

    fn weight(&mut self, name: &str, dtype: DType, shape: &[u64]) -> ValueId {
        self.sketch.weight(name, Type::new(dtype, shape), vec![vec![]; shape.len()])
    }

    fn whole(&mut self, op: Op, operands: &[ValueId]) -> ValueId {
        let rank = op.infer(&self.sketch.plan.graph.types_of(operands)).unwrap()[0].rank();
        self.sketch.prepared(op, operands, vec![vec![]; rank])
    }

    /// Splits what has been made last over devices, and returns it.
    fn output(&mut self, value: ValueId, text: &str) {
        let dims = parse_layout(&self.sketch.plan.mesh, text).unwrap().dims;
        self.sketch.plan.layouts[value.0].dims = dims.clone();
        self.sketch.output(&format!("y{}", value.0), value, dims, &mut |_, _, _, _| None);
    }
}

fn slice(starts: &[u64], sizes: &[u64]) -> Op {
    Op::Slice { starts: starts.to_vec(), steps: vec![1; starts.len()], sizes: sizes.to_vec() }
}

/// What exporters and fusion do to weights: heads of a packed projection, products put together,
/// matrices turned, types widened.
#[test]
fn of_weights_whose_elements_are_moved_before_the_first_step_each_rank_reads_its_part() {
    for ranks in [2, 4] {
        let mut it = Preparing::on(&[ranks]);
        let packed = it.weight("packed", DType::F32, &[8, 3 * 32]);
        for part in 0..3 {
            let own = it.whole(slice(&[0, 32 * part], &[8, 32]), &[packed]);
            let heads = it.whole(Op::Reshape { shape: vec![8, 4, 8] }, &[own]);
            it.output(heads, "[-,a,-]");
        }
        let out = it.weight("out", DType::F32, &[32, 8]);
        let heads = it.whole(Op::Reshape { shape: vec![4, 8, 8] }, &[out]);
        it.output(heads, "[a,-,-]");
        let table = it.weight("table", DType::F16, &[16, 8]);
        let wide = it.whole(Op::Cast(DType::F32), &[table]);
        let turned = it.whole(Op::Transpose { permutation: vec![1, 0] }, &[wide]);
        it.output(turned, "[-,a]");
        let operands = ["q", "k", "v"].map(|name| it.weight(name, DType::F32, &[8, 8]));
        let fused = it.whole(Op::Concat { dim: 1 }, &operands);
        it.output(fused, "[-,a]");
        let (counted, programs) = counted(&it.sketch.plan);
        let parts = [("packed", 8 * 32), ("out", 32 * 8), ("table", 16 * 8), ("q", 64), ("k", 64), ("v", 64)];
        for (name, elements) in parts {
            assert!(counted.times(name).iter().all(|&it| it == 1), "{name}");
            let most = if ["q", "k", "v"].contains(&name) { elements } else { elements / ranks };
            assert!(counted.most(name) <= most, "{name}: {}", counted.most(name));
        }
        // Of what is put together no rank reads more than its block.
        let block = local(&programs[0], programs[0].prepared.last().unwrap());
        assert_eq!(block, 8 * 24 / ranks);
    }
}

#[test]
fn what_is_computed_of_weights_is_computed_whole() {
    let mut it = Preparing::on(&[2]);
    let w = it.weight("w", DType::F32, &[8, 8]);
    let sum = it.whole(Op::Softmax { dim: 1 }, &[w]);
    let turned = it.whole(Op::Transpose { permutation: vec![1, 0] }, &[sum]);
    it.output(turned, "[a,-]");
    let (counted, _) = counted(&it.sketch.plan);
    assert_eq!(counted.most("w"), 64);
    assert!(counted.times("w").iter().all(|&it| it == 1));
}

#[test]
fn random_chains_of_what_moves_elements_are_read_as_they_are_computed() {
    arbtest(|u| {
        let mesh = *u.choose(&[&[2][..], &[2, 2], &[4], &[3]])?;
        let mut it = Preparing::on(mesh);
        let shape: Vec<u64> = (0..u.int_in_range(1..=3)?).map(|_| extent(u)).collect::<Result<_>>()?;
        let mut values = vec![it.weight("a", DType::I32, &shape), it.weight("b", DType::I32, &shape)];
        for _ in 0..u.int_in_range(1..=5)? {
            let (op, operands) = movement(u, &it.sketch, &values)?;
            values.push(it.whole(op, &operands));
        }
        for number in [values.len() - 1, u.choose_index(values.len())?] {
            let (value, mesh) = (values[number], it.sketch.plan.mesh.clone());
            if number < 2 || it.sketch.plan.graph.outputs.iter().any(|it| it.value == value) {
                continue;
            }
            let dims = digits(u, &mesh, it.sketch.plan.graph.type_of(value), &[])?;
            it.sketch.plan.layouts[value.0].dims.clone_from(&dims);
            it.sketch.output(&format!("y{number}"), value, dims, &mut |_, _, _, _| None);
        }
        check(&it.sketch.plan);
        Ok(())
    })
    .budget_ms(3_000);
}

fn extent(u: &mut Unstructured) -> Result<u64> {
    u.choose(&[1, 2, 3, 4, 6, 8, 12]).copied()
}

/// An operation that moves elements, and its operands.
fn movement(u: &mut Unstructured, sketch: &Sketch, values: &[ValueId]) -> Result<(Op, Vec<ValueId>)> {
    let value = if u.ratio(3, 4)? { values[values.len() - 1] } else { *u.choose(values)? };
    let type_ = sketch.plan.graph.type_of(value);
    let shape = type_.shape.clone();
    let one = |op: Op| Ok((op, vec![value]));
    match u.int_in_range(0..=6)? {
        0 => {
            let mut permutation: Vec<usize> = (0..shape.len()).collect();
            for place in 1..permutation.len() {
                permutation.swap(place, u.int_in_range(0..=place)?);
            }
            one(Op::Transpose { permutation })
        }
        1 => {
            // The prime factors of all extents, put together otherwise.
            let mut factors = vec![1];
            for mut rest in shape {
                while let Some(factor) = (2..=rest).find(|it| rest % it == 0) {
                    factors.push(factor);
                    rest /= factor;
                }
            }
            let mut shape = vec![1];
            for factor in factors {
                if shape.len() >= 4 || u.ratio(1, 2)? {
                    *shape.last_mut().unwrap() *= factor;
                } else {
                    shape.push(factor);
                }
            }
            one(Op::Reshape { shape })
        }
        2 | 3 => {
            let (mut starts, mut steps, mut sizes) = (Vec::new(), Vec::new(), Vec::new());
            for extent in shape {
                let start = u.int_in_range(0..=extent - 1)?;
                let step: i64 = *u.choose(&[1, 1, 1, 2, -1])?;
                let most = if step < 0 { start + 1 } else { (extent - start).div_ceil(step.unsigned_abs()) };
                starts.push(start);
                steps.push(step);
                sizes.push(u.int_in_range(most.div_ceil(2)..=most)?);
            }
            one(Op::Slice { starts, steps, sizes })
        }
        4 => {
            let dim = u.choose_index(shape.len())?;
            let fits = |it: &&ValueId| {
                let other = &sketch.plan.graph.type_of(**it).shape;
                other.len() == shape.len() && (0..shape.len()).all(|at| at == dim || other[at] == shape[at])
            };
            let others: Vec<ValueId> = values.iter().filter(fits).copied().collect();
            let operands = (0..u.int_in_range(1..=3)?).map(|_| u.choose(&others).copied());
            Ok((Op::Concat { dim }, operands.collect::<Result<_>>()?))
        }
        5 if type_.elements() < 64 => {
            let mut wide = vec![2; usize::from(u.ratio(1, 2)?)];
            for extent in shape {
                wide.push(if extent == 1 { *u.choose(&[1, 4])? } else { extent });
            }
            one(Op::Expand { shape: wide })
        }
        _ => one(Op::Unary(Unary::Neg)),
    }
}
