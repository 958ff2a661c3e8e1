//! On what ranks run.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

/// On what ranks run, and what that needs.
#[derive(Args, Clone, Debug)]
pub struct DeviceArguments {
    /// On what ranks run
    #[arg(long, value_enum, default_value_t = RunDevice::Cpu)]
    pub device: RunDevice,
    /// What GPUs need.
    #[command(flatten)]
    pub cuda: CudaArguments,
}

/// What GPUs need.
#[derive(Args, Clone, Debug)]
pub struct CudaArguments {
    /// Look for the libraries of CUDA in this folder first
    #[arg(long, value_name = "DIR")]
    pub libraries: Option<PathBuf>,
    /// Keep compiled kernels and the algorithms of products here, not in the user's cache
    #[arg(long, value_name = "DIR")]
    pub cache: Option<PathBuf>,
}

/// On what ranks run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum RunDevice {
    /// Threads of this machine.
    Cpu,
    /// GPUs: without a launcher all ranks are on the first one of this machine, under a launcher each
    /// has its own.
    Cuda,
}
