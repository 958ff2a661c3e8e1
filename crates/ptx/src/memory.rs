//! Buffers of a device and the shared memory of a block, every byte with what happened to it.

use crate::bits::place;
use crate::cells::{Cell, Moment, Now};
use crate::fault::What;

/// The longest access (bytes).
pub(crate) const LONGEST: usize = 16;

/// Where buffers begin to be, and how far they are apart at least (bytes).
const START: u64 = 0x7f00_0000_0000;
const APART: u64 = 4096;

/// What buffers are aligned to, and nothing larger: kernels are promised no more (bytes).
const ALIGNMENT: u64 = 16;

/// What bytes are that nobody wrote: no number in any type of fractions.
const UNWRITTEN: u8 = 0xff;

/// What kernels may do with a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Read it.
    Read,
    /// Read and write it.
    ReadWrite,
}

/// The memory of a device.
#[derive(Debug, Default)]
pub struct Memory {
    /// By where they are.
    buffers: Vec<Buffer>,
    /// Which was accessed last.
    last: usize,
    /// The last era that has begun.
    pub(crate) era: u32,
}

#[derive(Debug)]
struct Buffer {
    name: String,
    start: u64,
    access: Access,
    bytes: Bytes,
}

/// Bytes with what happened to them.
#[derive(Debug)]
struct Bytes {
    data: Vec<u8>,
    cells: Vec<Cell>,
}

/// The shared memory of a block.
#[derive(Debug)]
pub(crate) struct Shared(Bytes);

/// An access that is not allowed, before it is said where it is.
enum Refused {
    Unwritten(usize),
    Race(usize, Moment),
}

impl Memory {
    /// No buffers yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// A buffer that holds these bytes; its address.
    pub fn give(&mut self, name: &str, bytes: &[u8], access: Access) -> u64 {
        self.add(name, access, Bytes::given(bytes))
    }

    /// A buffer of so many bytes that nobody has written; its address.
    pub fn room(&mut self, name: &str, bytes: usize) -> u64 {
        self.add(name, Access::ReadWrite, Bytes::unwritten(bytes))
    }

    fn add(&mut self, name: &str, access: Access, bytes: Bytes) -> u64 {
        let end = self.buffers.last().map_or(0, |it| it.start + length(&it.bytes.data));
        let start = (end.max(START) + APART).next_multiple_of(2 * ALIGNMENT) + ALIGNMENT;
        self.buffers.push(Buffer { name: name.to_owned(), start, access, bytes });
        start
    }

    /// Puts a table at a place below all buffers.
    pub(crate) fn put_table(&mut self, start: u64, bytes: &[u8]) {
        let at = self.buffers.partition_point(|it| it.start < start);
        let table = Buffer {
            name: "a table of the program".to_owned(),
            start,
            access: Access::Read,
            bytes: Bytes::given(bytes),
        };
        match self.buffers.get_mut(at) {
            Some(known) if known.start == start => *known = table,
            _ => self.buffers.insert(at, table),
        }
    }

    /// What is in the buffer that begins at an address; nothing if there is none.
    pub fn bytes(&self, address: u64) -> Option<&[u8]> {
        self.buffers.iter().find(|it| it.start == address).map(|it| &it.bytes.data[..])
    }

    /// The first byte of the buffer at an address that nobody has written, if there is one.
    pub fn first_unwritten(&self, address: u64) -> Option<usize> {
        let buffer = self.buffers.iter().find(|it| it.start == address)?;
        buffer.bytes.cells.iter().position(|it| !it.is_written)
    }

    /// The buffer that has so many bytes from an address on, and where in it that is.
    fn find(&mut self, address: u64, bytes: usize) -> Result<(usize, usize), What> {
        let inside = |number: usize| {
            let it = self.buffers.get(number)?;
            let at = place(address.checked_sub(it.start)?);
            (at.checked_add(bytes)? <= it.bytes.data.len()).then_some((number, at))
        };
        let below = || self.buffers.partition_point(|it| it.start <= address).checked_sub(1);
        let Some((buffer, at)) = inside(self.last).or_else(|| inside(below()?)) else {
            let near = below().map_or("below all buffers".to_owned(), |it| self.near(it, address));
            return Err(What::Outside { address, bytes: length_of(bytes), near });
        };
        self.last = buffer;
        if !address.is_multiple_of(length_of(bytes)) {
            let near = self.near(buffer, address);
            return Err(What::Misaligned { address, bytes: length_of(bytes), near });
        }
        Ok((buffer, at))
    }

    fn near(&self, buffer: usize, address: u64) -> String {
        self.buffers.get(buffer).map_or_else(String::new, |it| {
            format!("{} of {} bytes, {} behind its start", it.name, it.bytes.data.len(), address - it.start)
        })
    }

    /// Reads bytes, of which a mask says which are used.
    pub(crate) fn load(
        &mut self,
        address: u64,
        bytes: usize,
        used: u64,
        now: &Now,
    ) -> Result<[u8; LONGEST], What> {
        let (buffer, at) = self.find(address, bytes)?;
        let read = self.buffers[buffer].bytes.read(at, bytes, used, now, 0);
        read.map_err(|refused| self.refusal(buffer, address - length_of(at), refused, now))
    }

