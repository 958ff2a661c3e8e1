//! `kernels`: what a plan needs on GPUs, as sources and compiled.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use ::kernels::cuda::{Kernel, Launch, device_program};
use device::{Nvrtc, Task};
use driver::pipeline;
use files::Failure;
use files::{plan_file, written};
use lower::Program;
use serde_json::{Value, json};

use super::{Context, Said};
use crate::arguments::KernelsArguments;

/// A kernel and what launches it.
struct Needed<'a> {
    launch: &'a Launch,
    /// What it is for, and how often it is launched by all ranks in a repetition.
    what: &'a str,
    launches: usize,
}

/// Lists the kernels of a plan, and writes them.
pub(crate) fn kernels(arguments: &KernelsArguments, context: &mut Context<'_, '_>) -> Result<Said, Failure> {
    let plan = plan_file::read_checked(&arguments.plan)?;
    context.progress.say("lowering");
    let stages = &mut *context.stages;
    let programs = pipeline::lower(&plan, &mut |stage, made| stages.observe(stage, made))?;
    let tasks: Vec<Task> = programs.iter().flat_map(device::tasks).collect();
    let needed = needed(&tasks);
    let others = others(&tasks);
    let compiled = match &arguments.out {
        None => None,
        Some(folder) => {
            context.progress.say("compiling");
            let kernels = needed.values().map(|it| &it.launch.kernel);
            Some(write(folder, kernels, arguments)?)
        }
    };
    Ok(Said {
        text: text(&programs, &needed, &others, compiled.as_deref()),
        json: json!({
            "kernels": needed.values().map(in_json).collect::<Vec<Value>>(),
            "others": others.iter().map(|((what, how), count)| {
                json!({ "operation": what, "how": how, "count": count })
            }).collect::<Vec<Value>>(),
            "compiled": compiled,
        }),
    })
}

/// Each kernel once, by name, with its largest launch.
fn needed(tasks: &[Task]) -> BTreeMap<&str, Needed<'_>> {
    let mut needed: BTreeMap<&str, Needed<'_>> = BTreeMap::new();
    for task in tasks {
        let launches = task.work.iter().flat_map(|work| &work.launches);
        for launch in launches {
            let new = Needed { launch, what: &task.what, launches: 0 };
            let known = needed.entry(&launch.kernel.name).or_insert(new);
            known.launches += 1;
            if launch.blocks > known.launch.blocks {
                known.launch = launch;
            }
        }
    }
    needed
}

/// What no kernel computes: the operation, what does, and how often.
fn others(tasks: &[Task]) -> BTreeMap<(String, String), usize> {
    let mut others = BTreeMap::new();
    for task in tasks {
        if let Err(reason) = &task.work {
            *others.entry((task.what.clone(), reason.to_string())).or_insert(0) += 1;
        }
    }
    others
}

fn in_json(needed: &Needed<'_>) -> Value {
    let launch = needed.launch;
    json!({
        "name": launch.kernel.name,
        "for": needed.what,
        "launches": needed.launches,
        "blocks": launch.blocks,
        "threads": launch.threads,
        "shared_bytes": launch.shared,
        "arguments": launch.kernel.parameters.len(),
        "source": launch.kernel.source,
    })
}

fn text(
    programs: &[Program],
    needed: &BTreeMap<&str, Needed<'_>>,
    others: &BTreeMap<(String, String), usize>,
    compiled: Option<&str>,
) -> String {
    let mut text = String::new();
    // Writing to a string does not fail.
    let _ = writeln!(text, "{} kernels for {} ranks\n", needed.len(), programs.len());
    let _ = writeln!(
        text,
        "{:<44} {:>9} {:>11} {:>8} {:>8}  for",
        "kernel", "launches", "blocks", "threads", "shared"
    );
    for (name, it) in needed {
        let launch = it.launch;
        let _ = writeln!(
            text,
            "{name:<44} {:>9} {:>11} {:>8} {:>8}  {}",
            it.launches, launch.blocks, launch.threads, launch.shared, it.what
        );
    }
    if !others.is_empty() {
        let _ = writeln!(text, "\nwithout a kernel of its own");
    }
    for ((what, how), count) in others {
        let _ = writeln!(text, "{count:>9} x {what}: {how}");
    }
    if let Some(compiled) = compiled {
        let _ = writeln!(text, "\n{compiled}");
    }
    text
}

/// Writes the program of all kernels, and what it is compiled to if the compiler is there; what was
/// done.
fn write<'a>(
    folder: &Path,
    kernels: impl Iterator<Item = &'a Kernel>,
    arguments: &KernelsArguments,
) -> Result<String, Failure> {
    let architecture = &arguments.arch;
    let put = |name: &str, bytes: &[u8]| written::write(&folder.join(name), bytes);
    fs::create_dir_all(folder).map_err(|error| Failure::unwritten(folder, &error))?;
    let source = device_program(kernels);
    put("kernels.cu", source.as_bytes())?;
    let folders: Vec<_> = arguments.libraries.iter().cloned().collect();
    let nvrtc = match Nvrtc::load(&folders) {
        Ok(nvrtc) => nvrtc,
        Err(missing) => {
            return Ok(format!("written: kernels.cu; not compiled: {missing}"));
        }
    };
    let compiled =
        nvrtc.compile(&source, architecture).map_err(|error| Failure::internal("kernels", error))?;
    put(&format!("kernels.{architecture}.cubin"), &compiled.cubin)?;
    put(&format!("kernels.{architecture}.ptx"), compiled.ptx.as_bytes())?;
    let usages = device::usage(&compiled.log);
    let registers = usages.iter().map(|it| it.registers).max().unwrap_or(0);
    let spilled: Vec<&str> = usages.iter().filter(|it| it.spilled > 0).map(|it| it.name.as_str()).collect();
    let spills = if spilled.is_empty() { "none spills".to_owned() } else { format!("spill: {spilled:?}") };
    let (major, minor) = nvrtc.version;
    Ok(format!(
        "written: kernels.cu, kernels.{architecture}.ptx, kernels.{architecture}.cubin (NVRTC {major}.{minor}; \
         {registers} registers at most, {spills})"
    ))
}
