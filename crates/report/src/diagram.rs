//! A partition as a diagram: which blocks each device works on at each step, and from where it has
//! them.

mod svg; // as a picture
mod text; // as lines

use plan::bytes_of_steps;
use planner_ir::{LoopId, Loops, Mesh, Motion, Op, Partition, Slots, Type, Ways};

/// A row for each device, a column for each step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagram {
    /// The mesh and the partition, in their text forms.
    pub title: String,
    /// The operands, then the results.
    pub things: Vec<Thing>,
    /// For each device and step what is worked on; where blocks go both ways, with the halves that go
    /// one way and then with the others.
    pub cells: Vec<Vec<Cell>>,
    /// In which ways blocks go.
    pub ways: Ways,
}

/// An operand or a result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Thing {
    /// What it is called.
    pub name: String,
    /// Its layout at rest, in the text form.
    pub at_rest: String,
    /// How its blocks move.
    pub how: String,
    /// Whether they do.
    pub moves: bool,
    /// What all devices together receive (bytes).
    pub received: u64,
    /// What the whole of it takes (bytes).
    pub bytes: u64,
    /// How many blocks it falls into.
    pub blocks: u64,
}

/// What a device works on at a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cell {
    /// The block of each loop that is split, such as `m0 n2`.
    pub work: String,
    /// The block of each operand and result: its number, and its name, such as `W[-,2]`.
    pub blocks: Vec<(u64, String)>,
    /// What comes from other devices, or goes to them.
    pub messages: Vec<Message>,
}

/// A block on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message {
    /// Of which operand or result, by its place.
    pub thing: usize,
    /// The other device.
    pub other: u64,
    /// What it does.
    pub way: Way,
}

/// How a block comes or goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// From the other device, which had it a step before.
    Shifted,
    /// From the other device, which has it at rest.
    Given,
    /// To the other device, to be added to others'.
    Added,
}

/// The most cells of a diagram.
pub const MAX_CELLS: u64 = 4_096;

/// The diagram of an operation's partition, if it has so few cells that it can be looked at.
///
/// # Panics
/// If the partition is not one of the operation on the mesh.
pub fn diagram(
    mesh: &Mesh,
    op: &Op,
    (operands, results): (&[Type], &[Type]),
    partition: &Partition,
) -> Option<Diagram> {
    mesh.devices().checked_mul(partition.steps).filter(|&cells| cells <= MAX_CELLS)?;
    let loops = op.loops(operands, results);
    let ways = partition.each_way();
    let drawn = Drawn {
        mesh,
        loops: &loops,
        partition,
        ways: &ways,
        names: names(op, &loops),
        things: things(op, &loops),
    };
    let bytes = bytes_of_steps(mesh, &loops, (operands, results), partition);
    let types = operands.iter().chain(results);
    let things = types.enumerate().map(|(place, type_)| Thing {
        name: drawn.name(place),
        at_rest: drawn.at_rest(place),
        how: drawn.how(place),
        moves: !matches!(drawn.motion(0, place), Motion::Stationary | Motion::Whole),
        received: bytes.get(place).copied().unwrap_or(0),
        bytes: type_.bytes(),
        blocks: drawn.dims(place).iter().flatten().map(|&it| drawn.parts(it)).product(),
    });
    let turns = |step| (0..ways.len()).map(move |way| (step, way));
    let steps = |device| {
        (0..partition.steps).flat_map(turns).map(|(step, way)| drawn.cell(device, step, way)).collect()
    };
    Some(Diagram {
        title: format!("{} on {mesh}", partition.display(mesh)),
        things: things.collect(),
        cells: (0..mesh.devices()).map(steps).collect(),
        ways: partition.ways,
    })
}

/// What operands and results are called.
fn things(op: &Op, loops: &Loops) -> Vec<String> {
    let (operands, results) = (loops.operands.len(), loops.results.len());
    let some = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect();
    match op {
        Op::Attention(_) if operands == 3 && results == 1 => some(&["Q", "K", "V", "Y"]),
        _ if operands == 2 && results == 1 => some(&["X", "W", "Y"]),
        _ => {
            let numbered = |letter: char, count: usize| (0..count).map(move |it| format!("{letter}{it}"));
            numbered('X', operands).chain(numbered('Y', results)).collect()
        }
    }
}

/// The letters of loops: m, k and n of a product of two matrices; q and k of queries and keys.
fn names(op: &Op, loops: &Loops) -> Vec<String> {
    if matches!(op, Op::Attention(_)) {
        let of = |operand: usize, it: LoopId| loops.operands[operand][2].contains(&it);
        let name = |it| match [of(0, it), of(1, it)] {
            [true, _] => "q".to_owned(),
            [_, true] => "k".to_owned(),
            _ => format!("l{}.", it.0),
        };
        return loops.ids().map(name).collect();
    }
    let matrices = matches!(op, Op::Contract(_)) && loops.loops.len() == 3;
    let product = matrices && loops.operands.iter().chain(&loops.results).all(|dims| dims.len() == 2);
    let name = |it: LoopId| {
        let sides = [&loops.operands[0], loops.operands.get(1).unwrap_or(&loops.operands[0])];
        let has = sides.map(|dims| dims.iter().flatten().any(|&of| of == it));
        match has {
            _ if !product => format!("l{}.", it.0),
            [true, true] => "k".to_owned(),
            [true, false] => "m".to_owned(),
            _ => "n".to_owned(),
        }
    };
    loops.ids().map(name).collect()
}

/// A device, a step, and what goes which way.
#[derive(Clone, Copy)]
struct At {
    device: u64,
    step: u64,
    way: usize,
}