    /// Writes bytes.
    pub(crate) fn store(&mut self, address: u64, bytes: &[u8], now: &Now) -> Result<(), What> {
        let (buffer, at) = self.find(address, bytes.len())?;
        if self.buffers[buffer].access == Access::Read {
            return Err(What::ReadOnly { address, near: self.near(buffer, address) });
        }
        let written = self.buffers[buffer].bytes.write(at, bytes, now);
        written.map_err(|refused| self.refusal(buffer, address - length_of(at), refused, now))
    }

    fn refusal(&self, buffer: usize, start: u64, refused: Refused, now: &Now) -> What {
        refused.said(start, now, |address| self.near(buffer, address))
    }
}

fn length(bytes: &[u8]) -> u64 {
    length_of(bytes.len())
}

fn length_of(bytes: usize) -> u64 {
    u64::try_from(bytes).unwrap_or(u64::MAX)
}

impl Refused {
    fn said(self, start: u64, now: &Now, near: impl Fn(u64) -> String) -> What {
        let (Self::Unwritten(at) | Self::Race(at, _)) = self;
        let address = start + length_of(at);
        let near = near(address);
        match self {
            Self::Unwritten(_) => What::Unwritten { address, near },
            Self::Race(_, other) => {
                let block = if other.era < now.block { "of another block" } else { "of the block" };
                What::Race { address, near, other: format!("thread {} {block}", other.thread) }
            }
        }
    }
}

impl Bytes {
    fn given(bytes: &[u8]) -> Self {
        Self { data: bytes.to_vec(), cells: vec![Cell::GIVEN; bytes.len()] }
    }

    fn unwritten(bytes: usize) -> Self {
        Self { data: vec![UNWRITTEN; bytes], cells: vec![Cell::default(); bytes] }
    }

    /// Reads bytes that were written since an era.
    fn read(
        &mut self,
        at: usize,
        bytes: usize,
        used: u64,
        now: &Now,
        since: u32,
    ) -> Result<[u8; LONGEST], Refused> {
        let mut made = [0; LONGEST];
        for number in (0..bytes).filter(|number| used >> number & 1 == 1) {
            let cell = &mut self.cells[at + number];
            if !cell.is_written_since(since) {
                return Err(Refused::Unwritten(at + number));
            }
            if let Some(other) = cell.read(now) {
                return Err(Refused::Race(at + number, other));
            }
            made[number] = self.data[at + number];
        }
        Ok(made)
    }

    fn write(&mut self, at: usize, bytes: &[u8], now: &Now) -> Result<(), Refused> {
        for (number, &byte) in (at..).zip(bytes) {
            let (cell, kept) = (&mut self.cells[number], &mut self.data[number]);
            if let Some(other) = cell.write(now, *kept == byte) {
                return Err(Refused::Race(number, other));
            }
            *kept = byte;
        }
        Ok(())
    }
}

impl Shared {
    /// So many bytes.
    pub(crate) fn new(bytes: usize) -> Self {
        Self(Bytes::unwritten(bytes))
    }

    fn near(&self, address: u64) -> String {
        format!("shared memory of {} bytes, {address} behind its start", self.0.data.len())
    }

    /// Where an access is.
    fn find(&self, address: u64, bytes: usize) -> Result<usize, What> {
        let at = place(address);
        let count = length_of(bytes);
        if at.checked_add(bytes).is_none_or(|end| end > self.0.data.len()) {
            return Err(What::Outside { address, bytes: count, near: self.near(address) });
        }
        if !address.is_multiple_of(count) {
            return Err(What::Misaligned { address, bytes: count, near: self.near(address) });
        }
        Ok(at)
    }

    /// Reads bytes, of which a mask says which are used.
    pub(crate) fn load(
        &mut self,
        address: u64,
        bytes: usize,
        used: u64,
        now: &Now,
    ) -> Result<[u8; LONGEST], What> {
        let (at, now) = (self.find(address, bytes)?, now.within_block());
        let read = self.0.read(at, bytes, used, &now, now.block);
        read.map_err(|refused| refused.said(0, &now, |it| self.near(it)))
    }

    /// Writes bytes.
    pub(crate) fn store(&mut self, address: u64, bytes: &[u8], now: &Now) -> Result<(), What> {
        let (at, now) = (self.find(address, bytes.len())?, now.within_block());
        let written = self.0.write(at, bytes, &now);
        written.map_err(|refused| refused.said(0, &now, |it| self.near(it)))
    }

    /// Begins to write bytes that come later: until then, nothing is there.
    pub(crate) fn begin(&mut self, address: u64, bytes: usize, now: &Now) -> Result<(), What> {
        let at = self.find(address, bytes)?;
        let now_within = now.within_block();
        for number in at..at + bytes {
            if let Some(other) = self.0.cells[number].write(&now_within, false) {
                return Err(Refused::Race(number, other).said(0, &now_within, |it| self.near(it)));
            }
            self.0.cells[number].is_written = false;
        }
        Ok(())
    }
}
