//! Whether an archive is one: its list, what stands before the bytes of each entry, and its end say the same.
//!
//! Programs differ in what they take of an archive that says two things: the first or the last of two entries
//! of a name, the list or what stands before the bytes, the last end or one before it. So an archive that does
//! is refused.
//!
//! Source: PKWARE's APPNOTE 6.3.10, 4.3.7 "Local file header", 4.3.12 "Central directory structure", 4.3.14 to
//! 4.3.16 on its end, 4.5.3 "Zip64 Extended Information Extra Field".

use std::io::{Read, Seek};
use std::ops::Range;

use zip::ZipArchive;

/// What an entry of the list begins with, and what stands before the bytes of an entry.
const LISTED: &[u8] = b"PK\x01\x02";
const LOCAL: &[u8] = b"PK\x03\x04";
/// What the ends begin with: that of large archives, where it is, and that of all.
const END_64: &[u8] = b"PK\x06\x06";
const PLACE_64: &[u8] = b"PK\x06\x07";
const END: &[u8] = b"PK\x05\x06";
/// A length that stands in the field of large entries.
const LARGE: u64 = 0xFFFF_FFFF;
/// That field.
const LARGE_FIELD: u64 = 1;
/// The flag of entries whose lengths and checksum stand after their bytes.
const AFTERWARDS: u64 = 1 << 3;

/// Refuses an archive that says two things.
pub(super) fn check<R: Read + Seek>(file: &[u8], zip: &mut ZipArchive<R>) -> Result<(), String> {
    let listed = end(file, zip.central_directory_start())?;
    if listed != zip.len() {
        return Err(format!("lists {listed} entries, of which {} have names of their own", zip.len()));
    }
    let mut taken: Vec<(Range<u64>, String)> = Vec::new();
    for index in 0..zip.len() {
        let entry = zip.by_index_raw(index).map_err(|error| error.to_string())?;
        let raw = entry.name_raw();
        let name = String::from_utf8_lossy(raw).into_owned();
        let (start, in_list) = (entry.header_start(), entry.central_header_start());
        let lengths = [entry.compressed_size(), entry.size()];
        let local =
            Local::read(file, start).and_then(|it| it.agrees(bytes(file, in_list, 46)?, raw, lengths));
        let first = local.map_err(|error| format!("entry `{name}` {error}"))?;
        taken.push((start..first.saturating_add(entry.compressed_size()), name));
    }
    taken.sort_by_key(|(range, _)| (range.start, range.end));
    let list = (zip.central_directory_start()..u64::MAX, "the archive's list".to_owned());
    for (at, (range, name)) in taken.iter().enumerate() {
        let (next, other) = taken.get(at + 1).unwrap_or(&list);
        if range.end > next.start {
            return Err(format!("entry `{name}` reaches into `{other}`"));
        }
    }
    Ok(())
}

/// How many entries a list has after which the archive ends.
fn end(file: &[u8], list: u64) -> Result<usize, String> {
    let begins = |at: u64, with: &[u8]| bytes(file, at, 4).is_ok_and(|it| it == with);
    let (mut at, mut count) = (list, 0);
    while begins(at, LISTED) {
        let header = bytes(file, at, 46)?;
        at += 46 + [28, 30, 32].map(|field| number(header, field, 2)).iter().sum::<u64>();
        count += 1;
    }
    if begins(at, END_64) {
        at = at.saturating_add(12).saturating_add(number(bytes(file, at, 12)?, 4, 8));
    }
    if begins(at, PLACE_64) {
        at += 20;
    }
    if !begins(at, END) {
        return Err(format!("has no end after the {count} entries of its list"));
    }
    let comment = number(bytes(file, at, 22)?, 20, 2);
    let (found, expected) = (u64::try_from(file.len()).unwrap_or(u64::MAX), at + 22 + comment);
    if found == expected { Ok(count) } else { Err(format!("ends at byte {expected}, and has {found}")) }
}

/// What stands before the bytes of an entry.
struct Local<'a> {
    header: &'a [u8],
    name: &'a [u8],
    extra: &'a [u8],
    /// Where the bytes begin.
    first: u64,
}

impl<'a> Local<'a> {
    fn read(file: &'a [u8], start: u64) -> Result<Self, String> {
        let header = bytes(file, start, 30)?;
        if !header.starts_with(LOCAL) {
            return Err("is not where the list says".to_owned());
        }
        let [name, extra] = [26, 28].map(|field| number(header, field, 2));
        Ok(Self {
            header,
            name: bytes(file, start + 30, name)?,
            extra: bytes(file, start + 30 + name, extra)?,
            first: start + 30 + name + extra,
        })
    }

    /// Where the bytes begin, if what stands before them is what the list says.
    fn agrees(&self, listed: &[u8], name: &[u8], [packed, whole]: [u64; 2]) -> Result<u64, String> {
        if self.name != name {
            return Err(format!("is called `{}` where its bytes are", String::from_utf8_lossy(self.name)));
        }
        let says = |what: &str, found: u64, expected: u64| {
            let error = || format!("has the {what} {found} where its bytes are, and {expected} in the list");
            (found == expected).then_some(()).ok_or_else(error)
        };
        says("method", number(self.header, 8, 2), number(listed, 10, 2))?;
        let afterwards = number(self.header, 6, 2) & AFTERWARDS != 0;
        let [length, unpacked] = self.lengths();
        let checksum = [number(self.header, 14, 4), number(listed, 16, 4)];
        for (what, [found, expected]) in
            [("checksum", checksum), ("length", [length, packed]), ("unpacked length", [unpacked, whole])]
        {
            if !(afterwards && found == 0) {
                says(what, found, expected)?;
            }
        }
        Ok(self.first)
    }

    /// How long the entry is, and how long unpacked.
    fn lengths(&self) -> [u64; 2] {
        let (mut large, mut rest) = (&[][..], self.extra);
        while let (Some(field), true) = (rest.get(..4), large.is_empty()) {
            let length = usize::try_from(number(field, 2, 2)).unwrap_or(usize::MAX);
            let Some(content) = rest[4..].get(..length) else { break };
            large = if number(field, 0, 2) == LARGE_FIELD { content } else { large };
            rest = &rest[4 + length..];
        }
        // In the field of large entries stand, in this order, the lengths that are too large for 4 bytes.
        let mut length = |field: usize| match (number(self.header, field, 4), large.len() >= 8) {
            (LARGE, true) => {
                let (first, others) = large.split_at(8);
                large = others;
                number(first, 0, 8)
            }
            (short, _) => short,
        };
        let unpacked = length(22);
        [length(18), unpacked]
    }
}

/// So many bytes of a file.
fn bytes(file: &[u8], start: u64, length: u64) -> Result<&[u8], String> {
    let end = start.checked_add(length).and_then(|it| usize::try_from(it).ok());
    let found = end.zip(usize::try_from(start).ok()).and_then(|(end, start)| file.get(start..end));
    found.ok_or_else(|| "ends too early".to_owned())
}

/// A number of so many bytes.
fn number(bytes: &[u8], at: usize, width: usize) -> u64 {
    bytes.iter().skip(at).take(width).rev().fold(0, |number, &byte| number << 8 | u64::from(byte))
}
