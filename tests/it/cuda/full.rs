//! What plans of full-size models launch on a GPU: products of matrices, and no contraction that a thread
//! to a number computes.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use std::time::Instant;

use device::{Task, tasks};
use driver::pipeline;
use files::plan_file;
use kernels::cuda::{Uncovered, product};
use lower::{Action, Program};
use planner_ir::Op;

use crate::cli::Folder;
use crate::corpus::{expect_none, full};
use crate::tier::one_of;

/// What a floating-point contraction may take (FLOPs) whose results are computed by a thread each.
const MOST: u64 = 1_000_000;

/// On how many devices models are planned, and what one may hold.
const PLANNED: [&str; 4] = ["--mesh", "8", "--memory", "2TB"];

/// What products are called that would be none if every value lay row-major.
const ROW_MAJOR: &str = "no products if values lay row-major";

/// How many there are of each kind of launch, and their FLOPs.
#[derive(Default)]
struct Counts(BTreeMap<&'static str, (u64, u64)>);

impl Counts {
    fn add(&mut self, kind: &'static str, times: usize, flops: u64) {
        let count = self.0.entry(kind).or_default();
        *count = (count.0 + u64::try_from(times).unwrap(), count.1 + flops);
    }
}

/// Counts what a task launches; what is wrong with it.
fn counted(program: &Program, task: &Task, counts: &mut Counts) -> Option<String> {
    let Action::Compute(compute) = &program.instructions[task.at].action else { return None };
    let Op::Contract(contract) = &*compute.op else {
        counts.add("launches of others", task.work.as_ref().map_or(1, |it| it.launches.len()), 0);
        return None;
    };
    let [left, right, made] = [&compute.operands[0], &compute.operands[1], &compute.results[0]]
        .map(|it| &program.buffer(it.buffer).type_);
    let summed = contract.left.iter().zip(&left.shape).filter(|it| !contract.result.contains(it.0));
    let flops = 2 * made.elements() * summed.map(|it| *it.1).product::<u64>();
    if made.dtype.is_float() && flops > MOST && product(contract, [left, right], made).is_none() {
        counts.add(ROW_MAJOR, 1, flops);
    }
    let fault = |what: &str| Some(format!("{} is {what}: {contract:?} of {left} by {right}", compute.name));
    match &task.work {
        Err(Uncovered::Library(it)) => {
            counts.add("products", 1, flops);
            counts.add("copies", it.before.len() + it.after.len(), 0);
            let is_dot = it.product.rows == 1 && it.product.columns == 1;
            if is_dot { fault("a dot by the library") } else { None }
        }
        Err(reason) => fault(&reason.to_string()),
        Ok(work) if work.launches.iter().any(|it| it.kernel.family() == "contract") => {
            counts.add("by a thread to a number", work.launches.len(), flops);
            if made.dtype.is_float() && flops > MOST { fault("by a thread to a number") } else { None }
        }
        Ok(work) => {
            counts.add("dots", work.launches.len(), flops);
            None
        }
    }
}

/// The programs of a model: of a training step, if it has a loss.
fn programs(path: &Path) -> Vec<Program> {
    let title = full::title(path);
    let folder = Folder::new(&format!("full-{title}"));
    let (model, plan) = (folder.0.join("model.onnx"), folder.0.join("plan.json"));
    std::fs::write(&model, full::unpacked(path)).unwrap();
    let (model, output) = (model.display().to_string(), plan.display().to_string());
    let machine = "h100-80g-8x";
    let mut arguments: Vec<String> = ["shardloom", "-q", "plan", &model, "-o", &output, "--machine", machine]
        .into_iter()
        .chain(PLANNED)
        .chain(["--in-time", "never"])
        .map(str::to_owned)
        .collect();
    let bindings = full::bound(path, &import::read(full::unpacked(path).into()).unwrap());
    for (symbol, size) in bindings.dims {
        arguments.extend(["--dim".to_owned(), format!("{symbol}={size}")]);
    }
    if title.contains("loss") {
        let training = ["--mode", "train", "--loss", "loss", "--precision", "bf16", "--clip", "1"];
        arguments.extend(training.map(str::to_owned));
    }
    let mut error = Vec::new();
    let code = shardloom::main_with(arguments, &mut Vec::new(), &mut error);
    assert_eq!(code, 0, "{title}: {}", String::from_utf8_lossy(&error));
    pipeline::lower(&plan_file::read_checked(&plan).unwrap(), &mut |_, _| {}).unwrap()
}

#[test]
fn plans_of_full_size_models_multiply_matrices() {
    let (mut faults, mut turned) = (Vec::new(), 0);
    for path in one_of(3, &full::models()) {
        let title = full::title(path);
        faults.extend(crate::corpus::faults_of(&title, || {
            let program = &programs(path)[0];
            let (start, mut counts) = (Instant::now(), Counts::default());
            let all = tasks(program);
            let found = all.iter().filter_map(|task| counted(program, task, &mut counts));
            let found: Vec<String> = found.map(|it| format!("{title}: {it}")).collect();
            turned += counts.0.get(ROW_MAJOR).map_or(0, |it| it.0);
            let mut text = format!("{title}, tasks in {:?}", start.elapsed());
            for (kind, (count, flops)) in counts.0 {
                // Writing to a string does not fail.
                let _ = write!(text, "; {count} {kind}");
                if flops > 0 {
                    let _ = write!(text, " ({} GFLOP)", flops / 1_000_000_000);
                }
            }
            println!("{text}");
            found
        }));
    }
    assert!(turned > 0, "no value has to lie otherwise than row-major: this shows nothing");
    expect_none(&faults);
}
