//! What kernels are listed.

use std::path::PathBuf;

use clap::Args;
use device::Architecture;

pub(super) const HELP: &str = "\
Examples:
  shardloom kernels plan.json
  shardloom kernels plan.json --arch sm_100a --out kernels --libraries venv/nvidia/cu13/lib

Sources are written to --out, and compiled for the architecture if NVRTC is there: no GPU is needed.";

/// `kernels`.
#[derive(Args, Clone, Debug)]
pub struct KernelsArguments {
    /// The plan
    pub plan: PathBuf,
    /// GPU architecture to compile for
    #[arg(long, value_parser = architecture, default_value = "sm_90a", value_name = "ARCH")]
    pub arch: Architecture,
    /// Write the sources and the compiled kernels to this folder
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Look for the libraries of CUDA in this folder first
    #[arg(long, value_name = "DIR")]
    pub libraries: Option<PathBuf>,
}

/// The architecture of a text.
fn architecture(text: &str) -> Result<Architecture, String> {
    Architecture::named(text).ok_or_else(|| "expected an architecture such as `sm_90a`".to_owned())
}
