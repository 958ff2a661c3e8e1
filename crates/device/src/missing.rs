//! What running on a GPU needs and this machine lacks.

use std::path::PathBuf;

use crate::library::{self, NotFound};

/// The libraries, by the names that their packages give them.
const NEEDED: [(&str, &[&str]); 3] = [
    ("the driver (libcuda.so.1)", &["libcuda.so.1"]),
    ("NVRTC, which compiles kernels (libnvrtc.so)", &["libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"]),
    (
        "cuBLASLt, which computes matrix products (libcublasLt.so)",
        &["libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so"],
    ),
];

/// Each library that running on a GPU needs and that is not in these folders or where libraries are.
pub fn missing(folders: &[PathBuf]) -> Vec<NotFound> {
    let look = |(what, names): (&'static str, &[&str])| library::load(what, names, folders).err();
    NEEDED.into_iter().filter_map(look).collect()
}
