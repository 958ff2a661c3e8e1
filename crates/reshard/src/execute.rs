//! What messages do, on arrays: their meaning.

use std::collections::BTreeMap;
use std::fmt;

use planner_ir::Type;

use crate::message::Message;
use crate::portion::Portion;
use crate::side::Side;

/// Why messages do not bring a value over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExecuteError {
    /// A message of or to a rank that is not there, or with what that rank does not hold in one
    /// piece.
    Held(usize),
    /// A message that passes on what no message it comes after has brought.
    After(usize),
    /// A message that brings what is there already.
    Twice(usize),
    /// A rank that lacks elements in the end.
    Missing(u64),
    /// A rank of which the array given has not as many elements as it holds.
    Given(u64),
}

impl fmt::Display for ExecuteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Held(message) => write!(f, "message {message} is about what a rank does not hold"),
            Self::After(message) => write!(f, "message {message} passes on what has not come before it"),
            Self::Twice(message) => write!(f, "message {message} brings what is there already"),
            Self::Missing(rank) => write!(f, "rank {rank} does not get all that it needs"),
            Self::Given(rank) => write!(f, "the array of rank {rank} is not of its size"),
        }
    }
}

impl std::error::Error for ExecuteError {}

/// What one rank has: elements, and for each one the message that brought it.
struct Array<T> {
    device: u64,
    shape: Vec<u64>,
    elements: Vec<Option<(T, Option<usize>)>>,
}

/// What the receiving ranks have when all messages have come, each its local block, row-major,
/// given those of the sending ranks.
pub fn execute<T: Copy>(
    type_: &Type,
    from: &Side,
    to: &Side,
    messages: &[Message],
    given: &BTreeMap<u64, Vec<T>>,
) -> Result<BTreeMap<u64, Vec<T>>, ExecuteError> {
    let mut sending = BTreeMap::new();
    for (device, place) in (0..).zip(&from.places) {
        let shape = from.layout.local_shape(&type_.shape);
        let elements: Vec<T> = given.get(&place.rank).cloned().unwrap_or_default();
        if count(elements.len()) != shape.iter().product::<u64>() {
            return Err(ExecuteError::Given(place.rank));
        }
        let elements = elements.into_iter().map(|element| Some((element, None))).collect();
        sending.insert(place.rank, Array { device, shape, elements });
    }
    let mut receiving = BTreeMap::new();
    for (device, place) in (0..).zip(&to.places) {
        let shape = to.layout.local_shape(&type_.shape);
        let elements = (0..shape.iter().product()).map(|_| None).collect();
        receiving.insert(place.rank, Array { device, shape, elements });
    }

    for message in messages {
        let mut carried = Vec::new();
        for portion in &message.portions {
            let (side, array) = match (sending.get(&message.from), receiving.get(&message.from)) {
                (Some(array), _) => (from, array),
                (None, Some(array)) => (to, array),
                (None, None) => return Err(ExecuteError::Held(message.order)),
            };
            carried.extend(read(side, array, type_, message, portion)?);
        }
        let array = receiving.get_mut(&message.to).ok_or(ExecuteError::Held(message.order))?;
        let mut carried = carried.into_iter();
        for portion in &message.portions {
            for place in places(to, array, type_, portion).ok_or(ExecuteError::Held(message.order))? {
                let before = array.elements[place]
                    .replace((carried.next().ok_or(ExecuteError::Held(message.order))?, Some(message.order)));
                if before.is_some() {
                    return Err(ExecuteError::Twice(message.order));
                }
            }
        }
    }
    let whole = |(rank, array): (u64, Array<T>)| {
        let elements: Option<Vec<T>> =
            array.elements.into_iter().map(|it| it.map(|(element, _)| element)).collect();
        Ok((rank, elements.ok_or(ExecuteError::Missing(rank))?))
    };
    receiving.into_iter().map(whole).collect()
}

/// What a rank sends of a portion.
fn read<T: Copy>(
    side: &Side,
    array: &Array<T>,
    type_: &Type,
    message: &Message,
    portion: &Portion,
) -> Result<Vec<T>, ExecuteError> {
    let places = places(side, array, type_, portion).ok_or(ExecuteError::Held(message.order))?;
    let element = |place: usize| match array.elements[place] {
        Some((element, None)) => Ok(element),
        Some((element, Some(brought))) if message.after.contains(&brought) => Ok(element),
        _ => Err(ExecuteError::After(message.order)),
    };
    places.into_iter().map(element).collect()
}

/// Where the elements of a portion are in an array.
fn places<T>(side: &Side, array: &Array<T>, type_: &Type, portion: &Portion) -> Option<Vec<usize>> {
    let local = side.local(type_, array.device, portion)?;
    local.places(&array.shape).into_iter().map(|place| usize::try_from(place).ok()).collect()
}

fn count(length: usize) -> u64 {
    u64::try_from(length).unwrap_or(u64::MAX)
}
