//! What two processes say to each other, in frames.

use super::secure::{FRAME, Opener, Sealer, is_late, look_again};
use crate::processes::flight::Doing;

use std::io;
use std::time::Instant;

/// How many bytes come before those of a piece: its kind and its tag.
const HEAD: usize = 5;
/// The longest message before two ranks have agreed that they belong together (bytes).
const BEFORE: usize = 1 << 16;

/// A frame that has come.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Frame {
    /// A message with a tag.
    Message(i32, Vec<u8>),
    /// A sign of life.
    Beat(Doing),
    /// All processes end: with what exit code.
    Abort(u8),
    /// Nothing more will come.
    Goodbye,
}

const PIECE: u8 = 0;
const LAST: u8 = 1;
const BEAT: u8 = 2;
const ABORT: u8 = 3;
const GOODBYE: u8 = 4;

/// Where a beat has no rank.
const NOBODY: u64 = u64::MAX;

fn nonsense(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what.to_owned())
}

impl Sealer {
    /// Sends a message, in as many frames as it takes.
    pub(super) fn message(&mut self, tag: i32, bytes: &[u8]) -> io::Result<()> {
        let mut frame = Vec::with_capacity(FRAME.min(HEAD + bytes.len()));
        let mut rest = bytes;
        loop {
            let (piece, after) = rest.split_at(rest.len().min(FRAME - HEAD));
            frame.clear();
            frame.push(if after.is_empty() { LAST } else { PIECE });
            frame.extend(tag.to_le_bytes());
            frame.extend(piece);
            self.seal(&frame)?;
            if after.is_empty() {
                return Ok(());
            }
            rest = after;
        }
    }

    pub(super) fn beat(&mut self, doing: Doing) -> io::Result<()> {
        let numbers = [doing.step, doing.program, doing.instruction, doing.waits_for.unwrap_or(NOBODY)];
        let mut frame = vec![BEAT];
        frame.extend(numbers.into_iter().flat_map(u64::to_le_bytes));
        self.seal(&frame)
    }

    pub(super) fn abort(&mut self, code: u8) -> io::Result<()> {
        self.seal(&[ABORT, code])
    }

    pub(super) fn goodbye(&mut self) -> io::Result<()> {
        self.seal(&[GOODBYE])
    }
}

impl Opener {
    /// What comes next; a message only when all of it is there. No message is longer than the limit
    /// (bytes). Where reading is late, what has come is kept for the next call.
    pub(super) fn next(&mut self, limit: usize) -> io::Result<Frame> {
        loop {
            let mut frame = Vec::new();
            self.open(&mut frame)?;
            let Some((&kind, rest)) = frame.split_first() else { return Err(nonsense("an empty frame")) };
            if kind == PIECE || kind == LAST {
                let (tag, bytes) =
                    rest.split_first_chunk().ok_or_else(|| nonsense("a piece without a tag"))?;
                let tag = i32::from_le_bytes(*tag);
                let (of, so_far) = self.pieces.get_or_insert_with(|| (tag, Vec::new()));
                if *of != tag {
                    return Err(nonsense("a message inside another one"));
                }
                if so_far.len().saturating_add(bytes.len()) > limit {
                    return Err(nonsense("a message that is too long"));
                }
                so_far.extend(bytes);
                if kind == LAST
                    && let Some((tag, bytes)) = self.pieces.take()
                {
                    return Ok(Frame::Message(tag, bytes));
                }
                continue;
            }
            if self.pieces.is_some() {
                return Err(nonsense("a frame inside a message"));
            }
            return other(kind, rest);
        }
    }

    /// A message before two ranks have agreed that they belong together.
    pub(super) fn said(&mut self) -> io::Result<Vec<u8>> {
        match self.next(BEFORE)? {
            Frame::Message(_, bytes) => Ok(bytes),
            _ => Err(nonsense("another frame where a message was expected")),
        }
    }

    /// The same, until a deadline.
    pub(super) fn said_until(&mut self, deadline: Instant) -> io::Result<Vec<u8>> {
        loop {
            match self.said() {
                Err(error) if is_late(&error) => look_again(deadline)?,
                said => return said,
            }
        }
    }
}

/// A frame that is no piece of a message.
fn other(kind: u8, rest: &[u8]) -> io::Result<Frame> {
    match (kind, rest) {
        (BEAT, rest) => {
            let (numbers, after) = rest.as_chunks::<8>();
            let &numbers: &[[u8; 8]; 4] = numbers.try_into().map_err(|_| nonsense("half a beat"))?;
            if !after.is_empty() {
                return Err(nonsense("more than a beat"));
            }
            let [step, program, instruction, waits_for] = numbers.map(u64::from_le_bytes);
            let waits_for = (waits_for != NOBODY).then_some(waits_for);
            Ok(Frame::Beat(Doing { step, program, instruction, waits_for }))
        }
        (ABORT, &[code]) => Ok(Frame::Abort(code)),
        (GOODBYE, []) => Ok(Frame::Goodbye),
        _ => Err(nonsense("a frame of no kind that is known")),
    }
}

/// Texts, one after the other, each with its length before it.
pub(super) fn joined(texts: &[String]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for text in texts {
        // What is longer is refused by whoever reads it.
        bytes.extend(u32::try_from(text.len()).unwrap_or(u32::MAX).to_le_bytes());
        bytes.extend(text.as_bytes());
    }
    bytes
}

/// The texts that were joined; nothing if they are none.
pub(super) fn taken_apart(mut bytes: &[u8]) -> Option<Vec<String>> {
    let mut texts = Vec::new();
    while !bytes.is_empty() {
        let (length, rest) = bytes.split_first_chunk()?;
        let length = usize::try_from(u32::from_le_bytes(*length)).ok()?;
        let (text, rest) = rest.split_at_checked(length)?;
        texts.push(String::from_utf8(text.to_vec()).ok()?);
        bytes = rest;
    }
    Some(texts)
}
