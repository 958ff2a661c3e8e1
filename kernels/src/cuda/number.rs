//! Element types in C: how they are stored, what kernels compute with, and conversion.

use planner_ir::DType;

use crate::number::computed_as;

/// Whether kernels know such elements: numbers of 8 bits with a fraction they do not.
pub(super) fn is_covered(dtype: DType) -> bool {
    !dtype.is_f8()
}

/// How an element is stored.
pub(super) fn stored(dtype: DType) -> &'static str {
    match dtype {
        DType::F64 => "double",
        DType::F32 => "float",
        DType::F16 | DType::BF16 | DType::U16 => "t_u16",
        DType::I64 => "t_i64",
        DType::I32 => "t_i32",
        DType::I16 => "t_i16",
        DType::I8 => "t_i8",
        DType::U64 => "t_u64",
        DType::U32 => "t_u32",
        DType::U8 | DType::Bool => "t_u8",
        DType::F8E4M3FN | DType::F8E4M3FNUZ | DType::F8E5M2 | DType::F8E5M2FNUZ => "t_u8",
    }
}

/// The number that kernels compute with in its place.
pub(super) fn computed(dtype: DType) -> &'static str {
    match computed_as(dtype) {
        DType::F64 => "double",
        DType::F32 => "float",
        DType::U64 => "t_u64",
        DType::Bool => "int",
        _ => "t_i64",
    }
}

/// What the functions of such numbers end in.
pub(super) fn suffix(dtype: DType) -> &'static str {
    match computed_as(dtype) {
        DType::F64 => "d",
        DType::F32 => "f",
        DType::U64 => "u",
        _ => "i",
    }
}

/// A stored element as a number to compute with.
pub(super) fn loaded(dtype: DType, element: &str) -> String {
    format!("({}({element}))", loading(dtype))
}

/// A number to compute with as it is stored.
pub(super) fn narrowed(dtype: DType, number: &str) -> String {
    format!("({})({}({number}))", stored(dtype), narrowing(dtype))
}

/// What an element as it is stored is made a number with.
pub(super) fn loading(dtype: DType) -> &'static str {
    match dtype {
        DType::F16 => "t_float_of_half",
        DType::BF16 => "t_float_of_bf16",
        DType::Bool => "0 != ",
        _ => match computed_as(dtype) {
            DType::I64 => "(t_i64)",
            DType::U64 => "(t_u64)",
            _ => "",
        },
    }
}

/// What a number is made an element as it is stored with.
pub(super) fn narrowing(dtype: DType) -> &'static str {
    match dtype {
        DType::F16 => "t_half_of_float",
        DType::BF16 => "t_bf16_of_float",
        _ => "",
    }
}

/// A number, of what is computed with for the one type, as a number that is computed with for the
/// other; what is stored of it is the conversion.
pub(super) fn converted(from: DType, to: DType, number: &str) -> String {
    let (source, target) = (computed_as(from), computed_as(to));
    match (source, to) {
        _ if from == to => number.to_owned(),
        (_, DType::Bool) => format!("(({number}) != 0)"),
        (DType::F64, DType::F16 | DType::BF16) => format!("t_odd({number})"),
        (DType::I64 | DType::U64, DType::F16 | DType::BF16) => format!("t_odd((double)({number}))"),
        (DType::F64 | DType::F32, _) if !to.is_float() => clamped(to, number),
        _ if source == target => number.to_owned(),
        _ => format!("({})({number})", computed(to)),
    }
}

/// A floating-point number as an integer.
fn clamped(to: DType, number: &str) -> String {
    let within = |low: &str, high: &str| format!("t_clamp(t_i64_of_d({number}), {low}, {high})");
    match to {
        DType::I32 => within("-2147483648ll", "2147483647ll"),
        DType::I16 => within("-32768", "32767"),
        DType::I8 => within("-128", "127"),
        DType::U32 => format!("(t_u64){}", within("0", "4294967295ll")),
        DType::U16 => format!("(t_u64){}", within("0", "65535")),
        DType::U8 => format!("(t_u64){}", within("0", "255")),
        DType::U64 => format!("t_u64_of_d({number})"),
        _ => format!("t_i64_of_d({number})"),
    }
}

/// A number that was computed with, as what is loaded of it after it was stored.
pub(super) fn rounded(dtype: DType, number: &str) -> String {
    match dtype {
        DType::F64 | DType::F32 | DType::I64 | DType::U64 => number.to_owned(),
        _ => loaded(dtype, &narrowed(dtype, number)),
    }
}

/// A number in C.
pub(super) fn literal(dtype: DType, number: f64) -> String {
    let suffix = if computed_as(dtype) == DType::F32 { "f" } else { "" };
    let infinity = if suffix == "f" { "T_INFINITY_F" } else { "T_INFINITY_D" };
    match number {
        _ if number.is_nan() => format!("({infinity} - {infinity})"),
        _ if number.is_infinite() && number > 0.0 => infinity.to_owned(),
        _ if number.is_infinite() => format!("(-{infinity})"),
        _ if suffix == "f" => {
            #[expect(clippy::cast_possible_truncation, reason = "rounding to the nearest is meant")]
            let number = number as f32;
            if number.is_infinite() { literal(dtype, f64::from(number)) } else { format!("({number:?}f)") }
        }
        _ => format!("({number:?})"),
    }
}
