//! What `bench gpu` measures, by arguments.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use launch::arguments::CudaArguments;

/// `bench gpu`.
#[derive(Args, Clone, Debug)]
pub struct OnGpu {
    /// Measure only these
    #[arg(long, value_enum, value_name = "PART", value_delimiter = ',')]
    pub only: Vec<Part>,
    /// Take everything so small that it is soon done: to see that it works, its times mean nothing
    #[arg(long)]
    pub quick: bool,
    /// Shipped machine or machine file for the numbers of this GPU that are not measured; the default goes by the
    /// GPU's name
    #[arg(long, value_name = "MACHINE", conflicts_with = "machine")]
    pub like: Option<String>,
    /// Machine, or file of a calibrated one, whose estimates are compared with the measurements; the default is
    /// fitted to them
    #[arg(long, value_name = "MACHINE")]
    pub machine: Option<String>,
    /// Write the machine that is fitted to this file
    #[arg(long, value_name = "FILE", conflicts_with_all = ["machine", "quick"])]
    pub calibrated: Option<PathBuf>,
    /// Run these models on several ranks too: the `model.onnx` of each folder in this one, and train those
    /// graphs that have what PyTorch made of them beside them
    #[arg(long, value_name = "DIR")]
    pub models: Option<PathBuf>,
    /// The Python that has the package torch
    #[arg(long, default_value = "python3", value_name = "PROGRAM")]
    pub python: String,
    /// The program compute-sanitizer; else that of the path, or of `/usr/local/cuda/bin`
    #[arg(long, value_name = "PROGRAM")]
    pub sanitizer: Option<String>,
    /// What GPUs need.
    #[command(flatten)]
    pub cuda: CudaArguments,
    /// Append what is measured to this file, part by part
    #[arg(long, value_name = "FILE")]
    pub ledger: Option<PathBuf>,
}

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Part {
    /// Whether kernels make what processors make
    Equal,
    /// Copies, element-wise kernels, normalisations, attention, products; the machine that explains them
    Rates,
    /// Whether plans on several ranks make, and learn, what one rank does
    Ranks,
    /// Steps of training, beside those of PyTorch
    Steps,
    /// Tokens one after another, beside the memory's bandwidth
    Decode,
    /// What compute-sanitizer finds in the first and the third
    Sanitizer,
}

impl Part {
    /// What it is called in arguments.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Equal => "equal",
            Self::Rates => "rates",
            Self::Ranks => "ranks",
            Self::Steps => "steps",
            Self::Decode => "decode",
            Self::Sanitizer => "sanitizer",
        }
    }
}

impl OnGpu {
    /// Whether a part is measured.
    pub(super) fn wants(&self, part: Part) -> bool {
        self.only.is_empty() || self.only.contains(&part)
    }

    /// Whether a machine is fitted: where something is held against prices, and times mean something.
    pub(super) fn calibrates(&self) -> bool {
        let priced = [Part::Rates, Part::Steps, Part::Decode].into_iter().any(|it| self.wants(it));
        self.machine.is_none() && !self.quick && (priced || self.calibrated.is_some())
    }

    /// The arguments of the program that ask for this.
    pub fn arguments(&self) -> Vec<String> {
        let mut all = vec!["bench".to_owned(), "gpu".to_owned()];
        let only: Vec<&str> = self.only.iter().map(|it| it.name()).collect();
        let path = |it: &Option<PathBuf>| it.as_ref().map(|it| it.display().to_string());
        if self.quick {
            all.push("--quick".to_owned());
        }
        let given = [
            ("--only", Some(only.join(",")).filter(|it| !it.is_empty())),
            ("--like", self.like.clone()),
            ("--machine", self.machine.clone()),
            ("--calibrated", path(&self.calibrated)),
            ("--models", path(&self.models)),
            ("--python", Some(self.python.clone())),
            ("--sanitizer", self.sanitizer.clone()),
            ("--libraries", path(&self.cuda.libraries)),
            ("--cache", path(&self.cuda.cache)),
            ("--ledger", path(&self.ledger)),
        ];
        for (name, value) in given {
            all.extend(value.into_iter().flat_map(|value| [name.to_owned(), value]));
        }
        all
    }

    /// The command that asks for this.
    pub(super) fn command(&self) -> String {
        format!("shardloom {}", self.arguments().join(" "))
    }
}

#[cfg(test)]
mod tests;
