//! The kernels that plans of real models need on GPUs: that there is one for every instruction that
//! needs one, and that they compile for GPUs of every kind, without registers that spill.
//!
//! The compiler is NVRTC, of the version that `.ci/nvrtc.txt` pins. `.ci/run` puts it into the build
//! folder; where it is not there the test says so.

pub(crate) mod loops; // what divides in loops
pub(crate) mod known; // what the compiler has made
mod full; // what models of full size launch
mod steps; // what training steps are

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use std::time::Instant;

use device::{Architecture, Nvrtc, Task, besides, tasks};
use kernels::cuda::{Kernel, Piece, Uncovered, Work, device_program, kernels};
use lower::{Action, BufferId, Instruction, Kind, Program};
use plan::Precision;
use planner_ir::{Attention, Blind, DType, Op, Real, Type, Unary};
use rayon::prelude::*;

use super::{corpus, generation, training};

/// The kinds of GPUs: A100, H100 and H200, B200.
const ARCHITECTURES: [&str; 3] = ["sm_80", "sm_90a", "sm_100a"];

/// Registers of a thread at most.
const MOST_REGISTERS: u64 = 255;

/// Threads of a block, blocks of a row of them, and shared memory of a block (bytes) on all of them.
const MOST_THREADS: u64 = 1024;
const MOST_BLOCKS: u64 = (1 << 31) - 1;
const MOST_SHARED: u32 = 163_840;

/// What range reduction of sines and cosines keeps on the stack (bytes).
const MOST_STACK: u64 = 32;

/// Kernels that only some plans need: sums of several ranks, strided copies, squares of them, products
/// without the library, losses with their gradients.
const FAMILIES: [&str; 5] = ["sum", "copy", "transpose", "contract", "classifier"];

/// What kernels of norms are in Llama and GPT-2: sums with residuals, after the bias of a product too;
/// gradients, and what they are added to.
const TOGETHER_WITH_NORMS: [&str; 4] = [
    "/* Binary(Add), RmsNorm: ",
    "/* Binary(Add), Binary(Add), LayerNorm: ",
    "RmsNormGradient, Binary(Add): ",
    "LayerNormGradient, Binary(Add): ",
];

/// How many kernels are one program.
const TOGETHER: usize = 48;

/// Where `.ci/run` puts the compiler.
pub(crate) fn folder() -> PathBuf {
    let build = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap();
    build.join("nvrtc/nvidia/cu13/lib")
}

/// What the plans need: kernels by name, and what has no kernel.
#[derive(Default)]
struct Needed {
    kernels: BTreeMap<String, Kernel>,
    others: BTreeMap<String, (usize, String)>,
    /// The operations that have kernels, by name.
    operations: BTreeSet<String>,
    instructions: usize,
    launches: usize,
    fused: usize,
    faults: Vec<String>,
}

impl Needed {
    /// What a program needs.
    fn add_program(&mut self, title: &str, program: &Program) {
        let tasks = tasks(program);
        self.faults.extend(left_out(program, &tasks).map(|it| format!("{title}: {it}")));
        besides(program, &tasks).into_iter().for_each(|work| self.add_work(title, work));
        tasks.into_iter().for_each(|task| self.add(title, task));
    }

    fn add_work(&mut self, title: &str, work: Work) {
        for launch in work.launches {
            let known = self.kernels.insert(launch.kernel.name.clone(), launch.kernel.clone());
            if known.is_some_and(|it| it != launch.kernel) {
                self.faults.push(format!("{}: two sources of one name", launch.kernel.name));
            }
            let threads = u64::from(launch.threads);
            if launch.shared > MOST_SHARED || launch.blocks > MOST_BLOCKS || threads > MOST_THREADS {
                self.faults.push(format!("{title}: {launch:?} is too large"));
            }
        }
    }

    fn add(&mut self, title: &str, task: Task) {
        self.instructions += task.instructions.len();
        self.fused += usize::from(task.instructions.len() > 1);
        match task.work {
            Ok(work) => {
                self.operations.extend(
                    task.what.split(", ").filter(|it| it.starts_with(char::is_uppercase)).map(str::to_owned),
                );
                self.launches += work.launches.len();
                self.add_work(title, work);
            }
            Err(reason) => {
                let seen = self.others.entry(format!("{}: {reason}", task.what)).or_default();
                seen.0 += 1;
                title.clone_into(&mut seen.1);
                if matches!(reason, Uncovered::Missing(_)) && seen.0 == 1 {
                    self.faults.push(format!("{title}: {}: {reason}", task.what));
                }
            }
        }
    }
}

