//! Statements to instructions: names resolved, instructions that are not known refused.

use std::collections::BTreeMap;

use crate::bits::place;
use crate::comparisons::Comparison;
use crate::conversions::conversion;
use crate::functions::{Function, function};
use crate::instruction::{
    Address, Connective, Element, Instruction, Narrow, Operation, Register, Shuffle, Source, Space, Truth,
};
use crate::parse::{Declared, ParseError, Statement, Text, Where, Written, parse, split};

/// A program.
#[derive(Debug)]
pub struct Module {
    kernels: Vec<Kernel>,
}

/// A kernel of a program.
#[derive(Debug)]
pub struct Kernel {
    /// What its entry is called.
    pub name: String,
    pub(crate) parameters: Vec<u64>,
    pub(crate) most_threads: Option<u32>,
    pub(crate) registers: usize,
    pub(crate) predicates: usize,
    /// Memory of a block that the kernel itself declares, and of a thread (bytes).
    pub(crate) shared: u64,
    pub(crate) local: u64,
    /// Tables that it reads: where they are, and what is in them.
    pub(crate) constants: Vec<(u64, Vec<u8>)>,
    pub(crate) instructions: Vec<Instruction>,
}

/// Where tables lie in memory.
const CONSTANTS: u64 = 0x0010_0000;

/// How far they are apart (bytes).
const APART: u64 = 0x1_0000;

impl Module {
    /// The program of a text; refused with its line if it has something that is not known.
    pub fn parse(text: &str) -> Result<Self, ParseError> {
        let text = parse(text)?;
        let kernels = text.kernels.iter().map(|it| decode(it, &text)).collect::<Result<_, _>>()?;
        Ok(Self { kernels })
    }

    /// The kernel of that name.
    pub fn kernel(&self, name: &str) -> Option<&Kernel> {
        self.kernels.iter().find(|it| it.name == name)
    }

    /// All kernels, as they stand.
    pub fn kernels(&self) -> &[Kernel] {
        &self.kernels
    }
}

/// What names stand for.
#[derive(Default)]
struct Names<'a> {
    registers: BTreeMap<&'a str, Register>,
    predicates: BTreeMap<&'a str, usize>,
    classes: BTreeMap<&'a str, (usize, u32, usize)>,
    of_predicates: BTreeMap<&'a str, (usize, usize)>,
    symbols: BTreeMap<&'a str, u64>,
    parameters: BTreeMap<&'a str, (usize, usize)>,
    labels: BTreeMap<&'a str, usize>,
}

/// Places memory behind what has been placed; where it starts.
fn placed(end: &mut u64, declared: &Declared<'_>) -> u64 {
    let start = end.next_multiple_of(declared.alignment.max(1));
    *end = start + declared.bytes;
    start
}

