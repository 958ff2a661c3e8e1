//! Functions of elements, and of all elements along dimensions.

use planner_ir::DType;

use super::case::{Case, Operand, Random, count};

pub(super) fn case(name: &str, random: &mut Random) -> Option<Case> {
    let shape = random.shape(0, 3);
    let dim = |random: &mut Random, shape: &[u64]| random.below(shape.len());
    Some(match name {
        "abs" | "relu" | "reciprocal" => Case::new(name, [random.nonzero(&shape)]),
        "log" | "sqrt" => Case::new(name, [random.positive(&shape)]),
        "cos" | "erf" | "exp" | "gelu" | "gelu_tanh" | "gelu_quick" | "neg" | "sigmoid" | "silu" | "sin"
        | "softplus" | "tanh" => Case::new(name, [random.plain(&shape)]),
        "add" | "sub" | "mul" => {
            let [a, b] = repeated(random, &shape);
            Case::new(name, [random.plain(&a), random.plain(&b)])
        }
        "div" => {
            let [a, b] = repeated(random, &shape);
            Case::new(name, [random.plain(&a), random.nonzero(&b)])
        }
        "max" | "min" => {
            let [a, b] = repeated(random, &shape);
            Case::new(name, [random.distinct(&a), shifted(random, &b)])
        }
        "mod" | "fmod" => remainder(name, random, &shape),
        "pow" => power(random, &shape),
        "select" => {
            let [a, b] = repeated(random, &shape);
            let condition = random.repeated(&shape);
            Case::new(name, [random.truths(&condition), random.plain(&a), random.plain(&b)])
        }
        "cast" => cast(random, &shape),
        "gated" => {
            let activation = random.one_of(&["silu", "gelu", "gelu_tanh", "sigmoid", "relu", "tanh"]);
            let [a, b] = if random.flip() { [shape.clone(), shape] } else { repeated(random, &shape) };
            Case::new(&format!("gated activation={activation}"), [random.nonzero(&a), random.plain(&b)])
        }
        "dropout" => {
            let (ratio, seed) = (random.one_of(&[0.0, 0.25, 0.5, 0.9]), random.below(1000));
            let mut operands = vec![random.plain(&shape)];
            if random.flip() {
                operands.push(Operand::integers(&[], &[random.between(-9, 9)]));
            }
            Case::new(&format!("dropout ratio={ratio:?} seed={seed}"), operands)
        }
        "reduce_sum" | "reduce_mean" | "reduce_max" | "reduce_min" | "reduce_product" => {
            let dims: Vec<usize> = (0..shape.len()).filter(|_| random.flip()).collect();
            let operand = match name {
                "reduce_product" => {
                    let numbers: Vec<f64> =
                        (0..count(&shape)).map(|_| random.one_of(&[0.0, -1.5, 0.5, 2.0])).collect();
                    Operand::free(&shape, &numbers)
                }
                _ => random.distinct(&shape),
            };
            Case::new(&format!("{name} dims={}", listed(&dims)), [operand])
        }
        "softmax" | "log_softmax" => {
            let shape = random.shape(1, 3);
            Case::new(&format!("{name} dim={}", dim(random, &shape)), [random.plain(&shape)])
        }
        "cum_sum" => {
            let shape = random.shape(1, 3);
            let (dim, exclusive, reverse) = (dim(random, &shape), random.flip(), random.flip());
            let op = format!("cum_sum dim={dim} exclusive={exclusive} reverse={reverse}");
            Case::new(&op, [random.plain(&shape)])
        }
        "cross_entropy" => {
            let rows = random.shape(0, 2);
            let classes = random.between(1, 4);
            let ignored = random.one_of(&[-100, 0, classes - 1]);
            let label = |random: &mut Random| match random.below(4) {
                0 => ignored,
                _ => random.between(0, classes - 1),
            };
            let labels: Vec<i64> = (0..count(&rows)).map(|_| label(random)).collect();
            let scores = [&rows[..], &[classes.unsigned_abs()]].concat();
            let operands = [random.plain(&scores), Operand::integers(&rows, &labels)];
            Case::new(&format!("cross_entropy ignored={ignored}"), operands)
        }
        _ => return None,
    })
}

/// A list as operations write it.
pub(super) fn listed<T: std::fmt::Display>(items: &[T]) -> String {
    let items: Vec<String> = items.iter().map(T::to_string).collect();
    format!("[{}]", items.join(","))
}

/// Two shapes that are repeated to this one (or to less of it).
fn repeated(random: &mut Random, shape: &[u64]) -> [Vec<u64>; 2] {
    let (whole, part) = (random.flip(), random.repeated(shape));
    let other = if whole { shape.to_vec() } else { random.repeated(shape) };
    if random.flip() { [other, part] } else { [part, other] }
}

/// Numbers that are near none of [`Random::distinct`].
fn shifted(random: &mut Random, shape: &[u64]) -> Operand {
    let operand = random.distinct(shape);
    let numbers: Vec<f64> = operand.array.to_floats().unwrap().iter().map(|it| it + 1.0 / 16.0).collect();
    Operand::free(shape, &numbers)
}

/// Dividends that are near no multiple of any divisor, all of which are as large.
fn remainder(name: &str, random: &mut Random, shape: &[u64]) -> Case {
    let [a, b] = repeated(random, shape);
    let dividend =
        |random: &mut Random| 0.75 * (random.one_of(&[-2.0, -1.0, 0.0, 1.0, 2.0]) + random.number(0.2, 0.8));
    let dividends: Vec<f64> = (0..count(&a)).map(|_| dividend(random)).collect();
    let divisors: Vec<f64> = (0..count(&b)).map(|_| random.one_of(&[-0.75, 0.75])).collect();
    Case::new(name, [Operand::free(&a, &dividends), Operand::free(&b, &divisors).unasked()])
}

/// Powers of numbers above 0, and of any number with integers as exponents.
fn power(random: &mut Random, shape: &[u64]) -> Case {
    let [a, b] = repeated(random, shape);
    match random.below(3) {
        0 => Case::new("pow", [random.positive(&a), random.plain(&b)]),
        1 => {
            let exponents: Vec<i64> = (0..count(&b)).map(|_| random.between(-2, 3)).collect();
            Case::new("pow", [random.nonzero(&a), Operand::integers(&b, &exponents).unasked()])
        }
        _ => {
            // Zero has a derivative too: by exponents of 1 at least, and by 0, which makes it constant.
            let base: Vec<f64> = (0..count(&a)).map(|_| random.one_of(&[-1.5, 0.0, 0.5, 2.0])).collect();
            let exponents: Vec<i64> = (0..count(&b)).map(|_| random.between(0, 3)).collect();
            let exponents = Operand::integers(&b, &exponents).cast(random.one_of(&[DType::F64, DType::F32]));
            Case::new("pow", [Operand::free(&a, &base), exponents.unasked()])
        }
    }
}

/// Numbers that every type has, to and from narrower floats, and from integers.
fn cast(random: &mut Random, shape: &[u64]) -> Case {
    let numbers: Vec<f64> = (0..count(shape)).map(|_| random.one_of(&[-1.5, -0.5, 0.25, 1.0])).collect();
    let (from, to) = random.one_of(&[
        (DType::F64, DType::F64),
        (DType::F32, DType::F64),
        (DType::F32, DType::F32),
        (DType::BF16, DType::F32),
        (DType::I64, DType::F32),
    ]);
    let operand = Operand::free(shape, &numbers).cast(from);
    let operand = if from.is_float() { operand } else { Operand::fixed(operand.array) };
    Case::new(&format!("cast to={}", to.name()), [operand])
}
