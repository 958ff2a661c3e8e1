//! Which algorithms have been found fastest, kept in a file: a line for each product, of what is
//! computed, a tabulator, and the algorithm's eight numbers in hexadecimal digits.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;

use cudarc::cublaslt::sys::cublasLtMatmulAlgo_t;

use crate::cache::write;
use crate::error::DeviceError;

/// The algorithms of products, by what is computed.
pub(super) struct Chosen {
    file: Option<PathBuf>,
    known: BTreeMap<String, [u64; 8]>,
    /// How many have been added.
    pub(super) timed: usize,
}

impl Chosen {
    /// What a file has, if there is one; lines that are not of its form are left out.
    pub(super) fn read(file: Option<PathBuf>) -> Self {
        let text = file.as_ref().and_then(|path| fs::read_to_string(path).ok()).unwrap_or_default();
        let line = |line: &str| {
            let (key, numbers) = line.split_once('\t')?;
            let numbers = numbers.split(' ').map(|it| u64::from_str_radix(it, 16).ok());
            let numbers: Vec<u64> = numbers.collect::<Option<_>>()?;
            Some((key.to_owned(), <[u64; 8]>::try_from(numbers).ok()?))
        };
        Self { known: text.lines().filter_map(line).collect(), file, timed: 0 }
    }

    /// The algorithm of a product.
    pub(super) fn find(&self, key: &str) -> Option<cublasLtMatmulAlgo_t> {
        self.known.get(key).map(|&data| cublasLtMatmulAlgo_t { data })
    }

    /// Adds an algorithm.
    pub(super) fn add(&mut self, key: String, algorithm: cublasLtMatmulAlgo_t) -> Result<(), DeviceError> {
        self.known.insert(key, algorithm.data);
        self.timed += 1;
        let Some(file) = &self.file else { return Ok(()) };
        let mut text = String::new();
        for (key, numbers) in &self.known {
            let numbers: Vec<String> = numbers.iter().map(|it| format!("{it:x}")).collect();
            // Writing to a string does not fail.
            let _ = writeln!(text, "{key}\t{}", numbers.join(" "));
        }
        write(file, text.as_bytes())
    }
}
