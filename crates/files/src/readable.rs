//! Files that are read: the one way to open them, and what their content is known by.

use std::fs::{File, Metadata};
use std::io::{self, Read, Seek, SeekFrom};
use std::ops::Range;
use std::path::Path;

use planner_ir::did_you_mean;
use sha2::{Digest, Sha256};

use crate::failure::Failure;
use crate::written::folder;

/// Opens a file. What is none is refused: pipes, devices and sockets, which may never end or never begin,
/// and folders.
pub fn open(path: &Path) -> io::Result<File> {
    // Before it is opened: opening a pipe waits for whoever writes to it. After: it may have become another.
    expect_file(&std::fs::metadata(path)?)?;
    let file = File::open(path)?;
    expect_file(&file.metadata()?)?;
    Ok(file)
}

fn expect_file(found: &Metadata) -> io::Result<()> {
    match () {
        () if found.is_file() => Ok(()),
        () if found.is_dir() => Err(io::Error::other("it is a folder, expected a file")),
        () => Err(io::Error::other("it is a pipe, a device or a socket, expected a file")),
    }
}

/// Why a file cannot be read; of one that is not there, which one in its folder is called nearly so.
pub fn failed(path: &Path, error: &io::Error) -> Failure {
    let near = if error.kind() == io::ErrorKind::NotFound { near(path) } else { String::new() };
    Failure::file(path, format!("cannot be read: {error}{near}"))
}

/// The name of a file that is called nearly so, as words to end a message with.
fn near(path: &Path) -> String {
    let Some(said) = path.file_name() else { return String::new() };
    let Ok(entries) = std::fs::read_dir(folder(path)) else { return String::new() };
    let mut names: Vec<String> = entries.filter_map(|it| it.ok()?.file_name().into_string().ok()).collect();
    names.sort_unstable();
    did_you_mean(&said.to_string_lossy(), names.iter().map(String::as_str))
}

/// All of a file.
pub fn bytes(path: &Path) -> Result<Vec<u8>, Failure> {
    let mut bytes = Vec::new();
    let read = open(path).and_then(|mut file| file.read_to_end(&mut bytes));
    read.map_err(|error| failed(path, &error))?;
    Ok(bytes)
}

/// All of a file, unpacked where its name ends with `.gz`.
pub fn unpacked(path: &Path) -> Result<Vec<u8>, Failure> {
    let packed = bytes(path)?;
    if path.extension().is_none_or(|it| it != "gz") {
        return Ok(packed);
    }
    let mut all = Vec::new();
    let read = flate2::read::MultiGzDecoder::new(&packed[..]).read_to_end(&mut all);
    read.map_err(|error| failed(path, &error))?;
    Ok(all)
}

/// All of a file of text.
pub fn text(path: &Path) -> Result<String, Failure> {
    read_text(path).map_err(|error| failed(path, &error))
}

/// All of a file of text, if there is one.
pub fn text_if_there(path: &Path) -> Result<Option<String>, Failure> {
    match read_text(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        read => read.map(Some).map_err(|error| failed(path, &error)),
    }
}

fn read_text(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    open(path)?.read_to_string(&mut text)?;
    Ok(text)
}

/// Bytes in hexadecimal.
pub fn hexadecimal(hash: impl IntoIterator<Item = u8>) -> String {
    hash.into_iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The SHA-256 of a file, in hexadecimal. It is read, not mapped: what is mapped and looked at is counted as
/// memory of this process.
pub fn sha256(file: &mut File) -> io::Result<String> {
    let (mut hash, mut chunk) = (Sha256::new(), vec![0; CHUNK]);
    loop {
        match file.read(&mut chunk)? {
            0 => return Ok(hexadecimal(hash.finalize())),
            count => hash.update(&chunk[..count]),
        }
    }
}

/// How much of a file is hashed at once (bytes).
const CHUNK: usize = 1 << 20;

/// What a file is compared by with that of the same name on another host: how long it is, and the SHA-256 of
/// all of it up to `WHOLE`, else of `SAMPLES` pieces at equal distances, the end, and the beginning,
/// middle and end of each of these parts of it.
///
/// A part that was trained, converted or damaged on its way as a whole is seen; that some bytes between the
/// samples of a large file differ and none else is not.
pub fn fingerprint(path: &Path, parts: &[Range<u64>]) -> io::Result<String> {
    let mut file = open(path)?;
    let length = file.metadata()?.len();
    if length <= WHOLE {
        return Ok(format!("{length} bytes, SHA-256 {}", sha256(&mut file)?));
    }
    let mut hash = Sha256::new();
    let mut piece = Vec::new();
    for start in sampled(length, parts) {
        file.seek(SeekFrom::Start(start))?;
        piece.clear();
        file.by_ref().take(PIECE).read_to_end(&mut piece)?;
        hash.update(&piece);
    }
    Ok(format!("{length} bytes, SHA-256 of samples {}", hexadecimal(hash.finalize())))
}

/// Where the pieces of a large file start that are looked at, ascending.
fn sampled(length: u64, parts: &[Range<u64>]) -> Vec<u64> {
    let spread = (0..SAMPLES).map(|number| length / SAMPLES * number);
    let of_part = |part: &Range<u64>| {
        let end = part.end.min(length).saturating_sub(PIECE).max(part.start);
        [part.start, part.start + (end - part.start) / 2, end]
    };
    let mut starts: Vec<u64> =
        spread.chain([length.saturating_sub(PIECE)]).chain(parts.iter().flat_map(of_part)).collect();
    starts.sort_unstable();
    starts.dedup();
    starts
}

/// Up to which length all of a file is looked at (bytes).
const WHOLE: u64 = 1 << 26;
/// How many pieces of a larger one are.
const SAMPLES: u64 = 1 << 13;
/// How long each is (bytes).
const PIECE: u64 = 1 << 12;

#[cfg(test)]
mod tests;
