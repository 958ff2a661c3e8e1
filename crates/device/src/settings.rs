//! What a device is made with.

use std::path::PathBuf;

use crate::ranks::Issuing;

/// What a device is made with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Where libraries are looked for first.
    pub libraries: Vec<PathBuf>,
    /// Where compiled kernels and what has been found of products are kept, if they are.
    pub cache: Option<PathBuf>,
    /// Which GPU.
    pub gpu: usize,
    /// What products may use besides their matrices, for each rank (bytes).
    pub workspace: u64,
    /// How steps are issued.
    pub issuing: Issuing,
}

impl Default for Settings {
    /// The first GPU, nothing kept, as much for products as the library likes on GPUs of 2022 on, and
    /// steps captured.
    fn default() -> Self {
        Self { libraries: Vec::new(), cache: None, gpu: 0, workspace: 32 << 20, issuing: Issuing::Captured }
    }
}
