//! What NVRTC makes of kernels: none is compiled twice to the same PTX, whichever tests look at it.

use std::collections::BTreeMap;
use std::sync::Mutex;

use device::{Architecture, Nvrtc};
use kernels::cuda::{Kernel, device_program};
use rayon::prelude::*;

/// How many kernels are one program.
const TOGETHER: usize = 24;

/// An architecture, and the name and the source of a kernel.
type Key = [String; 3];

/// The PTX that has been made.
static MADE: Mutex<BTreeMap<Key, String>> = Mutex::new(BTreeMap::new());

fn key(architecture: &str, kernel: &Kernel) -> Key {
    [architecture.to_owned(), kernel.name.clone(), kernel.source.clone()]
}

/// What a compiler makes of kernels for an architecture, some at the same time: the PTX of each.
pub(crate) fn ptx(
    nvrtc: &Nvrtc,
    architecture: &str,
    kernels: &BTreeMap<String, Kernel>,
) -> BTreeMap<String, String> {
    let mut texts = BTreeMap::new();
    let mut new: Vec<&Kernel> = Vec::new();
    {
        let made = MADE.lock().unwrap();
        for kernel in kernels.values() {
            match made.get(&key(architecture, kernel)) {
                Some(text) => drop(texts.insert(kernel.name.clone(), text.clone())),
                None => new.push(kernel),
            }
        }
    }
    let named = Architecture::named(architecture).unwrap();
    let of = |some: &[&Kernel]| {
        let ptx = nvrtc.ptx(&device_program(some.iter().copied()), &named);
        keep(architecture, some, &ptx.unwrap_or_else(|error| panic!("{error}")))
    };
    let made: Vec<BTreeMap<String, String>> = new.par_chunks(TOGETHER).map(of).collect();
    texts.extend(made.into_iter().flatten());
    texts
}

/// Keeps the PTX of a program of these kernels: the PTX of each.
pub(super) fn keep(architecture: &str, kernels: &[&Kernel], ptx: &str) -> BTreeMap<String, String> {
    let texts = apart(ptx);
    let new = kernels.iter().map(|it| (key(architecture, it), texts[&it.name].clone()));
    MADE.lock().unwrap().extend(new);
    texts
}

/// The kernels of a program, each as a program of its own.
fn apart(ptx: &str) -> BTreeMap<String, String> {
    const ENTRY: &str = ".visible .entry ";
    let (head, rest) = ptx.split_once(ENTRY).unwrap();
    let declared: Vec<&str> =
        head.lines().filter(|it| it.starts_with('.') && !it.starts_with(".target")).collect();
    let mut all = BTreeMap::new();
    for one in rest.split(ENTRY) {
        let name = one.split('(').next().unwrap();
        let end = one.find("\n}").map_or(one.len(), |it| it + 2);
        // Declarations that follow a kernel are of the next ones.
        all.insert(name.to_owned(), format!("{}\n{ENTRY}{}\n", declared.join("\n"), &one[..end]));
    }
    all
}