/// An instruction that no task or more than one does, or a buffer that one should make and does not.
fn left_out(program: &Program, tasks: &[Task]) -> Option<String> {
    let mut done: Vec<usize> = tasks.iter().flat_map(|task| task.instructions.clone()).collect();
    done.sort_unstable();
    let is_ours = |it: &Action| matches!(it, Action::Compute(_) | Action::Copy(_));
    let all = program.instructions.iter().enumerate();
    let ours: Vec<usize> = all.filter(|(_, it)| is_ours(&it.action)).map(|(number, _)| number).collect();
    if done != ours {
        return Some("tasks are not its instructions, each once".to_owned());
    }
    let place = |buffer: BufferId| program.buffer(buffer).storage;
    for task in tasks {
        let made: BTreeSet<_> = task.results.iter().map(|&it| place(it)).collect();
        let own = |number: &usize| task.instructions.contains(number);
        let written = task.instructions.iter().flat_map(|&it| program.instructions[it].action.writes());
        for buffer in written.filter(|&it| !made.contains(&place(it))) {
            let mut others = program.instructions.iter().enumerate().filter(|(number, _)| !own(number));
            let reads = |it: &Instruction| it.action.reads().iter().any(|&it| place(it) == place(buffer));
            let is_read = others.any(|(_, it)| reads(it));
            let is_kept = program.storage(buffer).kind != Kind::Activation;
            if is_read || is_kept {
                return Some(format!("b{} is not stored by {:?}", buffer.0, task.instructions));
            }
        }
    }
    None
}

/// Programs, or why there are none.
pub(crate) type Programs = Result<Vec<Program>, String>;

/// Every plan of the corpus, lowered once for all tests: the models as they are on one device and two, training
/// steps, and the plans that run on the GPU of tests, which has pinned ones, larger meshes, what goes round
/// rings and squares, pipelines, and steps of prompts and of single tokens.
pub(crate) static ALL_PROGRAMS: LazyLock<Vec<(String, Programs)>> = LazyLock::new(|| {
    let models = ["1", "2"].into_iter().map(corpus::programs);
    let steps = [("2", Precision::F32), ("1", Precision::Bf16), ("2", Precision::Bf16Stochastic)];
    let steps = steps.into_iter().map(|(mesh, precision)| training::programs(mesh, precision));
    let run = [
        corpus::gpu::programs as fn() -> _,
        training::gpu::programs,
        training::in_time::programs,
        generation::gpu::programs_of_all,
    ];
    models.chain(steps).chain(run.into_iter().map(|it| it())).flatten().collect()
});

/// What every plan of the corpus needs.
fn needed() -> Needed {
    let mut needed = Needed::default();
    for (title, programs) in ALL_PROGRAMS.iter() {
        match programs {
            Ok(programs) => programs.iter().for_each(|it| needed.add_program(title, it)),
            Err(error) => needed.faults.push(format!("{title}: {error}")),
        }
    }
    needed
}

/// The heads of published models (elements): GPT-3 and Llama 2, GPT-NeoX, OPT 2.7B, BERT and GPT-2.
const HEADS: [u64; 4] = [128, 96, 80, 64];

/// What large models need and the corpus, whose heads are small, does not: attention, its gradients and
/// its parts merged, in rows as long as theirs.
fn of_large_models() -> BTreeMap<String, Kernel> {
    let piece = |dtype: DType, shape: &[u64]| Piece::whole(Type::new(dtype, shape));
    let mut found = BTreeMap::new();
    for (dtype, size) in HEADS.into_iter().flat_map(|size| [(DType::BF16, size), (DType::F16, size)]) {
        for causal in [false, true] {
            let (scale, softcap) = (Real(0.1), Real(0.0));
            let attention = Attention {
                scale,
                causal,
                softcap,
                window: None,
                blind: Blind::Zero,
                sinks: false,
                statistics: true,
            };
            let queries = || piece(dtype, &[2, 8, 2048, size]);
            let keys = || piece(dtype, &[2, 2, 2048, size]);
            let part = || piece(DType::F32, &[2, 8, 2048, size]);
            let statistics = || piece(DType::F32, &[2, 8, 2048, 2]);
            let forward = Op::Attention(attention);
            let backward = Op::AttentionGradient { attention, mask: false };
            let works = [
                kernels(&forward, &[queries(), keys(), keys()], &[queries(), statistics()]),
                kernels(
                    &backward,
                    &[queries(), keys(), keys(), queries(), statistics(), queries()],
                    &[queries(), keys(), keys()],
                ),
                // Parts are kept in f32.
                kernels(
                    &Op::AttentionMerge,
                    &[part(), statistics(), part(), statistics()],
                    &[part(), statistics()],
                ),
            ];
            for work in works {
                let launches = work.unwrap_or_else(|error| panic!("{dtype:?}, {size}: {error}")).launches;
                found.extend(launches.into_iter().map(|it| (it.kernel.name.clone(), it.kernel)));
            }
        }
    }
    found
}

