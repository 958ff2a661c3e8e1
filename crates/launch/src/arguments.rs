//! What commands are told of where ranks run: on which devices, and as which processes.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use run::Interface;

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

/// What ranks that are processes are told.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Ranks that are processes")]
pub struct ClusterArguments {
    /// End all ranks when one has waited so long for another; 3600 if not given
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=1_000_000_000), value_name = "SECONDS")]
    pub wait_limit: Option<u64>,
    /// Over TCP: end all ranks when one gives no sign of life for so long; 30 if not given
    #[arg(long, value_parser = seconds, value_name = "SECONDS")]
    pub lost_after: Option<f64>,
    /// How long to wait at the start until all ranks are there, over TCP, and until their GPUs are
    /// connected; 120 and 60 if not given
    #[arg(long, value_parser = seconds, value_name = "SECONDS")]
    pub join_limit: Option<f64>,
    /// Over TCP: listen on this network only, such as 10.1.0.0/16; else on that of the address of rank 0
    #[arg(long, value_name = "NETWORK")]
    pub interface: Option<Interface>,
    /// How ranks reach each other: over TCP, or through MPI where `mpirun` has started them
    #[arg(long, value_enum, value_name = "WAY")]
    pub transport: Option<Way>,
    /// Where each rank writes what it did last when all are ended; else in the folder of checkpoints
    #[arg(long, value_name = "DIR")]
    pub flight: Option<PathBuf>,
}

/// How ranks reach each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Way {
    /// Through MPI where it has started the ranks and this program was built with it, else over TCP.
    Auto,
    /// Over connections of their own, encrypted.
    Tcp,
    /// Through MPI.
    Mpi,
}

impl ClusterArguments {
    /// An argument that makes no sense without ranks that are processes.
    pub fn given(&self) -> Option<&'static str> {
        let all = [
            (self.wait_limit.is_some(), "--wait-limit"),
            (self.lost_after.is_some(), "--lost-after"),
            (self.join_limit.is_some(), "--join-limit"),
            (self.interface.is_some(), "--interface"),
            (self.transport.is_some(), "--transport"),
            (self.flight.is_some(), "--flight"),
        ];
        all.into_iter().find_map(|(given, name)| given.then_some(name))
    }
}

fn seconds(text: &str) -> Result<f64, String> {
    let seconds: Option<f64> = text.parse().ok().filter(|it: &f64| (0.1..=1e6).contains(it));
    seconds.ok_or_else(|| "expected seconds, from 0.1 to 1000000".to_owned())
}
