//! The text of a program, as kernels with statements.

use std::fmt;

/// Why a text is not a program that can be run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseError {
    /// The line, from 1.
    pub line: usize,
    /// What is there.
    pub found: String,
    /// What was expected.
    pub expected: &'static str,
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { line, found, expected } = self;
        write!(f, "line {line} of the PTX: `{found}` is not {expected}")
    }
}

impl std::error::Error for ParseError {}

/// A kernel as it is written.
#[derive(Debug, Default)]
pub(crate) struct Written<'a> {
    pub(crate) name: &'a str,
    pub(crate) parameters: Vec<Declared<'a>>,
    /// The threads that a block may have.
    pub(crate) most_threads: Option<u32>,
    pub(crate) registers: Vec<Registers<'a>>,
    /// Memory of a thread or a block.
    pub(crate) memory: Vec<(Where, Declared<'a>)>,
    pub(crate) statements: Vec<Statement<'a>>,
}

/// Whose memory is declared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Where {
    /// Of a thread.
    Local,
    /// Of a block.
    Shared,
}

/// A name and how much it is of.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Declared<'a> {
    pub(crate) name: &'a str,
    pub(crate) bytes: u64,
    pub(crate) alignment: u64,
}

/// Registers of a class: `%r<8>` are `%r0` to `%r7`.
#[derive(Debug)]
pub(crate) struct Registers<'a> {
    /// What they are called before their number; the whole name if there is one.
    pub(crate) name: &'a str,
    /// How many bits one has; 1 if it is a predicate.
    pub(crate) width: u32,
    /// How many there are; none if the name has no number.
    pub(crate) count: Option<usize>,
}

/// What stands in the body of a kernel.
#[derive(Debug)]
pub(crate) enum Statement<'a> {
    Label(&'a str),
    Instruction {
        line: usize,
        /// The predicate that it depends on, and whether that has to be false.
        guard: Option<(&'a str, bool)>,
        name: &'a str,
        operands: Vec<&'a str>,
        /// Which bytes of what it loads are used.
        used: Option<u64>,
    },
}

/// What stands outside of kernels.
#[derive(Debug, Default)]
pub(crate) struct Text<'a> {
    pub(crate) kernels: Vec<Written<'a>>,
    /// Names of the memory of a block whose size a launch says.
    pub(crate) launched: Vec<&'a str>,
    /// Numbers that kernels read, by name.
    pub(crate) constants: Vec<(&'a str, Vec<u8>)>,
}

/// A line without its comment.
fn plain(line: &str) -> &str {
    line.split("//").next().unwrap_or_default().trim()
}

/// Reads a program.
pub(crate) fn parse(text: &str) -> Result<Text<'_>, ParseError> {
    let mut all = Text::default();
    let mut kernel: Option<Written<'_>> = None;
    let mut depth = 0_usize;
    let mut used = None;
    for (number, line) in (1..).zip(text.lines()) {
        let error = |expected| ParseError { line: number, found: plain(line).to_owned(), expected };
        let line = plain(line);
        if line.is_empty() {
            continue;
        }
        let Some(open) = &mut kernel else {
            if let Some(rest) = line.strip_prefix(".visible .entry ") {
                let name = rest.trim_end_matches(['(', ')', ' ']);
                kernel = Some(Written { name, ..Written::default() });
            } else {
                outside(line, &mut all).ok_or_else(|| error("a declaration that is known"))?;
            }
            continue;
        };
        match line {
            "{" => depth += 1,
            "}" => {
                depth = depth.checked_sub(1).ok_or_else(|| error("within a kernel"))?;
                if depth == 0 {
                    all.kernels.extend(kernel.take());
                }
            }
            _ if depth == 0 => header(line, open).ok_or_else(|| error("a part of a kernel's head"))?,
            _ if line.starts_with('.') => match line.strip_prefix(".pragma \"used_bytes_mask ") {
                Some(rest) => {
                    let bits = rest.trim_end_matches(['"', ';']).trim();
                    used = Some(bits.parse().map_err(|_| error("a mask of bytes"))?);
                }
                None => declared(line, open).ok_or_else(|| error("a declaration that is known"))?,
            },
            _ => statement(number, line, used.take(), &mut open.statements)
                .ok_or_else(|| error("an instruction on a line of its own"))?,
        }
    }
    match kernel {
        Some(open) => Err(ParseError {
            line: text.lines().count(),
            found: open.name.to_owned(),
            expected: "a kernel that ends",
        }),
        None => Ok(all),
    }
}