/// How units of published mixtures are made: GPT-OSS, Mixtral and DeepSeek, Switch; NLLB.
const UNITS: [(Unary, Option<Real>, usize); 4] = [
    (Unary::GeluQuick, Some(Real(7.0)), 7),
    (Unary::Silu, None, 5),
    (Unary::Relu, None, 4),
    (Unary::Gelu, None, 4),
];

/// What their experts need, and the gradients of those.
fn of_large_mixtures() -> BTreeMap<String, Kernel> {
    let [tokens, experts, inner, hidden, active] = [4096, 8, 14336, 4096, 2];
    let mut found = BTreeMap::new();
    for (dtype, (activation, limit, count)) in
        [DType::BF16, DType::F16].into_iter().flat_map(|dtype| UNITS.map(|it| (dtype, it)))
    {
        let piece = |shape: &[u64]| Piece::whole(Type::new(dtype, shape));
        let (x, gates) = (piece(&[tokens, hidden]), piece(&[tokens, experts]));
        let [up, down] = [piece(&[experts, inner, hidden]), piece(&[experts, hidden, inner])];
        let mut operands = vec![x.clone(), gates, up.clone()];
        operands.extend((count > 4).then_some(up));
        operands.push(down);
        operands
            .extend((count == 7).then(|| [(); 2].map(|()| piece(&[experts, inner]))).into_iter().flatten());
        let gradients = |sums: &[(usize, DType)]| {
            let mut made = operands.clone();
            sums.iter().for_each(|&(it, dtype)| made[it].type_.dtype = dtype);
            let sums: Vec<(usize, Piece)> = sums.iter().map(|it| (it.0, made[it.0].clone())).collect();
            let (adds, sums): (Vec<usize>, Vec<Piece>) = sums.into_iter().unzip();
            let op = Op::ExpertsGradient { activation, limit, active, adds };
            kernels(&op, &[&operands[..], std::slice::from_ref(&x), &sums].concat(), &made)
        };
        let weights = if count > 4 { 2..=4 } else { 2..=3 };
        let works = [
            kernels(&Op::Experts { activation, limit, active }, &operands, std::slice::from_ref(&x)),
            gradients(&[]),
            gradients(&weights.map(|it| (it, DType::F32)).collect::<Vec<_>>()),
            gradients(&[(2, dtype)]),
            gradients(&[(3, DType::F32)]),
        ];
        for work in works {
            let launches = work.unwrap_or_else(|error| panic!("{dtype:?}, {activation:?}: {error}")).launches;
            found.extend(launches.into_iter().map(|it| (it.kernel.name.clone(), it.kernel)));
        }
    }
    found
}

#[test]
fn experts_of_large_models_compile_without_spilling() {
    let kernels = of_large_mixtures();
    let tensor = kernels.values().filter(|it| it.family().starts_with("experts_tensor"));
    assert!(tensor.count() >= 4 * UNITS.len(), "{:?}", kernels.keys());
    match Nvrtc::load(&[folder()]) {
        Ok(nvrtc) => {
            corpus::expect_none(&compiled_for_all(&nvrtc, &kernels));
        }
        Err(error) => println!("left out: compiling for GPUs; {error} (`.ci/run` gets it)"),
    }
}

#[test]
fn attention_of_large_models_compiles_without_spilling() {
    let kernels = of_large_models();
    assert!(
        kernels.keys().filter(|name| name.contains("tensor")).count() >= 4 * HEADS.len(),
        "{:?}",
        kernels.keys()
    );
    match Nvrtc::load(&[folder()]) {
        Ok(nvrtc) => {
            corpus::expect_none(&compiled_for_all(&nvrtc, &kernels));
        }
        Err(error) => println!("left out: compiling for GPUs; {error} (`.ci/run` gets it)"),
    }
}

