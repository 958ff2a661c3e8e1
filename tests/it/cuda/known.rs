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
static KNOWN: Mutex<BTreeMap<Key, String>> = Mutex::new(BTreeMap::new());

fn key(architecture: &str, kernel: &Kernel) -> Key {
    [architecture.to_owned(), kernel.name.clone(), kernel.source.clone()]
}

/// What a compiler makes of kernels for an architecture: the PTX of each. What is not known yet is compiled, some
/// at the same time, and tests that want the same wait for it: this is for their threads, not for those of a pool.
pub(crate) fn ptx(
    nvrtc: &Nvrtc,
    architecture: &str,
    kernels: &BTreeMap<String, Kernel>,
) -> BTreeMap<String, String> {
    let mut known = KNOWN.lock().unwrap();
    let new = kernels.values().filter(|it| !known.contains_key(&key(architecture, it)));
    let new: Vec<&Kernel> = new.collect();
    let of = |some: &[&Kernel]| compiled(nvrtc, architecture, some);
    let made: Vec<BTreeMap<String, String>> = new.par_chunks(TOGETHER).map(of).collect();
    let mut made: BTreeMap<String, String> = made.into_iter().flatten().collect();
    known.extend(new.into_iter().map(|it| (key(architecture, it), first(&made.remove(&it.name).unwrap()))));
    kernels.values().map(|it| (it.name.clone(), known[&key(architecture, it)].clone())).collect()
}

/// What a compiler makes of a program of kernels: the PTX of each.
pub(crate) fn compiled(nvrtc: &Nvrtc, architecture: &str, kernels: &[&Kernel]) -> BTreeMap<String, String> {
    let source = device_program(kernels.iter().copied());
    let architecture = Architecture::named(architecture).unwrap();
    apart(&nvrtc.ptx(&source, &architecture).unwrap_or_else(|error| panic!("{error}")))
}

/// Keeps the PTX of a program of these kernels.
pub(super) fn keep(architecture: &str, kernels: &[&Kernel], ptx: &str) {
    let mut texts = apart(ptx);
    let kept = kernels.iter().filter_map(|it| Some((key(architecture, it), first(&texts.remove(&it.name)?))));
    KNOWN.lock().unwrap().extend(kept);
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
        // Declarations that follow a kernel are of the next ones; of those at the head it has what it names.
        let own = declared.iter().filter(|it| declares(it).is_none_or(|name| one[..end].contains(name)));
        let own: Vec<&str> = own.copied().collect();
        all.insert(name.to_owned(), format!("{}\n{ENTRY}{}\n", own.join("\n"), &one[..end]));
    }
    all
}

/// What a line declares, such as `table` of `.global .align 4 .b8 table[24] = {..};`.
fn declares(line: &str) -> Option<&str> {
    let name = line.split(['[', '=', ';']).next()?.split_whitespace().next_back()?;
    (line.contains(';') || line.contains('=')).then_some(name)
}

/// The text of a kernel as if it were the first of its program: labels and stacks are numbered by kernels.
fn first(text: &str) -> String {
    let number = ["$L__BB", "__local_depot"].iter().find_map(|name| {
        let rest = &text[text.find(name)? + name.len()..];
        Some(&rest[..rest.find(|it: char| !it.is_ascii_digit())?])
    });
    let Some(number) = number else { return text.to_owned() };
    text.replace(&format!("$L__BB{number}_"), "$L__BB0_")
        .replace(&format!("__local_depot{number}"), "__local_depot0")
}
