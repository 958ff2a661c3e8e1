//! What plans are made for, besides the machine.

use clap::{Args, ValueEnum};
use cost_models::cluster::Cluster;
use cost_models::machine::{Margin, setting};
use cost_models::quantity;
use cost_models::units::Bytes;
use driver::compile::Wanted;
use planner_ir::Mesh;

/// What a plan is made for.
#[derive(Args, Clone, Debug)]
pub struct TargetArguments {
    /// Device mesh: `8`, `2x4`, `data=2,model=4`; the default tries several
    #[arg(long, value_parser = mesh, value_name = "MESH")]
    pub mesh: Option<Mesh>,
    /// Memory limit of a device, such as 70GiB; the default is the machine file's
    #[arg(long, value_parser = memory, value_name = "SIZE")]
    pub memory: Option<u64>,
    /// Memory margin that plans leave free, such as 2GB or 3% of the machine's memory or of `--memory`; the
    /// default is 2% of a GPU's, for communicators and libraries, and none of CPU threads or of `--memory`
    #[arg(long, value_name = "SIZE")]
    pub reserve: Option<Margin>,
    /// What is set beside the machine file.
    #[command(flatten)]
    pub set: SettingArguments,
    /// Temporal partitions of matrix products: rotated, rings and squares
    #[arg(long, value_enum, default_value = "auto")]
    pub in_time: InTime,
}

/// Numbers of a machine that are said beside its file.
#[derive(Args, Clone, Debug, Default)]
pub struct SettingArguments {
    /// Override a number of the machine, such as `network.adapter_bandwidth=25GB/s`; may be repeated
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub settings: Vec<String>,
}

impl SettingArguments {
    /// The name of a machine with these numbers.
    pub fn of(&self, name: &str) -> String {
        setting::named(name, &self.settings)
    }
}

/// Whether products may be done in time steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum InTime {
    /// On meshes of up to two axes.
    Auto,
    /// On all meshes: planning takes many times as long with more than two axes.
    Always,
    /// On all, such as begin and end in plain layouts: rings, not squares or stripes. Planning is several
    /// times as fast.
    Plain,
    /// On no mesh.
    Never,
}

impl TargetArguments {
    /// What it is made for.
    pub fn wanted(&self) -> Wanted {
        Wanted { mesh: self.mesh.clone(), memory: self.memory(), steps: self.steps(), runtime: None }
    }

    /// What a device may hold, if that is said, less what is left free of it if that is said too (bytes).
    pub fn memory(&self) -> Option<u64> {
        self.memory.map(|memory| self.left_of(memory))
    }

    /// What is left of a device's memory (bytes).
    pub fn left_of(&self, memory: u64) -> u64 {
        let margin = self.reserve.map_or(Bytes::ZERO, |it| it.of(Bytes(memory)));
        memory.saturating_sub(margin.0)
    }

    /// A machine of whose memory plans leave what they should.
    pub fn on(&self, cluster: Cluster) -> Cluster {
        cluster.leaving(self.reserve)
    }

    /// Whether operations may be done in time steps.
    pub fn steps(&self) -> rewrite::Steps {
        match self.in_time {
            InTime::Auto => rewrite::Steps::Auto,
            InTime::Always => rewrite::Steps::Offered,
            InTime::Plain => rewrite::Steps::Unskewed,
            InTime::Never => rewrite::Steps::One,
        }
    }
}

pub(super) fn mesh(text: &str) -> Result<Mesh, String> {
    Mesh::parse(text).map_err(|error| error.to_string())
}

fn memory(text: &str) -> Result<u64, String> {
    quantity::parse_bytes(text)
}
