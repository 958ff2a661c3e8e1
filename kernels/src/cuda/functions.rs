//! Functions of elements in C.

use planner_ir::{Binary, DType, Optimizer, Unary};

use super::launch::Uncovered;
use super::number::{computed, converted, literal, suffix};

/// The function of a number that is computed with for that type.
pub(super) fn unary(function: Unary, dtype: DType, x: &str) -> Result<String, Uncovered> {
    let missing = || Uncovered::Missing(format!("{function:?} of {dtype}"));
    match (function, suffix(dtype)) {
        (Unary::Not, _) if dtype == DType::Bool => Ok(format!("!({x})")),
        (Unary::IsInf | Unary::IsNan, _) if !dtype.is_float() => Ok("0".to_owned()),
        (_, _) if dtype == DType::Bool => Err(missing()),
        (Unary::Neg, _) => Ok(format!("-({x})")),
        (_, suffix @ ("f" | "d")) if function != Unary::Not => {
            Ok(format!("t_{}_{suffix}({x})", function.name()))
        }
        (Unary::Ceil | Unary::Floor | Unary::Round, _) => Ok(x.to_owned()),
        (Unary::Abs | Unary::Relu, "u") => Ok(x.to_owned()),
        (Unary::Sign, "u") => Ok(format!("(t_u64)(({x}) != 0)")),
        (Unary::Abs, _) => Ok(format!("t_abs_i({x})")),
        (Unary::Relu, _) => Ok(format!("t_max_i({x}, 0)")),
        (Unary::Sign, _) => Ok(format!("t_sign_i({x})")),
        _ => Err(missing()),
    }
}

/// The derivative of a function of a floating-point number.
pub(super) fn derivative(function: Unary, dtype: DType, x: &str) -> Result<String, Uncovered> {
    if !function.is_smooth() || !dtype.is_float() {
        return Err(Uncovered::Missing(format!("the derivative of {function:?} of {dtype}")));
    }
    Ok(format!("t_d_{}_{}({x})", function.name(), suffix(dtype)))
}

/// The function of two numbers that are computed with for these types.
pub(super) fn binary(function: Binary, dtypes: [DType; 2], [a, b]: [&str; 2]) -> Result<String, Uncovered> {
    let [dtype, other] = dtypes;
    let infix = |sign: &str| format!("({a}) {sign} ({b})");
    let s = suffix(dtype);
    let named = |name: &str| format!("t_{name}_{s}({a}, {b})");
    let is_integer = matches!(s, "i" | "u");
    Ok(match function {
        Binary::Pow if dtype != other => return mixed_power(dtypes, [a, b]),
        Binary::Equal => infix("=="),
        Binary::And | Binary::Or | Binary::Xor if dtype == DType::Bool => match function {
            Binary::And => infix("&"),
            Binary::Or => infix("|"),
            _ => infix("^"),
        },
        _ if dtype == DType::Bool => {
            return Err(Uncovered::Missing(format!("{function:?} of {dtype}")));
        }
        Binary::Greater => infix(">"),
        Binary::GreaterOrEqual => infix(">="),
        Binary::Less => infix("<"),
        Binary::LessOrEqual => infix("<="),
        Binary::Add => infix("+"),
        Binary::Sub => infix("-"),
        Binary::Mul => infix("*"),
        Binary::Div if s == "i" => named("div"),
        Binary::Div => infix("/"),
        Binary::Max => named("max"),
        Binary::Min => named("min"),
        Binary::Mod | Binary::Fmod if s == "u" => infix("%"),
        Binary::Mod => named("mod"),
        Binary::Fmod => named("fmod"),
        Binary::Pow if s == "u" => format!("t_power({a}, {b})"),
        Binary::Pow if is_integer => named("pow"),
        Binary::Pow => named("power"),
        Binary::And | Binary::Or | Binary::Xor => {
            return Err(Uncovered::Missing(format!("{function:?} of {dtype}")));
        }
    })
}

/// A power whose exponent has other elements than its base.
fn mixed_power([base, exponent]: [DType; 2], [a, b]: [&str; 2]) -> Result<String, Uncovered> {
    if base.is_float() || !exponent.is_float() {
        let b = super::number::rounded(base, &converted(exponent, base, b));
        return binary(Binary::Pow, [base, base], [a, &b]);
    }
    let wide = |dtype, number| converted(dtype, DType::F64, number);
    let power = format!("t_power_d({}, {})", wide(base, a), wide(exponent, b));
    Ok(converted(DType::F64, base, &power))
}

/// An optimizer's step for one element: statements, and what the parameter and its moments become.
///
/// The numbers are p, g, the moments, scale, rate and, for `AdamW`, the step.
pub(super) fn update(
    optimizer: Optimizer,
    dtype: DType,
    numbers: &[String],
    own: &str,
) -> (Vec<String>, Vec<String>) {
    let number = |value: f64| literal(dtype, value);
    let (type_, s) = (computed(dtype), suffix(dtype));
    let (p, g) = (&numbers[0], &numbers[1]);
    let moments = &numbers[2..2 + optimizer.moments()];
    let (scale, rate) = (&numbers[2 + moments.len()], &numbers[3 + moments.len()]);
    let local = |name: &str, value: String| format!("const {type_} {own}{name} = {value};");
    match optimizer {
        Optimizer::Sgd { decay } => {
            let gradient = local("g", format!("{g} * {scale} + {p} * {}", number(decay.0)));
            (vec![gradient], vec![format!("{p} - {own}g * {rate}")])
        }
        Optimizer::Momentum { momentum, decay } => {
            let gradient = local("g", format!("{g} * {scale} + {p} * {}", number(decay.0)));
            let moment = local("m", format!("{} * {} + {own}g", moments[0], number(momentum.0)));
            (vec![gradient, moment], vec![format!("{p} - {own}m * {rate}"), format!("{own}m")])
        }
        Optimizer::AdamW { beta1, beta2, epsilon, decay } => {
            let step = &numbers[4 + moments.len()];
            // 1 - beta^step, without a difference of numbers that are nearly the same.
            let rest = |beta: f64| format!("-t_expm1_{s}({step} * {})", number(libm::log(beta)));
            let (m, v) = (&moments[0], &moments[1]);
            let statements = vec![
                local("g", format!("{g} * {scale}")),
                local("m", format!("{m} + ({own}g - {m}) * {}", number(1.0 - beta1.0))),
                local(
                    "v",
                    format!("{v} * {} + {own}g * {own}g * {}", number(beta2.0), number(1.0 - beta2.0)),
                ),
                local("stride", format!("{rate} / ({})", rest(beta1.0))),
                local("deviation", format!("t_sqrt_{s}({})", rest(beta2.0))),
                local("spread", format!("t_sqrt_{s}({own}v) / {own}deviation + {}", number(epsilon.0))),
            ];
            let parameter = format!(
                "{p} * ({} - {rate} * {}) - {own}m / {own}spread * {own}stride",
                number(1.0),
                number(decay.0)
            );
            (statements, vec![parameter, format!("{own}m"), format!("{own}v")])
        }
    }
}
