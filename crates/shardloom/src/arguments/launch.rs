//! What `launch` is told.

use std::ffi::OsString;

use clap::Args;

/// Examples, for `--help`.
pub(super) const HELP: &str = "\
Examples:
  shardloom launch -n 8 run plan.json
  shardloom launch -n 8 train plan.json --data text.bin --tokens u8 --steps 100 --lr 3e-4
  shardloom launch -n 8 --restarts 3 train plan.json --data text.bin --tokens u8 --steps 100 \\
      --lr 3e-4 --checkpoint checkpoints --continue
  shardloom launch -n 8 calibrate --device cuda --nccl -o machine.json

What ranks say is prefixed with their numbers. When one fails, all end; the exit code is that of the
failure. With --restarts they are started again where a rank was lost (5), waited for too long (6) or
did not find the others (4). On several hosts the environment says which host this is:
SHARDLOOM_NODES, SHARDLOOM_NODE, SHARDLOOM_ADDRESS, SHARDLOOM_PORT, or what Kubeflow Trainer sets;
docs/cluster.md has every launcher.";

/// `launch`.
#[derive(Args, Clone, Debug)]
pub struct LaunchArguments {
    /// Number of ranks on this host; the default is PET_NPROC_PER_NODE if it is set
    #[arg(short = 'n', long, value_parser = clap::value_parser!(u64).range(1..=4096), value_name = "N")]
    pub ranks: Option<u64>,
    /// Number of restarts after a failure that may be transient
    #[arg(long, default_value_t = 0, value_name = "K")]
    pub restarts: u64,
    /// Command to launch, with its arguments: `run`, `generate`, `train` or `calibrate --nccl`
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true, value_name = "COMMAND")]
    pub command: Vec<OsString>,
}
