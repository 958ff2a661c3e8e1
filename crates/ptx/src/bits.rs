//! Numbers as the bits of registers: a register holds 64 bits, of which the upper ones are zero if it is shorter.

/// The values of a register, a lane each.
pub(crate) type Lanes = [u64; 32];

/// The lower 32 bits.
pub(crate) fn low(bits: u64) -> u32 {
    u32::try_from(bits & 0xffff_ffff).unwrap_or(0)
}

/// The lower 16 bits.
pub(crate) fn short(bits: u64) -> u16 {
    u16::try_from(bits & 0xffff).unwrap_or(0)
}

/// As many lower bits as a register has.
pub(crate) fn mask(width: u32) -> u64 {
    if width >= 64 { u64::MAX } else { (1 << width) - 1 }
}

/// A signed number of 32 bits.
pub(crate) fn signed(bits: u64) -> i32 {
    low(bits).cast_signed()
}

/// The bits of a signed number of 32 bits.
pub(crate) fn of_signed(number: i32) -> u64 {
    number.cast_unsigned().into()
}

/// A number of 32 bits in binary floating point.
pub(crate) fn single(bits: u64) -> f32 {
    f32::from_bits(low(bits))
}

/// The bits of a number of 32 bits.
pub(crate) fn of_single(number: f32) -> u64 {
    number.to_bits().into()
}

/// A number of 64 bits in binary floating point.
pub(crate) fn double(bits: u64) -> f64 {
    f64::from_bits(bits)
}

/// The lower bits of a number, its sign in all that are above them.
pub(crate) fn extended(bits: u64, width: u32) -> u64 {
    let unused = 64 - width.min(64);
    ((bits << unused).cast_signed() >> unused).cast_unsigned()
}

/// The lanes of a mask, in order.
pub(crate) fn lanes(mask: u32) -> impl Iterator<Item = usize> {
    (0..32).filter(move |lane| mask >> lane & 1 == 1)
}

/// A small number as a place.
pub(crate) fn place(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}
