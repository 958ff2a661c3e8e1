//! What commands are told of where ranks run: on which devices, and as which processes.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use run::Interface;

/// On what ranks run, and what that needs.
#[derive(Args, Clone, Debug)]
pub struct DeviceArguments {
    /// Device that ranks run on
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
    /// Cache folder for compiled kernels and tuned matrix products; the default is the user's cache
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
    /// Abort when a rank has waited this long for another; the default is 3600
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=1_000_000_000), value_name = "SECONDS")]
    pub wait_limit: Option<u64>,
    /// Abort when a rank has given no sign of life for this long, over TCP; the default is 30
    #[arg(long, value_parser = seconds, value_name = "SECONDS")]
    pub lost_after: Option<f64>,
    /// Time limit at the start, for all ranks to join over TCP and for their GPUs to connect; the defaults
    /// are 120 and 60
    #[arg(long, value_parser = seconds, value_name = "SECONDS")]
    pub join_limit: Option<f64>,
    /// Network to listen on over TCP, such as 10.1.0.0/16; the default is that of rank 0's address
    #[arg(long, value_name = "NETWORK")]
    pub interface: Option<Interface>,
    /// Transport between ranks: TCP, or MPI where `mpirun` started them
    #[arg(long, value_enum, value_name = "WAY")]
    pub transport: Option<Way>,
    /// Folder for the flight recorder: each rank's last actions when a run is aborted; the default is the
    /// folder of checkpoints
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
