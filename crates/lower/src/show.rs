//! The text form of a program.
//!
//! One line for each buffer and instruction. A buffer is `bN`, an event `eN`, a communicator
//! `cN`; places are in bytes.

use std::fmt::{self, Write};

use planner_ir::{Op, Piece, RoutedRows};

use crate::action::{
    Action, Block, Collective, Direction, Further, Message, Moving, Origin, Received, Remote, Rows, Sent, Way,
};
use crate::program::{Instruction, Port, Program, Repeated, Turn, Whole};
use crate::storage::{Kind, Region};
use crate::strided::Strided;

impl fmt::Display for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "rank {} of {}", self.rank, self.ranks)?;
        writeln!(f, "resident {} bytes, arena {} bytes", self.resident, self.arena)?;
        for (number, members) in self.communicators.iter().enumerate() {
            writeln!(f, "communicator c{number} of ranks {members:?}")?;
        }
        for step in self.preparation.iter() {
            write!(f, "prepare `{}` {}(", step.origin, op_name(&step.op))?;
            for (index, operand) in step.operands.iter().enumerate() {
                let separator = if index == 0 { "" } else { ", " };
                match operand {
                    Whole::Weight(name) => write!(f, "{separator}`{name}`")?,
                    Whole::Prepared(value) => write!(f, "{separator}value {}", value.0)?,
                }
            }
            let results: Vec<usize> = step.results.iter().map(|value| value.0).collect();
            writeln!(f, ") -> values {results:?}")?;
        }
        for (number, buffer) in self.buffers.iter().enumerate() {
            let storage = &self.storages[buffer.storage.0];
            let region = match storage.kind.region() {
                Region::Resident => "resident",
                Region::Step => "arena",
            };
            let end = storage.offset + buffer.type_.bytes();
            let kind = storage.kind.name();
            write!(f, "b{number}: {} {kind} in {region} {}..{end}", buffer.type_, storage.offset)?;
            match storage.places {
                1 => writeln!(f)?,
                places => writeln!(f, " in {places} places")?,
            }
        }
        let at_rest = [&self.inputs, &self.weights, &self.prepared, &self.states];
        for port in at_rest.into_iter().flatten() {
            writeln!(f, "{} {port} -> b{}", self.storage(port.buffer).kind.name(), port.buffer.0)?;
        }
        for (number, instruction) in self.instructions.iter().enumerate() {
            self.fmt_marks(f, number)?;
            writeln!(f, "{number}: {}", self.show(instruction))?;
        }
        self.fmt_marks(f, self.instructions.len())?;
        for port in &self.outputs {
            writeln!(f, "b{} -> output {port}", port.buffer.0)?;
        }
        Ok(())
    }
}