fn decode(written: &Written<'_>, text: &Text<'_>) -> Result<Kernel, ParseError> {
    let mut names = Names::default();
    let (mut registers, mut predicates) = (0, 0);
    for class in &written.registers {
        let count = class.count.unwrap_or(1);
        match (class.width, class.count) {
            (1, Some(_)) => drop(names.of_predicates.insert(class.name, (predicates, count))),
            (1, None) => drop(names.predicates.insert(class.name, predicates)),
            (width, Some(_)) => drop(names.classes.insert(class.name, (registers, width, count))),
            (width, None) => drop(names.registers.insert(class.name, Register { number: registers, width })),
        }
        *(if class.width == 1 { &mut predicates } else { &mut registers }) += count;
    }
    let (mut shared, mut local) = (0, 0);
    for (of, declared) in &written.memory {
        let end = if *of == Where::Local { &mut local } else { &mut shared };
        names.symbols.insert(declared.name, placed(end, declared));
    }
    // What a launch asks for lies behind what the kernel declares.
    shared = shared.next_multiple_of(16);
    names.symbols.extend(text.launched.iter().map(|&name| (name, shared)));
    let mut constants = Vec::new();
    for ((name, bytes), number) in text.constants.iter().zip(0..) {
        let start = CONSTANTS + APART * number;
        names.symbols.insert(name, start);
        constants.push((start, bytes.clone()));
    }
    let mut end = 0;
    for parameter in &written.parameters {
        names.parameters.insert(parameter.name, (place(placed(&mut end, parameter)), place(parameter.bytes)));
    }
    let mut count = 0;
    for statement in &written.statements {
        match statement {
            Statement::Label(name) => drop(names.labels.insert(name, count)),
            Statement::Instruction { .. } => count += 1,
        }
    }
    let mut instructions = Vec::with_capacity(count);
    for statement in &written.statements {
        let Statement::Instruction { line, guard, name, operands, used } = statement else { continue };
        let decoded = || {
            let guard = match guard {
                Some((predicate, negated)) => Some((names.predicate(predicate)?, *negated)),
                None => None,
            };
            let operation = names.operation(name, operands, *used)?;
            Some(Instruction { line: *line, guard, operation })
        };
        instructions.push(decoded().ok_or_else(|| ParseError {
            line: *line,
            found: format!("{name} {}", operands.join(", ")),
            expected: "an instruction that the interpreter knows: teach it to crates/ptx",
        })?);
    }
    Ok(Kernel {
        name: written.name.to_owned(),
        parameters: written.parameters.iter().map(|it| it.bytes).collect(),
        most_threads: written.most_threads,
        registers,
        predicates,
        shared,
        local,
        constants,
        instructions,
    })
}

/// A name with a number at its end.
fn numbered(name: &str) -> Option<(&str, usize)> {
    let digits = name.bytes().rev().take_while(u8::is_ascii_digit).count();
    let (class, number) = name.split_at(name.len() - digits);
    Some((class, number.parse().ok()?))
}

/// A number as it is written.
fn immediate(text: &str) -> Option<u64> {
    if let Some(bits) = text.strip_prefix("0f").or_else(|| text.strip_prefix("0F")) {
        return u32::from_str_radix(bits, 16).ok().map(u64::from);
    }
    if let Some(bits) = text.strip_prefix("0d").or_else(|| text.strip_prefix("0D")) {
        return u64::from_str_radix(bits, 16).ok();
    }
    let text = text.trim_end_matches('U');
    let (negative, size) = text.strip_prefix('-').map_or((false, text), |it| (true, it));
    let size = match size.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok()?,
        None => size.parse().ok()?,
    };
    Some(if negative { size.wrapping_neg() } else { size })
}