/// What a diagram is drawn of.
struct Drawn<'a> {
    mesh: &'a Mesh,
    loops: &'a Loops,
    partition: &'a Partition,
    /// The partition of each way.
    ways: &'a [Partition],
    names: Vec<String>,
    things: Vec<String>,
}

impl Diagram {
    /// What a column is called.
    fn column(&self, column: usize) -> String {
        match (self.ways, column % 2) {
            (Ways::One, _) => format!("step {column}"),
            (Ways::Both, 0) => format!("step {} forth", column / 2),
            (Ways::Both, _) => format!("step {} back", column / 2),
        }
    }
}

impl<'a> Drawn<'a> {
    /// The place among the results, if it is one.
    fn result(&self, place: usize) -> Option<usize> {
        place.checked_sub(self.loops.operands.len())
    }

    fn name(&self, place: usize) -> String {
        self.things[place].clone()
    }

    fn dims(&self, place: usize) -> &'a [Vec<LoopId>] {
        match self.result(place) {
            Some(result) => &self.loops.results[result],
            None => &self.loops.operands[place],
        }
    }

    fn motion(&self, way: usize, place: usize) -> Motion {
        match self.result(place) {
            Some(result) => self.ways[way].result_motion(self.loops, result),
            None => self.ways[way].operand_motion(self.loops, place),
        }
    }

    /// Into how many blocks, and halves of them, a loop falls that devices have not all of.
    fn parts(&self, it: LoopId) -> u64 {
        let free: u64 =
            self.partition.loops[it.0].iter().filter(|it| it.is_free()).map(|it| it.size).product();
        self.partition.parts(it) / free
    }

    fn at_rest(&self, place: usize) -> String {
        let layout = match self.result(place) {
            Some(result) => self.partition.result(self.loops, result),
            None => self.partition.operand(self.loops, place),
        };
        layout.display(self.mesh).to_string()
    }

    fn how(&self, place: usize) -> String {
        let axis = |axis: planner_ir::AxisId| self.mesh.axes[axis.0].name.clone();
        match (self.motion(0, place), self.result(place)) {
            (Motion::Stationary, _) => "stays".to_owned(),
            (Motion::Whole, None) => "stays, a block is taken at each step".to_owned(),
            (Motion::Whole, Some(_)) => "stays, a block is made at each step".to_owned(),
            (Motion::Rotating(_), _) => {
                let along = |it: &(planner_ir::AxisId, i64)| format!("{}{:+}", axis(it.0), it.1);
                let from = |way| match self.motion(way, place) {
                    Motion::Rotating(shift) => shift.0.iter().map(along).collect::<Vec<_>>().join(","),
                    _ => String::new(),
                };
                let place = if self.partition.slots == Slots::One { " in place" } else { "" };
                match self.partition.ways {
                    Ways::One => format!("rotates{place}, the next from {}", from(0)),
                    Ways::Both => {
                        format!("rotates{place}, half of the next from {}, half from {}", from(0), from(1))
                    }
                }
            }
            (Motion::Streaming(over), None) => format!("is broadcast along {}", axis(over)),
            (Motion::Streaming(over), Some(_)) => format!("is reduced along {}", axis(over)),
        }
    }

    /// The number of a block that some loops index, if they are split: of the half that goes a way.
    fn number(&self, loops: &mut dyn Iterator<Item = LoopId>, at: At) -> Option<u64> {
        let coordinates = self.mesh.coordinates(at.device);
        let mut number = None;
        let mut next = |size: u64, value: u64| number = Some(number.unwrap_or(0) * size + value);
        for it in loops {
            let digits = self.ways[at.way].loops[it.0].iter().filter(|digit| !digit.is_free());
            digits.for_each(|digit| next(digit.size, digit.at(&coordinates, at.step)));
            if self.partition.halved() == Some(it) {
                next(self.partition.ways.count(), u64::try_from(at.way).unwrap_or(0));
            }
        }
        number
    }

    fn cell(&self, device: u64, step: u64, way: usize) -> Cell {
        let at = At { device, step, way };
        let work =
            self.loops.ids().zip(&self.names).filter_map(|(it, name)| {
                Some(format!("{name}{}", self.number(&mut std::iter::once(it), at)?))
            });
        let things = || 0..self.loops.operands.len() + self.loops.results.len();
        let block = |place| {
            let dims = self.dims(place);
            let dim = |dim: &'a Vec<LoopId>| {
                let number = self.number(&mut dim.iter().copied(), at);
                number.map_or_else(|| "-".to_owned(), |number| number.to_string())
            };
            let number = self.number(&mut dims.iter().flatten().copied(), at).unwrap_or(0);
            let places: Vec<String> = dims.iter().map(dim).collect();
            (number, format!("{}[{}]", self.name(place), places.join(",")))
        };
        Cell {
            work: work.collect::<Vec<_>>().join(" "),
            blocks: things().map(block).collect(),
            messages: things().filter_map(|place| self.message(place, at)).collect(),
        }
    }

    fn message(&self, thing: usize, At { device, step, way }: At) -> Option<Message> {
        let (other, way) = match self.motion(way, thing) {
            Motion::Rotating(shift) if step > 0 => (shift.of(self.mesh, device), Way::Shifted),
            Motion::Streaming(axis) => {
                let group = self.mesh.group(device, &[axis]);
                let way = if self.result(thing).is_some() { Way::Added } else { Way::Given };
                (*group.get(usize::try_from(step).ok()?)?, way)
            }
            _ => return None,
        };
        (other != device).then_some(Message { thing, other, way })
    }
}

#[cfg(test)]
mod tests;
