//! Kernels as C, compiled by the machine's compiler, run in a process of their own.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use planner_ir::{DType, Op, Type};

use crate::array::{Array, Span, Tensor, TensorMut};
use crate::cuda::{
    Argument, Chain, Input, Kernel, Piece, Uncovered, Work, chained, host_program, kernels, write,
};

/// How many orders of threads each work is run in.
const ORDERS: u64 = 2;

/// An operand or a result is given to the process.
const GIVEN: u64 = 1;
/// It is returned.
const RETURNED: u64 = 2;

/// An operation with operands, and the blocks that they are.
pub(super) struct Trial {
    pub(super) op: Op,
    pub(super) operands: Vec<(Array, Vec<Span>)>,
    pub(super) results: Vec<(Type, Vec<Span>)>,
    /// How far results may be off, relative to the largest of the row's numbers or 1.
    pub(super) tolerance: f64,
    /// For each result, the operand in whose place it is made, if it is.
    pub(super) in_place: Vec<Option<usize>>,
    /// Instead of the operation a chain of them.
    pub(super) chain: Option<Chain>,
}

impl Trial {
    /// An operation on whole values, of the types that inference gives.
    pub(super) fn whole(op: Op, operands: Vec<Array>, tolerance: f64) -> Self {
        let types: Vec<Type> = operands.iter().map(|it| it.type_().clone()).collect();
        let results = op.infer(&types).unwrap_or_else(|error| panic!("{op:?} of {types:?}: {error}"));
        let results: Vec<(Type, Vec<Span>)> = results.into_iter().map(|it| (it, vec![])).collect();
        let in_place = vec![None; results.len()];
        let operands = operands.into_iter().map(|it| (it, vec![])).collect();
        Self { op, operands, results, tolerance, in_place, chain: None }
    }

    /// A chain on whole values, compared within a tolerance.
    pub(super) fn chained(chain: Chain, operands: Vec<Array>, tolerance: f64) -> Self {
        let made = |&(step, result): &(usize, usize)| {
            let dtype = chain.steps[step].results[result];
            (Type::new(dtype, chain.shape.clone()), vec![])
        };
        Self {
            op: chain.steps[0].op.clone(),
            operands: operands.into_iter().map(|it| (it, vec![])).collect(),
            results: chain.results.iter().map(made).collect(),
            tolerance,
            in_place: vec![None; chain.results.len()],
            chain: Some(chain),
        }
    }

    fn work(&self) -> Work {
        if let Some(chain) = &self.chain {
            return chained(chain).unwrap_or_else(|error| panic!("{chain:?}: {error}"));
        }
        let operands: Vec<Piece> = self
            .operands
            .iter()
            .map(|(it, spans)| Piece { spans: spans.clone(), ..Piece::whole(it.type_().clone()) })
            .collect();
        let results: Vec<Piece> = self
            .results
            .iter()
            .map(|(it, spans)| Piece { spans: spans.clone(), ..Piece::whole(it.clone()) })
            .collect();
        self.kernels(&operands, &results).unwrap_or_else(|error| panic!("{}: {error}", self.title()))
    }

    /// The kernels of the operation: what it writes over an operand, or all of it.
    fn kernels(&self, operands: &[Piece], results: &[Piece]) -> Result<Work, Uncovered> {
        let over = self.op.written().is_some_and(|it| self.in_place[0] == Some(it));
        if over { write(&self.op, operands, results) } else { kernels(&self.op, operands, results) }
    }

    /// What the operations of a chain make, one by one.
    fn expected_of_chain(&self, chain: &Chain) -> Vec<Array> {
        let mut made: Vec<Vec<Array>> = vec![];
        let placed = |array: &Array| if array.shape() == chain.shape { &chain.spans[..] } else { &[] };
        for step in &chain.steps {
            let operands: Vec<Tensor> = step
                .inputs
                .iter()
                .map(|input| match *input {
                    Input::Operand(number) => &self.operands[number].0,
                    Input::Step(step, result) => &made[step][result],
                })
                .map(|array| Tensor { spans: placed(array), ..array.tensor() })
                .collect();
            let types = step.results.iter().map(|&it| Type::new(it, chain.shape.clone()));
            let mut results: Vec<Array> = types.map(|it| Array::zeros(it).unwrap()).collect();
            let mut targets: Vec<TensorMut> =
                results.iter_mut().map(|it| TensorMut { spans: &chain.spans, ..it.tensor_mut() }).collect();
            crate::compute(&step.op, &operands, &mut targets).unwrap();
            made.push(results);
        }
        chain.results.iter().map(|&(step, result)| made[step][result].clone()).collect()
    }

