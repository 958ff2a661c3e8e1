//! The elements of constants: a list of numbers, or the bytes where that would not be exact.

use std::fmt;

use super::attribute::Attribute;
use super::print::Print;
use super::scan::{Result, Scan};
use crate::data::{DType, Type};

/// Constants of more elements than this are written as bytes.
const MAX_LISTED: usize = 64;

/// Writes the elements of a constant of that type.
pub(super) fn print_data(result: &Type, data: &[u8], print: &mut Print<'_>) -> fmt::Result {
    if let Some(numbers) = numbers(result.dtype, data) {
        print.text("[")?;
        print.list(numbers, ",", |print, number| print.text(number))?;
        return print.text("]");
    }
    print.text("0x")?;
    print.list(data, "", |print, byte| print.text(format_args!("{byte:02x}")))
}

/// Reads them.
pub(super) fn parse_data(result: &Type, scan: &mut Scan<'_>) -> Result<Vec<u8>> {
    if scan.eat("0x") {
        return scan.hexadecimal();
    }
    let dtype = result.dtype;
    let mut data = Vec::new();
    scan.expect("[")?;
    if scan.eat("]") {
        return Ok(data);
    }
    loop {
        element(dtype, scan, &mut data)?;
        if scan.eat("]") {
            return Ok(data);
        }
        if !scan.eat(",") {
            return scan.error("`,` or `]`");
        }
    }
}

/// The elements as numbers that are read back exactly, if they are few and there are such.
fn numbers(dtype: DType, data: &[u8]) -> Option<Vec<String>> {
    let size = usize::try_from(dtype.bytes()).ok()?;
    if !data.len().is_multiple_of(size) || data.len() / size > MAX_LISTED {
        return None;
    }
    data.chunks(size).map(|bytes| number(dtype, bytes)).collect()
}

fn number(dtype: DType, bytes: &[u8]) -> Option<String> {
    let mut wide = [0; 8];
    wide[..bytes.len()].copy_from_slice(bytes);
    let four = || -> Option<[u8; 4]> { bytes.try_into().ok() };
    match dtype {
        DType::F64 => float(f64::from_le_bytes(wide), f64::NAN.to_bits() == u64::from_le_bytes(wide)),
        DType::F32 => {
            let value = f32::from_le_bytes(four()?);
            if value.is_nan() {
                return float(f64::NAN, f32::NAN.to_bits() == value.to_bits());
            }
            if value.is_infinite() { float(f64::from(value), false) } else { Some(format!("{value:?}")) }
        }
        // There is no exact decimal form short enough to be read.
        DType::F16 | DType::BF16 => None,
        DType::F8E4M3FN | DType::F8E4M3FNUZ | DType::F8E5M2 | DType::F8E5M2FNUZ => None,
        DType::I64 => Some(i64::from_le_bytes(wide).to_string()),
        DType::I32 => Some(i32::from_le_bytes(four()?).to_string()),
        DType::I16 => Some(i16::from_le_bytes(bytes.try_into().ok()?).to_string()),
        DType::I8 => Some(i8::from_le_bytes(bytes.try_into().ok()?).to_string()),
        DType::U64 | DType::U32 | DType::U16 | DType::U8 => Some(u64::from_le_bytes(wide).to_string()),
        DType::Bool => match bytes {
            [0] => Some("false".to_owned()),
            [1] => Some("true".to_owned()),
            _ => None,
        },
    }
}

/// `usual_nan`: a not-a-number is written only if it has the usual bits.
fn float(value: f64, usual_nan: bool) -> Option<String> {
    if value.is_nan() {
        return usual_nan.then(|| "nan".to_owned());
    }
    Some(format!("{value:?}"))
}

fn element(dtype: DType, scan: &mut Scan<'_>, data: &mut Vec<u8>) -> Result<()> {
    const INTEGER: &str = "an integer that the element type holds";
    match dtype {
        DType::F64 => data.extend(real(scan, f64::NAN)?.to_le_bytes()),
        DType::F32 => data.extend(real(scan, f32::NAN)?.to_le_bytes()),
        DType::F16
        | DType::BF16
        | DType::F8E4M3FN
        | DType::F8E4M3FNUZ
        | DType::F8E5M2
        | DType::F8E5M2FNUZ => return scan.error("the bytes of these elements, as `0x..`"),
        DType::I64 => data.extend(scan.number::<i64>(INTEGER)?.to_le_bytes()),
        DType::I32 => data.extend(scan.number::<i32>(INTEGER)?.to_le_bytes()),
        DType::I16 => data.extend(scan.number::<i16>(INTEGER)?.to_le_bytes()),
        DType::I8 => data.extend(scan.number::<i8>(INTEGER)?.to_le_bytes()),
        DType::U64 => data.extend(scan.number::<u64>(INTEGER)?.to_le_bytes()),
        DType::U32 => data.extend(scan.number::<u32>(INTEGER)?.to_le_bytes()),
        DType::U16 => data.extend(scan.number::<u16>(INTEGER)?.to_le_bytes()),
        DType::U8 => data.extend(scan.number::<u8>(INTEGER)?.to_le_bytes()),
        DType::Bool => data.push(u8::from(bool::parse(scan)?)),
    }
    Ok(())
}

fn real<T: std::str::FromStr>(scan: &mut Scan<'_>, nan: T) -> Result<T> {
    let at = scan.place();
    let text = scan.run(|it| it.is_ascii_alphanumeric() || matches!(it, '+' | '-' | '.'));
    if text == "nan" {
        return Ok(nan);
    }
    text.parse().or_else(|_| scan.error_at(at, "a number, `inf`, `-inf` or `nan`"))
}