impl Names<'_> {
    fn register(&self, name: &str) -> Option<Register> {
        if let Some(register) = self.registers.get(name) {
            return Some(*register);
        }
        let (class, number) = numbered(name)?;
        let &(first, width, count) = self.classes.get(class)?;
        (number < count).then_some(Register { number: first + number, width })
    }

    fn predicate(&self, name: &str) -> Option<usize> {
        if let Some(predicate) = self.predicates.get(name) {
            return Some(*predicate);
        }
        let (class, number) = numbered(name)?;
        let &(first, count) = self.of_predicates.get(class)?;
        (number < count).then_some(first + number)
    }

    fn truth(&self, text: &str) -> Option<Truth> {
        match text {
            "0" => return Some(Truth::Known(false)),
            "1" | "-1" => return Some(Truth::Known(true)),
            _ => {}
        }
        match text.strip_prefix('!') {
            Some(name) => self.predicate(name).map(Truth::Not),
            None => self.predicate(text).map(Truth::Predicate),
        }
    }

    fn source(&self, text: &str) -> Option<Source> {
        if let Some(register) = self.register(text) {
            return Some(Source::Register(register.number));
        }
        match text {
            "%tid.x" => Some(Source::Thread),
            "%ctaid.x" => Some(Source::Block),
            "%ntid.x" => Some(Source::Threads),
            "%nctaid.x" => Some(Source::Blocks),
            "%laneid" => Some(Source::Lane),
            // Grids and blocks are rows.
            "%tid.y" | "%tid.z" | "%ctaid.y" | "%ctaid.z" => Some(Source::Immediate(0)),
            _ => immediate(text).or_else(|| self.symbols.get(text).copied()).map(Source::Immediate),
        }
    }

    /// `[base+behind]`.
    fn address(&self, text: &str) -> Option<Address> {
        let inside = text.strip_prefix('[')?.strip_suffix(']')?;
        let (base, behind) = inside.split_once('+').unwrap_or((inside, "0"));
        Some(Address { base: self.source(base.trim())?, behind: immediate(behind.trim())? })
    }

    /// `{a, b}`, or one without braces.
    fn list<'b>(&self, text: &'b str) -> Vec<&'b str> {
        match text.strip_prefix('{').and_then(|it| it.strip_suffix('}')) {
            Some(inside) => split(inside),
            None => vec![text],
        }
    }

    fn sources<const N: usize>(&self, text: &str) -> Option<[Source; N]> {
        let all: Option<Vec<Source>> = self.list(text).into_iter().map(|it| self.source(it)).collect();
        all?.try_into().ok()
    }

    fn registers(&self, text: &str) -> Option<Vec<Register>> {
        self.list(text).into_iter().map(|it| self.register(it)).collect()
    }

    fn operation(&self, name: &str, operands: &[&str], used: Option<u64>) -> Option<Operation> {
        let parts: Vec<&str> = name.split('.').collect();
        match (&parts[..], operands) {
            (["bra"] | ["bra", "uni"], [label]) => Some(Operation::Branch { to: *self.labels.get(label)? }),
            (["ret" | "exit"], []) => Some(Operation::Exit),
            (["bar", "sync"] | ["barrier", "sync", "aligned"], ["0"]) => Some(Operation::Barrier),
            (["bar", "warp", "sync"], [mask]) => Some(Operation::WarpBarrier { mask: self.source(mask)? }),
            (["membar", ..] | ["fence", ..], []) => Some(Operation::Fence),
            (["mov", type_], [to, from]) => self.moved(type_, to, from),
            (["cvta", "to", "global" | "local", "u64"] | ["cvta", "local", "u64"], [to, from]) => {
                self.same(to, from)
            }
            (["setp", ..], _) => self.compared(&parts, operands),
            (["selp", _], [to, a, b, by]) => Some(Operation::Select {
                to: self.register(to)?,
                from: [self.source(a)?, self.source(b)?],
                by: self.truth(by)?,
            }),
            ([what @ ("and" | "or" | "xor"), "pred"], [to, a, b]) => Some(Operation::Connect {
                connective: connective(what)?,
                to: self.predicate(to)?,
                from: [self.truth(a)?, self.truth(b)?],
            }),
            (["not", "pred"], [to, from]) => {
                let from = [self.truth(from)?, Truth::Known(true)];
                Some(Operation::Connect { connective: Connective::Xor, to: self.predicate(to)?, from })
            }
            (["ld" | "st", ..], _) => self.memory(&parts, operands, used),
            (["shfl", "sync", how, "b32"], [to, from, by, clamp, mask]) => {
                self.shuffled(how, [to, from, by, clamp, mask])
            }
            (["cp", "async", rest @ ..], _) => self.copied(rest, operands),
            (["ldmatrix" | "mma", ..], _) => self.matrices(&parts, operands),
            (["cvt", rest @ ..], _) => self.computed(conversion(rest)?, operands),
            _ => self.computed(function(name)?, operands),
        }
    }

    /// What reads or writes memory.
    fn memory(&self, parts: &[&str], operands: &[&str], used: Option<u64>) -> Option<Operation> {
        match (parts, operands) {
            (["ld", "param", type_], [to, from]) => {
                let inside = from.strip_prefix('[')?.strip_suffix(']')?;
                let (name, behind) = inside.split_once('+').unwrap_or((inside, "0"));
                let &(at, length) = self.parameters.get(name)?;
                let (behind, bytes) = (place(immediate(behind)?), place(element(type_)?.bytes));
                // A part of an argument may be read.
                (behind.checked_add(bytes)? <= length).then_some(())?;
                Some(Operation::Parameter { to: self.register(to)?, at: at + behind, bytes })
            }
            (["ld", rest @ ..], [to, address]) => {
                let (space, count, element) = access(rest)?;
                let to: Vec<Option<Register>> = self
                    .list(to)
                    .into_iter()
                    .map(|it| if it == "_" { Some(None) } else { self.register(it).map(Some) })
                    .collect::<Option<_>>()?;
                let used = used.unwrap_or(u64::MAX);
                (to.len() == count).then_some(())?;
                Some(Operation::Load { space, to, element, address: self.address(address)?, used })
            }
            (["st", rest @ ..], [address, from]) => {
                let (space, count, element) = access(rest)?;
                let from =
                    self.list(from).into_iter().map(|it| self.source(it)).collect::<Option<Vec<_>>>()?;
                (from.len() == count).then_some(())?;
                Some(Operation::Store { space, from, element, address: self.address(address)? })
            }
            _ => None,
        }
    }

    /// What lanes take from each other.
    fn shuffled(&self, how: &str, [to, from, by, clamp, mask]: [&str; 5]) -> Option<Operation> {
        let (to, given) = to.split_once('|').map_or((to, None), |(to, it)| (to, Some(it)));
        let given = match given {
            Some(it) => Some(self.predicate(it)?),
            None => None,
        };
        let how = match how {
            "bfly" => Shuffle::Differing,
            "idx" => Shuffle::Numbered,
            "down" => Shuffle::Above,
            "up" => Shuffle::Below,
            _ => return None,
        };
        let [from, by, clamp, mask] = [from, by, clamp, mask].map(|it| self.source(it));
        let (to, from, by) = (self.register(to)?, from?, by?);
        Some(Operation::Shuffle { how, to, given, from, by, clamp: clamp?, mask: mask? })
    }

    /// What a warp does to matrices.
    fn matrices(&self, parts: &[&str], operands: &[&str]) -> Option<Operation> {
        match (parts, operands) {
            (["ldmatrix", "sync", "aligned", "m8n8", "x4", rest @ ..], [to, address]) => {
                let turned = match rest {
                    ["shared", "b16"] => false,
                    ["trans", "shared", "b16"] => true,
                    _ => return None,
                };
                let to = self.registers(to)?;
                (to.len() == 4).then_some(())?;
                Some(Operation::LoadMatrices { to, address: self.address(address)?, turned })
            }
            (
                [
                    "mma",
                    "sync",
                    "aligned",
                    "m16n8k16",
                    "row",
                    "col",
                    "f32",
                    of @ ("f16" | "bf16"),
                    other,
                    "f32",
                ],
                [to, a, b, c],
            ) if of == other => {
                let narrow = if *of == "f16" { Narrow::Half } else { Narrow::Bf16 };
                let to = self.registers(to)?.try_into().ok()?;
                Some(Operation::Multiply {
                    narrow,
                    to,
                    a: self.sources(a)?,
                    b: self.sources(b)?,
                    c: self.sources(c)?,
                })
            }
            _ => None,
        }
    }

    fn computed(&self, function: Function, operands: &[&str]) -> Option<Operation> {
        let (to, from) = operands.split_first()?;
        let count = match function {
            Function::One(_) => 1,
            Function::Two(_) => 2,
            Function::Three(_) => 3,
            Function::Four(_) => 4,
        };
        (from.len() == count).then_some(())?;
        let mut sources = [Source::Immediate(0); 4];
        for (source, text) in sources.iter_mut().zip(from) {
            *source = self.source(text)?;
        }
        Some(Operation::Compute { function, to: self.register(to)?, from: sources })
    }

    /// The same bits in another register.
    fn same(&self, to: &str, from: &str) -> Option<Operation> {
        self.computed(Function::One(|x| x), &[to, from])
    }

    fn moved(&self, type_: &str, to: &str, from: &str) -> Option<Operation> {
        if type_ == "pred" {
            let from = [self.truth(from)?, Truth::Known(false)];
            return Some(Operation::Connect { connective: Connective::Or, to: self.predicate(to)?, from });
        }
        let bits = u32::try_from(8 * element(type_)?.bytes).ok()?;
        if to.starts_with('{') {
            let (to, from) = (self.registers(to)?, self.source(from)?);
            return (to.iter().map(|it| it.width).sum::<u32>() == bits)
                .then_some(Operation::Split { to, from });
        }
        if from.starts_with('{') {
            let list = self.list(from);
            let width = bits / u32::try_from(list.len()).ok()?;
            let from =
                list.into_iter().map(|it| Some((self.source(it)?, width))).collect::<Option<Vec<_>>>()?;
            return Some(Operation::Join { to: self.register(to)?, from });
        }
        self.same(to, from)
    }

    /// `setp`, with what a second truth value does if there is one.
    fn compared(&self, parts: &[&str], operands: &[&str]) -> Option<Operation> {
        let (how, with, type_) = match (parts, operands) {
            ([_, how, type_], [_, _, _]) => (how, None, type_),
            ([_, how, what, type_], [_, _, _, with]) => {
                (how, Some((connective(what)?, self.truth(with)?)), type_)
            }
            _ => return None,
        };
        let comparison = Comparison::named(how, type_)?;
        let from = [self.source(operands[1])?, self.source(operands[2])?];
        Some(Operation::Compare { comparison, to: self.predicate(operands[0])?, from, with })
    }

    /// `cp.async`.
    fn copied(&self, parts: &[&str], operands: &[&str]) -> Option<Operation> {
        match (parts, operands) {
            (["commit_group"], []) => Some(Operation::Commit),
            (["wait_group"], [but]) => Some(Operation::Wait { but: immediate(but)? }),
            (["cg" | "ca", "shared", "global"], [to, from, bytes, rest @ ..]) => {
                let there = match rest {
                    [] => None,
                    [there] => Some(self.source(there)?),
                    _ => return None,
                };
                let (to, from) = (self.address(to)?, self.address(from)?);
                Some(Operation::CopyAsync { to, from, bytes: immediate(bytes)?, there })
            }
            _ => None,
        }
    }
}