/// A line outside of kernels.
fn outside<'a>(line: &'a str, all: &mut Text<'a>) -> Option<()> {
    if [".version", ".target", ".address_size", ".pragma"].iter().any(|it| line.starts_with(it)) {
        return Some(());
    }
    let declaration = line.strip_suffix(';')?;
    if let Some(rest) = declaration.strip_prefix(".extern .shared") {
        all.launched.push(name_of(rest.split_whitespace().last()?));
        return Some(());
    }
    if declaration.starts_with(".global") || declaration.starts_with(".const") {
        let (declared, numbers) = declaration.split_once('=')?;
        let name = name_of(declared.split_whitespace().last()?);
        let numbers = numbers.trim().trim_start_matches('{').trim_end_matches('}').split(',');
        // Only bytes: what the compiler's tables are.
        declared.split_whitespace().find(|it| *it == ".b8")?;
        let bytes = numbers.map(|it| it.trim().parse().ok()).collect::<Option<Vec<u8>>>()?;
        all.constants.push((name, bytes));
        return Some(());
    }
    None
}

/// A name without the size of its array.
fn name_of(declared: &str) -> &str {
    declared.split('[').next().unwrap_or_default()
}

/// Between the name of a kernel and its body.
fn header<'a>(line: &'a str, kernel: &mut Written<'a>) -> Option<()> {
    if line == ")" || line.starts_with(".minnctapersm") || line.starts_with(".maxnreg") {
        return Some(());
    }
    if let Some(rest) = line.strip_prefix(".maxntid") {
        let sizes = rest.split(',').map(|it| it.trim().parse::<u32>().ok());
        kernel.most_threads = Some(sizes.collect::<Option<Vec<u32>>>()?.into_iter().product());
        return Some(());
    }
    let mut words = line.strip_prefix(".param")?.trim_end_matches(',').split_whitespace();
    let bytes = u64::from(width(words.next()?)?) / 8;
    kernel.parameters.push(Declared { name: words.next()?, bytes, alignment: bytes });
    if words.next().is_none() { Some(()) } else { None }
}

/// How long a type is (bits); 1 of predicates.
fn width(type_: &str) -> Option<u32> {
    match type_ {
        ".pred" => Some(1),
        ".b8" | ".u8" | ".s8" => Some(8),
        ".b16" | ".u16" | ".s16" => Some(16),
        ".b32" | ".u32" | ".s32" | ".f32" => Some(32),
        ".b64" | ".u64" | ".s64" | ".f64" => Some(64),
        _ => None,
    }
}

/// A line in a body that begins with a point.
fn declared<'a>(line: &'a str, kernel: &mut Written<'a>) -> Option<()> {
    if line.starts_with(".pragma") || line.starts_with(".loc ") {
        return Some(());
    }
    let line = line.strip_suffix(';')?;
    if let Some(rest) = line.strip_prefix(".reg") {
        let (type_, names) = rest.trim().split_once(char::is_whitespace)?;
        let width = width(type_)?;
        for name in names.split(',').map(str::trim) {
            let registers = match name.split_once('<') {
                Some((name, count)) => {
                    let count = count.strip_suffix('>')?.parse().ok()?;
                    Registers { name, width, count: Some(count) }
                }
                None => Registers { name, width, count: None },
            };
            kernel.registers.push(registers);
        }
        return Some(());
    }
    let (of, rest) = match line.strip_prefix(".local") {
        Some(rest) => (Where::Local, rest),
        None => (Where::Shared, line.strip_prefix(".shared")?),
    };
    let words: Vec<&str> = rest.split_whitespace().collect();
    let [".align", alignment, ".b8", name] = words[..] else { return None };
    let bytes = name.split_once('[')?.1.strip_suffix(']')?.parse().ok()?;
    let declared = Declared { name: name_of(name), bytes, alignment: alignment.parse().ok()? };
    kernel.memory.push((of, declared));
    Some(())
}

/// A label or an instruction.
fn statement<'a>(
    number: usize,
    line: &'a str,
    used: Option<u64>,
    statements: &mut Vec<Statement<'a>>,
) -> Option<()> {
    if let Some(label) = line.strip_suffix(':') {
        statements.push(Statement::Label(label));
        return Some(());
    }
    let line = line.strip_suffix(';')?.trim();
    if line.contains(';') {
        return None;
    }
    let (guard, line) = match line.strip_prefix('@') {
        Some(rest) => {
            let (predicate, rest) = rest.split_once(char::is_whitespace)?;
            let negated = predicate.strip_prefix('!');
            (Some((negated.unwrap_or(predicate), negated.is_some())), rest.trim())
        }
        None => (None, line),
    };
    let (name, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
    statements.push(Statement::Instruction { line: number, guard, name, operands: split(rest), used });
    Some(())
}

/// What commas separate, but for those within braces and brackets.
pub(crate) fn split(text: &str) -> Vec<&str> {
    let (mut parts, mut depth, mut start) = (Vec::new(), 0_usize, 0);
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b'{' | b'[' => depth += 1,
            b'}' | b']' => depth = depth.saturating_sub(1),
            b',' if depth == 0 => {
                parts.push(text[start..at].trim());
                start = at + 1;
            }
            _ => {}
        }
    }
    let last = text[start..].trim();
    if !last.is_empty() {
        parts.push(last);
    }
    parts
}
