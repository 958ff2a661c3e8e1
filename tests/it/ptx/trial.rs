//! A work with operands, and what it is to make of them.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use device::Nvrtc;
use kernels::Array;
use kernels::cuda::Work;
use rayon::prelude::*;

use super::emulation::{ARCHITECTURES, Kernels, Modules, Value, parsed, run};
use crate::cuda::known;

/// A work with operands, and what it is to make of them.
pub(super) struct Trial {
    pub(super) title: String,
    pub(super) work: Work,
    pub(super) operands: Vec<Value>,
    pub(super) results: Vec<Value>,
    /// What the results are to be, as they lie in memory.
    pub(super) expected: Vec<Array>,
    /// How far results may be from that, as a part of the largest number of each.
    pub(super) most: f64,
}

impl Trial {
    /// Its kernels, by name.
    pub(super) fn kernels(&self) -> Kernels {
        self.work.launches.iter().map(|it| (it.kernel.name.clone(), it.kernel.clone())).collect()
    }

    /// What its kernels do wrong, or how many instructions of warps they took.
    pub(super) fn check(&self, modules: &Modules) -> Result<u64, String> {
        let (made, count) = run(modules, &self.work, &self.operands, &self.results)?;
        for (number, (bytes, expected)) in made.iter().zip(&self.expected).enumerate() {
            let found = Array::from_bytes(expected.type_().clone(), bytes).unwrap();
            let apart = bench::apart(&found, expected);
            if apart > self.most {
                return Err(format!("result {number} is {apart:.1e} off, {:.0e} at most", self.most));
            }
        }
        Ok(count)
    }
}

/// Of how many kernels one is compiled for a further architecture, to see whether it is another one there.
const ONE_OF: usize = 8;

/// Compiles the kernels of all for each architecture and runs them; what is wrong. What is the same for two
/// architectures is run once; where some are, all are looked at.
pub(super) fn faults(nvrtc: &Nvrtc, all: &[Trial]) -> Vec<String> {
    let start = Instant::now();
    let kernels: Kernels = all.iter().flat_map(Trial::kernels).collect();
    println!("{} works of {} kernels", all.len(), kernels.len());
    let (mut faults, mut before) = (Vec::new(), BTreeMap::new());
    for architecture in ARCHITECTURES {
        let some: Kernels =
            kernels.iter().step_by(ONE_OF).map(|(name, it)| (name.clone(), it.clone())).collect();
        let is_other =
            |texts: &BTreeMap<String, String>| texts.iter().any(|it| before.get(it.0) != Some(it.1));
        if !before.is_empty() && !is_other(&known::ptx(nvrtc, architecture, &some)) {
            println!("{architecture}: none of {} kernels is another one", some.len());
            continue;
        }
        let texts = known::ptx(nvrtc, architecture, &kernels);
        let new = texts.iter().filter(|it| before.get(it.0) != Some(it.1)).map(|it| it.0.as_str());
        let new: BTreeSet<&str> = new.collect();
        let modules = parsed(&texts);
        println!("{architecture}: {} kernels are other than before, after {:?}", new.len(), start.elapsed());
        let is_new = |it: &&Trial| it.work.launches.iter().any(|it| new.contains(it.kernel.name.as_str()));
        let some: Vec<&Trial> = all.iter().filter(is_new).collect();
        let found: Vec<Result<u64, String>> = some.par_iter().map(|it| it.check(&modules)).collect();
        let counts =
            found.iter().zip(&some).filter_map(|(it, trial)| Some((*it.as_ref().ok()?, &trial.title)));
        let total: u64 = counts.clone().map(|it| it.0).sum();
        println!("  {total} instructions of warps, most {:?}, after {:?}", counts.max(), start.elapsed());
        let wrong = found.into_iter().zip(&some).filter_map(|(it, trial)| Some((it.err()?, &trial.title)));
        faults.extend(wrong.map(|(error, title)| format!("{architecture}: {title}: {error}")));
        before = texts;
    }
    faults
}