fn connective(name: &str) -> Option<Connective> {
    match name {
        "and" => Some(Connective::And),
        "or" => Some(Connective::Or),
        "xor" => Some(Connective::Xor),
        _ => None,
    }
}

/// A type in memory.
fn element(type_: &str) -> Option<Element> {
    let bytes = match type_.get(1..)? {
        "8" => 1,
        "16" => 2,
        "32" => 4,
        "64" => 8,
        _ => return None,
    };
    let kind = type_.get(..1)?;
    ["b", "u", "s", "f"].contains(&kind).then_some(Element { bytes, signed: kind == "s" })
}

/// What stands behind `ld` and `st`: a space, how many elements, of which type.
fn access(parts: &[&str]) -> Option<(Space, usize, Element)> {
    let (space, rest) = parts.split_first()?;
    let space = match *space {
        // Tables of constants lie beside buffers.
        "global" | "const" => Space::Global,
        "shared" => Space::Shared,
        "local" => Space::Local,
        _ => return None,
    };
    let rest = rest.strip_prefix(&["nc"]).unwrap_or(rest);
    match rest {
        [type_] => Some((space, 1, element(type_)?)),
        ["v2", type_] => Some((space, 2, element(type_)?)),
        ["v4", type_] => Some((space, 4, element(type_)?)),
        _ => None,
    }
}
