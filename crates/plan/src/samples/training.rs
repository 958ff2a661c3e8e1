//! Random training steps: as many parameters, kinds of states and phases as there are, and
//! gradients that need not be right.

use std::fmt::Write;

use arbtest::arbitrary::{Result, Unstructured};
use planner_ir::{Graph, Optimizer, Real, parse_graph};

use crate::{Constant, Loss, Masters, NoDecay, Precision, Recipe, Recompute, Roles, Tie, Why};

/// A training step of a few products, and how it was asked for.
pub(crate) fn random(u: &mut Unstructured<'_>) -> Result<(Graph, Recipe)> {
    let decay = Real(f64::from(u.int_in_range(0..=4u32)?) / 8.0);
    let optimizer = match u.int_in_range(0..=2)? {
        0 => Optimizer::Sgd { decay },
        1 => Optimizer::Momentum { momentum: Real(0.9), decay },
        _ => Optimizer::AdamW { beta1: Real(0.9), beta2: Real(0.95), epsilon: Real(1e-8), decay },
    };
    let layers = u.int_in_range(1..=2)?;
    let kept = Recompute::AllBut(vec![0, 3]);
    let recompute = [Recompute::Nothing, Recompute::Selective, Recompute::Full, kept];
    let precision =
        *u.choose(&[Precision::F32, Precision::Bf16, Precision::Bf16Stochastic, Precision::File])?;
    let masters = *u.choose(&[Masters::Beside, Masters::Alone])?;
    let recipe = Recipe {
        precision,
        masters: if precision == Precision::Bf16Stochastic { Masters::Beside } else { masters },
        micro_batches: u.int_in_range(1..=4)?,
        clip: if u.arbitrary()? { Some(1.5) } else { None },
        no_decay: NoDecay {
            names: if u.arbitrary()? { vec!["*bias".to_owned()] } else { vec![] },
            vectors: u.arbitrary()?,
        },
        recompute: (0..layers).map(|_| u.choose(&recompute).cloned()).collect::<Result<_>>()?,
        roles: roles(u)?,
        spelled: if u.arbitrary()? { (0..layers).collect() } else { vec![] },
        ..Recipe::new(
            if u.arbitrary()? {
                Loss::Output("loss".to_owned())
            } else {
                Loss::CrossEntropy { logits: "logits".to_owned(), labels: "labels".to_owned() }
            },
            optimizer,
        )
    };
    let decays: Vec<bool> = (0..layers).map(|_| u.arbitrary()).collect::<Result<_>>()?;
    let graph = parse_graph(&text(&recipe, &decays)).expect("the text is that of a graph");
    Ok((graph, recipe))
}

fn roles(u: &mut Unstructured<'_>) -> Result<Roles> {
    let names = |name: &str, u: &mut Unstructured<'_>| {
        Ok(if u.arbitrary()? { vec![name.to_owned()] } else { vec![] })
    };
    let tie = Tie { copy: "copy".to_owned(), original: "w0".to_owned(), transposed: u.arbitrary()? };
    Ok(Roles {
        frozen: names("table", u)?,
        trained: names("w*", u)?,
        untied: names("other*", u)?,
        constants: vec![Constant { name: "table".to_owned(), why: *u.choose(&Why::ALL)? }],
        ties: if u.arbitrary()? { vec![tie] } else { vec![] },
    })
}

