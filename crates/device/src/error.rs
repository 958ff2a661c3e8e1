//! Why something is not done on a GPU.

use std::fmt;
use std::path::PathBuf;

use kernels::KernelError;
use run::RunError;

use crate::library::NotFound;
use crate::nvrtc::CompileError;

/// Why something is not done on a GPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DeviceError {
    /// A library that is not there, or that lacks something.
    NotFound(NotFound),
    /// A call of a library that failed.
    Call {
        /// The function.
        call: &'static str,
        /// What it returned.
        code: i32,
        /// What the library says of that; empty if it says nothing.
        said: String,
    },
    /// Kernels that do not compile.
    Compile(CompileError),
    /// A file of the cache that cannot be written; why.
    Cache(PathBuf, String),
    /// A computation of the host that failed; which, why.
    Host(String, KernelError),
    /// Ranks that need more memory than is free.
    Room {
        /// What they need (bytes).
        needed: u64,
        /// What is free (bytes).
        free: u64,
        /// How many ranks there are.
        ranks: usize,
        /// What the driver calls the GPU.
        gpu: String,
    },
    /// Programs that break the rules of programs, or need what there is not; how.
    Program(String),
}

impl fmt::Display for DeviceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotFound(missing) => write!(f, "{missing}"),
            Self::Call { call, code, said } if said.is_empty() => write!(f, "{call} returned {code}"),
            Self::Call { call, code, said } => write!(f, "{call} returned {code}: {said}"),
            Self::Compile(error) => write!(f, "a kernel does not compile: {error}"),
            Self::Cache(path, why) => write!(f, "{} cannot be written: {why}", path.display()),
            Self::Host(name, error) => write!(f, "`{name}`, computed on the host: {error}"),
            Self::Room { needed, free, ranks, gpu } => {
                let ranks =
                    if *ranks == 1 { "a rank needs".to_owned() } else { format!("{ranks} ranks need") };
                let megabytes = |bytes: &u64| bytes.div_ceil(1_000_000);
                let (needed, free) = (megabytes(needed), free / 1_000_000);
                write!(f, "{ranks} {needed} MB of the GPU's memory, {gpu} has {free} MB free")
            }
            Self::Program(how) => f.write_str(how),
        }
    }
}

impl std::error::Error for DeviceError {}

impl From<NotFound> for DeviceError {
    fn from(missing: NotFound) -> Self {
        Self::NotFound(missing)
    }
}

impl From<CompileError> for DeviceError {
    fn from(error: CompileError) -> Self {
        Self::Compile(error)
    }
}

impl From<DeviceError> for RunError {
    fn from(error: DeviceError) -> Self {
        Self::Device(error.to_string())
    }
}
