//! Kernels compiled to PTX, and works of them run by the interpreter.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use device::Nvrtc;
use kernels::cuda::{Kernel, Launch, Uncovered, Work};
use ptx::{Access, Grid, Memory, Module, launch};

use crate::corpus::expect_none;
use crate::cuda::folder;

/// The GPUs for which PTX is made: A100, and H100 and H200.
pub(super) const ARCHITECTURES: [&str; 2] = ["sm_80", "sm_90a"];

/// Kernels by name.
pub(super) type Kernels = BTreeMap<String, Kernel>;

/// The compiler, if it is there; says so if it is not.
pub(super) fn compiler() -> Option<Nvrtc> {
    match Nvrtc::load(&[folder()]) {
        Ok(nvrtc) => Some(nvrtc),
        Err(error) => {
            println!("left out: running PTX; {error} (`.ci/run` gets it)");
            None
        }
    }
}

/// Kernels that can be run.
pub(super) type Modules = BTreeMap<String, Arc<Module>>;

/// Programs of one kernel each, read.
pub(super) fn parsed(texts: &BTreeMap<String, String>) -> Modules {
    let read = |(name, text): (&String, &String)| match Module::parse(text) {
        Ok(module) => Ok((name.clone(), Arc::new(module))),
        Err(error) => Err(format!("{name}: {error}")),
    };
    let (mut modules, mut faults) = (Modules::new(), Vec::new());
    for one in texts.iter().map(read) {
        match one {
            Ok((name, module)) => drop(modules.insert(name, module)),
            Err(fault) => faults.push(fault),
        }
    }
    expect_none(&faults);
    modules
}

/// A value that a work reads or makes.
#[derive(Clone, Debug)]
pub(super) struct Value {
    /// What is in it; nothing if it is to be made.
    pub(super) given: Option<Vec<u8>>,
    /// How long it is (bytes).
    pub(super) bytes: usize,
    /// The operand in whose place it lies, if it is a result that does.
    pub(super) over: Option<usize>,
}

impl Value {
    /// What is only read.
    pub(super) fn given(bytes: &[u8]) -> Self {
        Self { given: Some(bytes.to_vec()), bytes: bytes.len(), over: None }
    }

    /// What is made.
    pub(super) fn made(bytes: usize) -> Self {
        Self { given: None, bytes, over: None }
    }
}

/// What computes an operation, by kernels alone: products without the library.
pub(super) fn by_kernels(work: Result<Work, Uncovered>) -> Option<Work> {
    match work {
        Ok(work) => Some(work),
        Err(Uncovered::Library(it)) => {
            let launches = it.before.into_iter().chain(it.plain.launches).chain(it.after).collect();
            Some(Work { launches, room: it.room })
        }
        Err(_) => None,
    }
}

/// What a work makes, and how many instructions of warps that took.
pub(super) fn run(
    modules: &Modules,
    work: &Work,
    operands: &[Value],
    results: &[Value],
) -> Result<(Vec<Vec<u8>>, u64), String> {
    let mut memory = Memory::new();
    let written: BTreeSet<usize> = results.iter().filter_map(|it| it.over).collect();
    let starts = |memory: &mut Memory, what: &str, values: &[Value], access: &dyn Fn(usize) -> Access| {
        let start = |(number, it): (usize, &Value)| {
            let name = format!("{what} {number}");
            match &it.given {
                Some(bytes) => memory.give(&name, bytes, access(number)),
                None => memory.room(&name, it.bytes),
            }
        };
        values.iter().enumerate().map(start).collect::<Vec<u64>>()
    };
    let of_operand = |it: usize| if written.contains(&it) { Access::ReadWrite } else { Access::Read };
    let operands_at = starts(&mut memory, "operand", operands, &of_operand);
    let mut results_at = starts(&mut memory, "result", results, &|_| Access::ReadWrite);
    for (at, it) in results_at.iter_mut().zip(results) {
        *at = it.over.map_or(*at, |operand| operands_at[operand]);
    }
    let room = memory.room("the room", usize::try_from(work.room).unwrap());
    let mut instructions = 0;
    for it in &work.launches {
        instructions += launched(modules, it, &mut memory, (&operands_at, &results_at, room))?;
    }
    for (number, (at, it)) in results_at.iter().zip(results).enumerate() {
        if it.over.is_none()
            && let Some(byte) = memory.first_unwritten(*at)
        {
            return Err(format!("byte {byte} of result {number} is not written: {}", named(work)));
        }
    }
    let made = results_at.iter().zip(results).map(|(at, it)| memory.bytes(*at).unwrap()[..it.bytes].to_vec());
    Ok((made.collect(), instructions))
}

fn launched(
    modules: &Modules,
    it: &Launch,
    memory: &mut Memory,
    (operands, results, room): (&[u64], &[u64], u64),
) -> Result<u64, String> {
    let name = &it.kernel.name;
    let kernel = modules.get(name).and_then(|module| module.kernel(name));
    let kernel = kernel.ok_or_else(|| format!("{name} has not been compiled"))?;
    let arguments = it.arguments.iter().map(|argument| argument.value(operands, results, room));
    let arguments: Option<Vec<u64>> = arguments.collect();
    let arguments = arguments.ok_or_else(|| format!("{name} has an argument that is not there"))?;
    let grid = Grid { blocks: it.blocks, threads: it.threads, shared: it.shared };
    let counts = launch(kernel, memory, grid, &arguments).map_err(|fault| fault.to_string())?;
    Ok(counts.instructions)
}

/// The kernels of a work.
pub(super) fn named(work: &Work) -> String {
    let names: Vec<&str> = work.launches.iter().map(|it| it.kernel.name.as_str()).collect();
    names.join(", ")
}