/// A program of layers `x = gelu(x w)`, whose loss is the sum of the last one's results; for each
/// whether its parameter decays.
fn text(recipe: &Recipe, decays: &[bool]) -> String {
    let mut program = Program::default();
    let half = recipe.precision != Precision::F32;
    let alone = recipe.precision == Precision::Bf16Stochastic;
    let full = recipe.masters == Masters::Alone;
    let (number, shape) = (if half { "bf16" } else { "f32" }, "[16,16]");
    let kept = if full { "f32" } else { number };
    let x = program.source("input \"x\"", &format!("{number}[8,16]"));
    let rate = program.source("input \"rate\"", "f32[]");
    let step = program.source("input \"step\"", "f32[]");
    let mut rounding = alone.then(|| program.source("input \"rounding\"", "i64[]"));
    let table = program.source("weight \"table\"", &format!("{number}[16,16]"));
    let total = program.source("total \"loss\"", "f32[]");
    let moments = ["first_moment", "second_moment"];
    let layer = |program: &mut Program, it: usize| Layer {
        parameter: program.source(&format!("parameter \"w{it}\""), &format!("{kept}{shape}")),
        master: (half && !alone && !full)
            .then(|| program.source(&format!("master \"w{it}\""), &format!("f32{shape}"))),
        moments: moments[..recipe.optimizer.moments()]
            .iter()
            .map(|kind| program.source(&format!("{kind} \"w{it}\""), &format!("f32{shape}")))
            .collect(),
        gradient: program.source(&format!("gradient \"w{it}\""), &format!("f32{shape}")),
    };
    // Where only what is used is in bf16, it is made in each phase.
    let used = |program: &mut Program, phase: &str, layer: &Layer| match half && full {
        true => program.op(phase, &format!("cast to=bf16 %{}", layer.parameter), &format!("bf16{shape}")),
        false => layer.parameter,
    };
    let layers: Vec<Layer> = (0..decays.len()).map(|it| layer(&mut program, it)).collect();
    // Forward.
    let type_ = format!("{number}[8,16]");
    let mut last = program.op("", &format!("contract \"ab,bc->ac\" %{x} %{table}"), &type_);
    let mut kept = Vec::new();
    for layer in &layers {
        let turned = format!("transpose permutation=[1,0] %{}", used(&mut program, "", layer));
        let turned = program.op("", &turned, &format!("{number}{shape}"));
        let product = format!("contract \"ab,cb->ac\" %{last} %{turned}");
        let product = program.op("", &product, &type_);
        kept.push((last, product));
        last = program.op("", &format!("gelu %{product}"), &type_);
    }
    let wide = program.op("", &format!("cast to=f32 %{last}"), "f32[8,16]");
    let sum = program.op("", &format!("reduce_sum dims=[0,1] %{wide}"), "f32[1,1]");
    let loss = program.op("", &format!("reshape shape=[] %{sum}"), "f32[]");
    let summed = program.op("", &format!("add %{total} %{loss}"), "f32[]");
    program.carried.push((total, summed));
    // Backward.
    let mut gradient = last;
    let mut sums = Vec::new();
    for (layer, &(before, product)) in layers.iter().zip(&kept).rev() {
        let of_product = format!("unary_gradient function=gelu %{product} %{gradient}");
        let of_product = program.op(" in backward", &of_product, &type_);
        let outer = format!("contract \"ab,ac->bc\" %{before} %{of_product}");
        let outer = program.op(" in gradient", &outer, &format!("{number}{shape}"));
        let outer = program.op(" in gradient", &format!("cast to=f32 %{outer}"), &format!("f32{shape}"));
        let sum = format!("add %{} %{outer}", layer.gradient);
        let sum = program.op(" in gradient", &sum, &format!("f32{shape}"));
        program.carried.push((layer.gradient, sum));
        sums.push(sum);
        let parameter = used(&mut program, " in backward", layer);
        let back = format!("contract \"ac,bc->ab\" %{of_product} %{parameter}");
        gradient = program.op(" in backward", &back, &type_);
    }
    // Update.
    let update = " in update";
    let scale = program.op(update, &format!("reciprocal %{summed}"), "f32[]");
    for (index, ((layer, decays), sum)) in layers.iter().zip(decays).rev().zip(sums).enumerate() {
        let mut of = layer.master.unwrap_or(layer.parameter);
        if alone {
            of = program.op(update, &format!("cast to=f32 %{of}"), &format!("f32{shape}"));
        }
        let mut operands = vec![of, sum];
        operands.extend(&layer.moments);
        operands.extend([scale, rate]);
        if recipe.optimizer.numbers() == 3 {
            operands.push(step);
        }
        let next = program.update(&optimizer(recipe, *decays), &operands, 1 + layer.moments.len());
        program.carried.extend(layer.moments.iter().copied().zip(next + 1..));
        if let Some(number) = &mut rounding {
            // Layers are of one block, or each is one.
            let together = recipe.micro_batches.is_multiple_of(2);
            let seed = if together { index } else { 0 };
            if seed == 0 {
                let one = program.op(update, "fill type=i64[] value=1.0", "i64[]");
                *number = program.op(update, &format!("add %{number} %{one}"), "i64[]");
            }
            let rounded = format!("round_stochastically seed={seed} %{next} %{number}");
            let next = program.op(update, &rounded, &format!("bf16{shape}"));
            program.carried.push((layer.parameter, next));
            continue;
        }
        program.carried.push((of, next));
        if layer.master.is_some() {
            let next = program.op(update, &format!("cast to=bf16 %{next}"), &format!("bf16{shape}"));
            program.carried.push((layer.parameter, next));
        }
    }
    let mean = program.op(update, &format!("mul %{summed} %{scale}"), "f32[]");
    program.text(recipe.micro_batches, mean)
}

fn optimizer(recipe: &Recipe, decays: bool) -> Optimizer {
    let mut optimizer = recipe.optimizer;
    if !decays {
        let (Optimizer::Sgd { decay } | Optimizer::Momentum { decay, .. } | Optimizer::AdamW { decay, .. }) =
            &mut optimizer;
        *decay = Real(0.0);
    }
    optimizer
}

/// The states of a layer.
struct Layer {
    parameter: usize,
    master: Option<usize>,
    moments: Vec<usize>,
    gradient: usize,
}

/// A text so far.
#[derive(Default)]
struct Program {
    lines: String,
    values: usize,
    carried: Vec<(usize, usize)>,
}

impl Program {
    fn source(&mut self, source: &str, type_: &str) -> usize {
        let value = self.values;
        self.values += 1;
        self.line(&format!("%{value} = {source} : {type_}"));
        value
    }

    fn op(&mut self, phase: &str, statement: &str, type_: &str) -> usize {
        let value = self.values;
        self.values += 1;
        self.line(&format!("%{value} = {statement} : {type_}{phase}"));
        value
    }

    /// The first of an optimizer's results.
    fn update(&mut self, optimizer: &Optimizer, operands: &[usize], results: usize) -> usize {
        let first = self.values;
        self.values += results;
        let list =
            |values: Vec<usize>| values.iter().map(|it| format!("%{it}")).collect::<Vec<_>>().join(" ");
        let made = list((first..self.values).collect()).replace(' ', ", ");
        let op = planner_ir::Op::Update(*optimizer);
        let types = vec!["f32[16,16]"; results].join(", ");
        self.line(&format!("{made} = {op} {} : {types} in update", list(operands.to_vec())));
        first
    }

    fn line(&mut self, line: &str) {
        writeln!(self.lines, "  {line}").expect("writing to memory does not fail");
    }

    fn text(mut self, micro_batches: u64, output: usize) -> String {
        self.carried.sort_unstable();
        let carried: Vec<String> =
            self.carried.iter().map(|(state, next)| format!("%{state} becomes %{next}")).collect();
        self.line(&format!("return \"loss\" %{output}"));
        self.line(&format!("train {micro_batches} {}", carried.join(", ")));
        format!("graph \"step\" {{\n{}}}\n", self.lines)
    }
}