impl fmt::Display for Port {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` {} pieces [", self.name, self.type_)?;
        for (dim, pieces) in self.pieces.iter().enumerate() {
            let separator = if dim == 0 { "" } else { ", " };
            f.write_str(separator)?;
            for (place, Piece { size, index }) in pieces.iter().enumerate() {
                let separator = if place == 0 { "" } else { "." };
                match index {
                    Some(index) => write!(f, "{separator}{index}/{size}")?,
                    None => write!(f, "{separator}{size}")?,
                }
            }
        }
        f.write_str("]")
    }
}

impl fmt::Display for Strided {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "from {}", self.start)?;
        for it in &self.loops {
            write!(f, " {}x({}->{})", it.count, it.from, it.to)?;
        }
        Ok(())
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Node(node) => write!(f, "node {}", node.0),
            Self::Move { transfer, step } => write!(f, "transfer {transfer}.{step}"),
            Self::Motion { node, moving, time } => {
                let (what, number) = match moving {
                    Moving::Operand(it) => ("operand", it),
                    Moving::Result(it) => ("result", it),
                };
                write!(f, "{what} {number} of node {} at time {time}", node.0)
            }
            Self::State(value) => write!(f, "state {}", value.0),
            Self::Crossing(crossing) => write!(f, "crossing {crossing}"),
        }
    }
}

impl Program {
    /// What starts or ends before the instruction of that number.
    fn fmt_marks(&self, f: &mut fmt::Formatter<'_>, number: usize) -> fmt::Result {
        if let Some(Repeated { instructions, parts, turns, times, inputs }) = &self.repeated {
            if number == instructions.start {
                writeln!(f, "repeat {times} times")?;
                for port in inputs {
                    writeln!(f, "{} {port} -> b{}", Kind::Input.name(), port.buffer.0)?;
                }
                if parts.len() > 1 {
                    let turn = |turn: &Turn| format!("{}.{}", turn.part, turn.micro_batch);
                    let turns: Vec<String> = turns.iter().map(turn).collect();
                    writeln!(f, "turns {}", turns.join(" "))?;
                }
            }
            for (place, part) in parts.iter().enumerate().filter(|_| parts.len() > 1) {
                if number == part.instructions.start && !part.instructions.is_empty() {
                    writeln!(f, "part {place} of stage {}", part.stage)?;
                }
            }
            if number == instructions.end {
                writeln!(f, "repeat no more")?;
            }
        }
        if self.guard == Some(number) {
            writeln!(f, "stop if an output is not finite")?;
        }
        Ok(())
    }

    /// The text of an instruction of this program.
    pub fn show(&self, instruction: &Instruction) -> String {
        let mut text = format!("{} ", instruction.stream.name());
        match &instruction.action {
            Action::Compute(compute) => {
                let (op, name) = (op_name(&compute.op), &compute.name);
                text += &format!("`{name}` {op}({})", blocks(&compute.operands));
                text += &format!(" -> {}", blocks(&compute.results));
            }
            Action::Copy(copy) => {
                let side = match copy.direction {
                    Direction::Take => "",
                    Direction::Put => "put ",
                };
                text += &format!("copy b{} -> b{} {side}{}", copy.from.0, copy.to.0, copy.strided);
            }
            Action::Collective(it) => {
                let Collective { kind, communicator, input, output, elements, further, rows } = it;
                let dtype = self.buffers.get(input.0).map_or("?", |buffer| buffer.type_.dtype.name());
                let root = kind.root().map(|root| format!(" of member {root}")).unwrap_or_default();
                let (kind, c) = (kind.name(), communicator.0);
                text += &format!("{kind}{root} c{c} of {elements} {dtype} b{} -> b{}", input.0, output.0);
                if let Some(Rows { routed: RoutedRows { count, used, parts, by }, own, others }) = rows {
                    text +=
                        &format!(", {count} rows by b{} and b{}, {used} of {parts} parts", own.0, others.0);
                    if *by > 1 {
                        text += &format!(", by {by}");
                    }
                }
                for Further { input, output, elements, origin } in further {
                    text += &format!(", of {elements} b{} -> b{} for {origin}", input.0, output.0);
                }
            }
            Action::Message(Message { communicator, to, from, input, output }) => {
                text += &format!("message c{} b{} to {to:?}", communicator.0, input.0);
                text += &format!(" and from {from} -> b{}", output.0);
            }
            Action::Send(Sent { input, parts }) => {
                text += &format!("send b{}{}", input.0, remotes(parts));
            }
            Action::Receive(Received { output, parts }) => {
                text += &format!("receive{} -> b{}", remotes(parts), output.0);
            }
        }
        text += &format!(" for {}", instruction.origin);
        for event in &instruction.waits {
            text += &format!(" after e{}", event.0);
        }
        if let Some(event) = instruction.signals {
            text += &format!(" signals e{}", event.0);
        }
        text
    }
}

fn remotes(parts: &[Remote]) -> String {
    let way = |way: Way| if way == Way::To { "to" } else { "from" };
    parts.iter().map(|part| format!(" {} {} ({})", way(part.way), part.rank, part.strided)).collect()
}

fn blocks(blocks: &[Block]) -> String {
    let block = |block: &Block| {
        let spans = block.spans.iter().map(|span| format!("{}/{}", span.start, span.extent));
        let spans = spans.collect::<Vec<_>>().join(",");
        if spans.is_empty() {
            format!("b{}", block.buffer.0)
        } else {
            format!("b{}[{spans}]", block.buffer.0)
        }
    };
    blocks.iter().map(block).collect::<Vec<_>>().join(", ")
}

/// The name of an operation.
fn op_name(op: &Op) -> String {
    match op {
        Op::Unary(function) => format!("{function:?}"),
        Op::Binary(function) => format!("{function:?}"),
        _ => {
            // Stops at the first attribute: a constant's data would be long.
            let mut word = Word(String::new());
            let _ = write!(word, "{op:?}");
            word.0
        }
    }
}

/// Text up to the first character that is no letter.
struct Word(String);

impl Write for Word {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let end = text.find(|it: char| !it.is_ascii_alphanumeric());
        self.0.push_str(&text[..end.unwrap_or(text.len())]);
        if end.is_some() { Err(fmt::Error) } else { Ok(()) }
    }
}
