//! Messages of protobuf without their schema: read into fields, changed, and written again.

use super::dice::Dice;

/// What a field holds.
#[derive(Clone)]
enum Held {
    Varint(u64),
    Eight([u8; 8]),
    Four([u8; 4]),
    Bytes(Vec<u8>),
    Message(Vec<Field>),
}

/// A field of a message.
#[derive(Clone)]
struct Field {
    number: u64,
    held: Held,
}

/// Longer fields are data of weights, which are left alone.
const LONGEST: usize = 1 << 10;

/// A model file with a few fields that are others.
pub(super) fn mutant(bytes: &[u8], dice: &mut Dice) -> Vec<u8> {
    let Some(mut message) = message(bytes, 0) else { return dice.bytes(bytes) };
    for _ in 0..=dice.below(2) {
        let all = places(&message);
        let one = dice.of(&all).clone();
        let other = found(&message, dice.of::<Vec<usize>>(&all)).clone();
        change(&mut message, &one, &other, dice);
    }
    let mut written = Vec::new();
    write(&message, &mut written);
    written
}

fn varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut number = 0_u64;
    for shift in (0..64).step_by(7) {
        let (first, rest) = bytes.split_first()?;
        *bytes = rest;
        number |= u64::from(first & 0x7f) << shift;
        if first & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}

fn message(mut bytes: &[u8], depth: usize) -> Option<Vec<Field>> {
    let mut fields = Vec::new();
    while !bytes.is_empty() {
        let key = varint(&mut bytes)?;
        let held = match key & 7 {
            0 => Held::Varint(varint(&mut bytes)?),
            1 => {
                let (first, rest) = bytes.split_first_chunk()?;
                bytes = rest;
                Held::Eight(*first)
            }
            2 => {
                let length = usize::try_from(varint(&mut bytes)?).ok()?;
                let (inner, rest) = bytes.split_at_checked(length)?;
                bytes = rest;
                let is_text = inner.iter().all(|it| (b' '..=b'~').contains(it));
                let inside = if is_text || depth > 16 { None } else { message(inner, depth + 1) };
                inside.map_or_else(|| Held::Bytes(inner.to_vec()), Held::Message)
            }
            5 => {
                let (first, rest) = bytes.split_first_chunk()?;
                bytes = rest;
                Held::Four(*first)
            }
            _ => return None,
        };
        fields.push(Field { number: key >> 3, held });
    }
    Some(fields)
}

fn write_varint(mut number: u64, to: &mut Vec<u8>) {
    while number >= 0x80 {
        to.push(u8::try_from(number & 0x7f).unwrap() | 0x80);
        number >>= 7;
    }
    to.push(u8::try_from(number).unwrap());
}

fn write(fields: &[Field], to: &mut Vec<u8>) {
    for Field { number, held } in fields {
        let mut key = |kind: u64| write_varint(number << 3 | kind, to);
        match held {
            Held::Varint(value) => {
                key(0);
                write_varint(*value, to);
            }
            Held::Eight(bytes) => {
                key(1);
                to.extend(bytes);
            }
            Held::Four(bytes) => {
                key(5);
                to.extend(bytes);
            }
            Held::Bytes(bytes) => {
                key(2);
                write_varint(u64::try_from(bytes.len()).unwrap(), to);
                to.extend(bytes);
            }
            Held::Message(inner) => {
                let mut written = Vec::new();
                write(inner, &mut written);
                key(2);
                write_varint(u64::try_from(written.len()).unwrap(), to);
                to.extend(written);
            }
        }
    }
}

/// The way to every field that may be changed.
fn places(message: &[Field]) -> Vec<Vec<usize>> {
    let mut all = Vec::new();
    for (index, field) in message.iter().enumerate() {
        match &field.held {
            Held::Bytes(bytes) if bytes.len() > LONGEST => continue,
            Held::Message(inner) => {
                let further = places(inner).into_iter().map(|it| [vec![index], it].concat());
                all.extend(further);
            }
            _ => {}
        }
        all.push(vec![index]);
    }
    all
}

fn found<'a>(message: &'a [Field], place: &[usize]) -> &'a Field {
    let field = &message[place[0]];
    match (&field.held, &place[1..]) {
        (_, []) => field,
        (Held::Message(inner), rest) => found(inner, rest),
        _ => field,
    }
}

fn change(message: &mut Vec<Field>, place: &[usize], other: &Field, dice: &mut Dice) {
    let (&index, rest) = place.split_first().unwrap();
    let Some(field) = message.get_mut(index) else { return };
    if let (Held::Message(inner), [_, ..]) = (&mut field.held, rest) {
        return change(inner, rest, other, dice);
    }
    match dice.below(6) {
        0 => drop(message.remove(index)),
        1 => {
            let copy = field.clone();
            message.insert(dice.below(message.len() + 1), copy);
        }
        2 => field.held = other.held.clone(),
        3 => field.number = if dice.once_in(2) { other.number } else { field.number + 1 },
        _ => change_held(&mut field.held, other, dice),
    }
}

fn change_held(held: &mut Held, other: &Field, dice: &mut Dice) {
    match held {
        Held::Varint(number) => *number = dice.number(*number),
        Held::Four(bytes) => {
            let numbers = [0.0_f32, -1.0, f32::NAN, f32::INFINITY, f32::MIN, 1e-45, 1e30];
            *bytes = dice.of(&numbers).to_le_bytes();
        }
        Held::Eight(bytes) => *bytes = dice.next().to_le_bytes(),
        Held::Bytes(bytes) => match (std::str::from_utf8(bytes), &other.held) {
            (_, Held::Bytes(other)) if dice.once_in(2) => other.clone_into(bytes),
            (Ok(text), _) => *bytes = dice.changed(text).into_bytes(),
            (Err(_), _) => *bytes = dice.bytes(bytes),
        },
        Held::Message(inner) => match &other.held {
            Held::Message(other) => inner.extend(other.clone()),
            _ => inner.reverse(),
        },
    }
}