    fn expected(&self) -> Vec<Array> {
        if let Some(chain) = &self.chain {
            return self.expected_of_chain(chain);
        }
        let operands: Vec<Tensor> =
            self.operands.iter().map(|(it, spans)| Tensor { spans, ..it.tensor() }).collect();
        let mut made: Vec<Array> =
            self.results.iter().map(|(type_, _)| Array::zeros(type_.clone()).unwrap()).collect();
        let mut targets: Vec<TensorMut> = made
            .iter_mut()
            .zip(&self.results)
            .map(|(it, (_, spans))| TensorMut { spans, ..it.tensor_mut() })
            .collect();
        crate::compute(&self.op, &operands, &mut targets)
            .unwrap_or_else(|error| panic!("{}: {error}", self.title()));
        made
    }

    fn title(&self) -> String {
        let types: Vec<String> = self.operands.iter().map(|(it, _)| it.type_().to_string()).collect();
        let text = format!("{:?}", self.op);
        format!("{} of {}", text.chars().take(200).collect::<String>(), types.join(", "))
    }
}

/// Kernels as a program of this host, in a folder of its own.
struct Program {
    folder: PathBuf,
    /// By name, which kernel of the program it is.
    numbers: BTreeMap<String, u64>,
}

impl Program {
    /// The kernels of these works, compiled.
    fn of(works: &[Work]) -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let folder = std::env::temp_dir().join(format!("shardloom-kernels-{}-{number}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let kernels = works.iter().flat_map(|work| &work.launches).map(|launch| &launch.kernel);
        let (source, names) = host_program(kernels);
        let program =
            Self { folder, numbers: (0..).zip(names).map(|(number, name)| (name, number)).collect() };
        let file = program.folder.join("kernels.c");
        fs::write(&file, source).unwrap();
        let done = Command::new("cc")
            .args(["-O1", "-std=gnu11", "-fwrapv", "-fno-strict-aliasing", "-w", "-o"])
            .arg(program.path())
            .arg(&file)
            .arg("-lm")
            .output()
            .expect("a C compiler is there: the build of this project needs one");
        assert!(done.status.success(), "{}: {}", file.display(), String::from_utf8_lossy(&done.stderr));
        program
    }

    fn path(&self) -> PathBuf {
        self.folder.join("kernels")
    }

    /// Whether a work, with threads in the order of a seed, makes of a trial's operands what is expected.
    fn check(&self, trial: &Trial, work: &Work, expected: &[Array], seed: u64) -> Result<(), String> {
        let request = Request::of(trial, work, &self.numbers, seed);
        compare(trial, expected, &run(&self.path(), &request.bytes)?)
    }

    fn remove(self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// For each place in the kernels of a trial where threads meet: whether it is found where they do not meet
/// there, in one of so many orders of threads. As it is, the trial is right in all of them.
pub(super) fn missing_barriers(trial: &Trial, orders: u64) -> Vec<bool> {
    let work = trial.work();
    let mut works = vec![work.clone()];
    for (launch, it) in work.launches.iter().enumerate() {
        for source in without_each_barrier(&it.kernel.source) {
            let mut broken = work.clone();
            let name = format!("{}_{}", it.kernel.name, works.len());
            let source = source.replace(&it.kernel.name, &name);
            broken.launches[launch].kernel = Kernel { name, source, ..it.kernel.clone() };
            works.push(broken);
        }
    }
    let (program, expected) = (Program::of(&works), trial.expected());
    let is_found = |work: &Work| (0..orders).any(|seed| program.check(trial, work, &expected, seed).is_err());
    let found: Vec<bool> = works.iter().map(is_found).collect();
    program.remove();
    assert!(!found[0], "{}", trial.title());
    found[1..].to_vec()
}

/// How threads of a block meet, and those of a warp.
const BARRIERS: [&str; 2] = ["t_barrier();", "t_warp_barrier();"];

/// A source without a barrier, for each that it has.
fn without_each_barrier(source: &str) -> impl Iterator<Item = String> {
    let all = BARRIERS.iter().flat_map(|it| source.match_indices(it));
    let mut places: Vec<(usize, &str)> = all.collect();
    places.sort_unstable();
    places.into_iter().map(|(at, text)| format!("{};{}", &source[..at], &source[at + text.len()..]))
}

/// What the process is asked for: buffers, then launches.
struct Request {
    bytes: Vec<u8>,
}

impl Request {
    fn number(&mut self, number: u64) {
        self.bytes.extend(number.to_le_bytes());
    }

    fn buffer(&mut self, size: usize, given: Option<&[u8]>, flags: u64) {
        self.number(u64::try_from(size).unwrap());
        self.number(flags);
        self.bytes.extend(given.unwrap_or(&[]));
    }

    /// A work on its operands, threads in the order of a seed.
    fn of(trial: &Trial, work: &Work, numbers: &BTreeMap<String, u64>, seed: u64) -> Self {
        let mut request = Self { bytes: vec![] };
        let operands = trial.operands.len();
        request.number(seed);
        request.number(u64::try_from(operands + trial.results.len() + 1).unwrap());
        for (number, (operand, _)) in trial.operands.iter().enumerate() {
            let kept = if trial.in_place.contains(&Some(number)) { RETURNED } else { 0 };
            request.buffer(operand.bytes().len(), Some(operand.bytes()), GIVEN | kept);
        }
        for ((type_, _), place) in trial.results.iter().zip(&trial.in_place) {
            let size = if place.is_some() { 0 } else { usize::try_from(type_.bytes()).unwrap() };
            request.buffer(size, None, RETURNED);
        }
        request.buffer(usize::try_from(work.room).unwrap(), None, 0);
        request.number(u64::try_from(work.launches.len()).unwrap());
        for launch in &work.launches {
            for number in
                [numbers[&launch.kernel.name], launch.blocks, launch.threads.into(), launch.shared.into()]
            {
                request.number(number);
            }
            request.number(u64::try_from(launch.arguments.len()).unwrap());
            for argument in &launch.arguments {
                let (is_buffer, number) = match *argument {
                    Argument::Operand(it) => (1, it),
                    Argument::Result(it) => (1, trial.in_place[it].unwrap_or(operands + it)),
                    Argument::Room(_) => (1, operands + trial.results.len()),
                    Argument::Integer(it) => {
                        request.number(0);
                        request.number(it.cast_unsigned());
                        continue;
                    }
                };
                let from = if let Argument::Room(from) = *argument { from } else { 0 };
                request.number(is_buffer + from * 2);
                request.number(u64::try_from(number).unwrap());
            }
        }
        request
    }
}

/// An array as it lies in memory in that order of its dimensions.
fn lying(array: &Array, order: &[usize]) -> Array {
    let turned = Op::Transpose { permutation: order.to_vec() };
    crate::evaluate(&turned, &[array]).unwrap().remove(0)
}

/// The same where operands, and then results, lie in these orders of their dimensions.
pub(super) fn check_in_orders(trials: Vec<(Trial, Vec<Vec<usize>>)>) {
    let (mut lie, mut works, mut all_expected) = (vec![], vec![], vec![]);
    for (mut trial, orders) in trials {
        let (of_operands, of_results) = orders.split_at(trial.operands.len());
        let piece = |type_: &Type, spans: &[Span], order: &[usize]| Piece {
            type_: type_.clone(),
            spans: spans.to_vec(),
            order: order.to_vec(),
        };
        let operands = trial.operands.iter().zip(of_operands);
        let operands: Vec<Piece> =
            operands.map(|((it, spans), order)| piece(it.type_(), spans, order)).collect();
        let results = trial.results.iter().zip(of_results);
        let results: Vec<Piece> = results.map(|((it, spans), order)| piece(it, spans, order)).collect();
        works.push(match trial.kernels(&operands, &results) {
            Ok(work) => work,
            // Without the library.
            Err(Uncovered::Library(it)) => {
                let launches = it.before.into_iter().chain(it.plain.launches).chain(it.after).collect();
                Work { launches, room: it.room }
            }
            Err(error) => panic!("{} in {orders:?}: {error}", trial.title()),
        });
        let expected = trial.expected().into_iter().zip(of_results);
        all_expected.push(expected.map(|(it, order)| lying(&it, order)).collect());
        for ((array, _), order) in trial.operands.iter_mut().zip(of_operands) {
            *array = lying(array, order);
        }
        for ((type_, _), order) in trial.results.iter_mut().zip(of_results) {
            let shape: Vec<u64> = order.iter().map(|&dim| type_.shape[dim]).collect();
            *type_ = Type::new(type_.dtype, shape);
        }
        lie.push(trial);
    }
    check_works(&lie, &works, &all_expected);
}

/// Runs each trial's kernels in several orders of threads, and compares with what the operation
/// means; fails with all differences.
pub(super) fn check(trials: &[Trial]) {
    let works: Vec<Work> = trials.iter().map(Trial::work).collect();
    let expected: Vec<Vec<Array>> = trials.iter().map(Trial::expected).collect();
    check_works(trials, &works, &expected);
}

/// The same for other works than those of the trials' operations, which make what is expected.
pub(super) fn check_works(trials: &[Trial], works: &[Work], expected: &[Vec<Array>]) {
    let program = Program::of(works);
    let mut failures = Vec::new();
    for ((trial, work), expected) in trials.iter().zip(works).zip(expected) {
        for seed in 0..ORDERS {
            if let Err(error) = program.check(trial, work, expected, seed) {
                failures.push(format!("{}, order {seed}: {error}", trial.title()));
            }
        }
    }
    assert!(
        failures.is_empty(),
        "{} failures, see {}:\n{}",
        failures.len(),
        program.folder.display(),
        failures.join("\n")
    );
    program.remove();
}

/// What the process returns.
fn run(program: &Path, request: &[u8]) -> Result<Vec<u8>, String> {
    let mut process = Command::new(program)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| error.to_string())?;
    let mut input = process.stdin.take().ok_or("no standard input")?;
    // A process that fails stops reading; it says why.
    let _ = input.write_all(request);
    drop(input);
    let done = process.wait_with_output().map_err(|error| error.to_string())?;
    let said = String::from_utf8_lossy(&done.stderr);
    if done.status.success() { Ok(done.stdout) } else { Err(format!("{}: {said}", done.status)) }
}

/// What was returned beside what was expected.
fn compare(trial: &Trial, expected: &[Array], found: &[u8]) -> Result<(), String> {
    let mut rest = found;
    let mut returned = BTreeMap::new();
    for (number, (operand, _)) in trial.operands.iter().enumerate() {
        if trial.in_place.contains(&Some(number)) {
            returned.insert(number, rest.split_off(..operand.bytes().len()).ok_or("too few bytes")?);
        }
    }
    for (result, (expected, place)) in expected.iter().zip(&trial.in_place).enumerate() {
        let bytes = match place {
            Some(operand) => returned[operand],
            None => rest.split_off(..expected.bytes().len()).ok_or("too few bytes")?,
        };
        let found = Array::from_bytes(expected.type_().clone(), bytes).map_err(|error| error.to_string())?;
        // By the same chance it is the same neighbour.
        if matches!(trial.op, Op::RoundStochastically { .. }) && found != *expected {
            return Err(format!("result {result}: other bits"));
        }
        near(&found, expected, trial.tolerance).map_err(|error| format!("result {result}: {error}"))?;
    }
    if rest.is_empty() { Ok(()) } else { Err(format!("{} bytes too many", rest.len())) }
}

fn near(found: &Array, expected: &Array, tolerance: f64) -> Result<(), String> {
    if !expected.dtype().is_float() {
        return match found.bytes().iter().zip(expected.bytes()).position(|(a, b)| a != b) {
            None => Ok(()),
            Some(at) => {
                let element = at / usize::try_from(expected.dtype().bytes()).unwrap();
                let number = |it: &Array| it.to_integers().map(|it| it[element]).unwrap_or_default();
                Err(format!("element {element} is {}, expected {}", number(found), number(expected)))
            }
        };
    }
    let narrow = match expected.dtype() {
        DType::BF16 => 0.008,
        DType::F16 => 0.001,
        _ => 0.0,
    };
    let (found, expected) = (found.to_floats().unwrap(), expected.to_floats().unwrap());
    let finite = expected.iter().filter(|it| it.is_finite());
    let scale = finite.fold(0.0_f64, |most, it| most.max(it.abs())).clamp(0.1, 1.0);
    for (at, (a, b)) in found.iter().zip(&expected).enumerate() {
        let same = a.to_bits() == b.to_bits() || (a.is_nan() && b.is_nan());
        let allowed = (tolerance + narrow) * b.abs() + tolerance * scale;
        if !same && ((a - b).abs() > allowed || !(a - b).is_finite()) {
            return Err(format!("element {at} is {a}, expected {b}"));
        }
    }
    Ok(())
}