#[test]
fn every_kernel_of_every_plan_compiles_without_spilling() {
    let start = Instant::now();
    let mut needed = needed();
    println!(
        "{} instructions are {} launches of {} kernels ({} launches are of fused operations), found in {:?}",
        needed.instructions,
        needed.launches,
        needed.kernels.len(),
        needed.fused,
        start.elapsed()
    );
    for family in FAMILIES {
        if !needed.kernels.values().any(|it| it.name.starts_with(&format!("{family}_"))) {
            needed.faults.push(format!("no plan needs `{family}`: what is compiled is not what plans need"));
        }
    }
    let compared = bench::compared().unwrap();
    for operation in needed.operations.difference(&compared) {
        needed.faults.push(format!("`bench gpu` compares no kernel of {operation} with a processor"));
    }
    for what in TOGETHER_WITH_NORMS {
        if !needed.kernels.values().any(|it| it.source.contains(what)) {
            needed.faults.push(format!("no kernel is `{what}`"));
        }
    }
    for (what, (count, title)) in &needed.others {
        println!("without a kernel: {count} x {what} (such as in {title})");
    }
    match Nvrtc::load(&[folder()]) {
        Ok(nvrtc) => {
            needed.faults.extend(compiled_for_all(&nvrtc, &needed.kernels));
            println!("compiled in {:?} all together", start.elapsed());
        }
        Err(error) => println!("left out: compiling for GPUs; {error} (`.ci/run` gets it)"),
    }
    corpus::expect_none(&needed.faults);
}

/// The form of a kernel: its family, and its source without its numbers, and without which numbers of 16 bits it is of.
fn form(kernel: &Kernel) -> (String, String) {
    let mut text = String::new();
    let source = kernel.source.replace(&kernel.name, kernel.family()).replace("bf16", "f16");
    for letter in source.chars() {
        match letter.is_ascii_digit() {
            true if text.ends_with('#') => {}
            true => text.push('#'),
            false => text.push(letter),
        }
    }
    (kernel.family().to_owned(), text)
}

/// All numbers of a source together.
fn numbers(kernel: &Kernel) -> u128 {
    let source = kernel.source.replace(&kernel.name, kernel.family());
    let all = source.split(|it: char| !it.is_ascii_digit()).filter_map(|it| it.parse::<u64>().ok());
    all.map(u128::from).sum()
}

/// Compiles kernels; what is wrong. Of each form that with the largest numbers is compiled for every architecture; those
/// that differ from it no further take turns.
fn compiled_for_all(nvrtc: &Nvrtc, kernels: &BTreeMap<String, Kernel>) -> Vec<String> {
    let mut forms: BTreeMap<(String, String), Vec<&Kernel>> = BTreeMap::new();
    kernels.values().for_each(|it| forms.entry(form(it)).or_default().push(it));
    println!("{} kernels of {} forms", kernels.len(), forms.len());
    let (mut largest, mut others) = (Vec::new(), Vec::new());
    for mut alike in forms.into_values() {
        alike.sort_by_key(|it| std::cmp::Reverse(numbers(it)));
        largest.push(alike[0]);
        others.extend_from_slice(&alike[1..]);
    }
    let mut faults = Vec::new();
    for (number, name) in ARCHITECTURES.into_iter().enumerate() {
        let turn = others.iter().skip(number).step_by(ARCHITECTURES.len());
        faults.extend(compiled(nvrtc, name, &largest.iter().chain(turn).copied().collect::<Vec<_>>()));
    }
    faults
}

/// Compiles kernels for an architecture, some at the same time; what is wrong.
fn compiled(nvrtc: &Nvrtc, name: &str, all: &[&Kernel]) -> Vec<String> {
    let start = Instant::now();
    let architecture = Architecture::named(name).unwrap();
    let (mut faults, mut bytes, mut usages) = (Vec::new(), 0, Vec::new());
    let of = |some: &[&Kernel]| nvrtc.compile(&device_program(some.iter().copied()), &architecture);
    let made: Vec<_> = all.par_chunks(TOGETHER).map(of).collect();
    for (made, some) in made.into_iter().zip(all.chunks(TOGETHER)) {
        match made {
            Err(error) => faults.push(format!("{name}: {error}")),
            Ok(compiled) => {
                known::keep(name, some, &compiled.ptx);
                bytes += compiled.cubin.len();
                let divided = loops::divisions(&compiled.ptx).into_iter();
                faults.extend(divided.map(|(kernel, count)| {
                    format!("{name}: {kernel} divides numbers of 64 bits in a loop, {count} times")
                }));
                usages.extend(device::usage(&compiled.log));
            }
        }
    }
    let found: BTreeSet<&str> = usages.iter().map(|it| it.name.as_str()).collect();
    for kernel in all.iter().filter(|it| !found.contains(it.name.as_str())) {
        faults.push(format!("{name}: nothing is said of {}", kernel.name));
    }
    for usage in &usages {
        if usage.spilled > 0 || usage.stack > MOST_STACK || usage.registers > MOST_REGISTERS {
            faults.push(format!("{name}: {usage:?}"));
        }
    }
    let most = usages.iter().max_by_key(|it| it.registers);
    println!("{name}: {} kernels, {bytes} bytes, {most:?}, in {:?}", usages.len(), start.elapsed());
    faults
}
