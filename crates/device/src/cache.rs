//! Compiled kernels, kept from run to run.
//!
//! Kernels that are not there are compiled together, some tens at a time, into one image. In the
//! folder, each image lies in a file named by the hash of its source, architecture and compiler, and
//! for each kernel a file says which image has it. A kernel's name has the hash of its source, so that
//! a name, an architecture and a compiler say what is in an image. Files are written under other names
//! and renamed: nobody reads half of one.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use kernels::cuda::{Kernel, Launch, device_program};
use sha2::{Digest, Sha256};

use crate::error::DeviceError;
use crate::gpu::{Function, Gpu};
use crate::nvrtc::{Architecture, Nvrtc};

/// How many kernels are compiled together: the compiler reads their primitives once.
const TOGETHER: usize = 48;

/// Kernels by their names, loaded.
pub(crate) struct Loaded {
    functions: BTreeMap<String, Function>,
    /// How many of them had to be compiled.
    pub(crate) compiled: usize,
}

impl Loaded {
    /// Whether the kernel of a launch is there.
    pub(crate) fn has(&self, launch: &Launch) -> bool {
        self.functions.contains_key(&launch.kernel.name)
    }

    /// Adds others.
    pub(crate) fn add(&mut self, other: Self) {
        self.functions.extend(other.functions);
    }

    /// The kernel of a launch.
    pub(crate) fn function(&self, launch: &Launch) -> Result<&Function, DeviceError> {
        let name = &launch.kernel.name;
        let missing = || DeviceError::Program(format!("kernel {name} has not been loaded"));
        self.functions.get(name).ok_or_else(missing)
    }
}

/// All kernels of some launches, compiled if no image in the folder has them, and loaded.
pub(crate) fn loaded<'a>(
    gpu: &Rc<Gpu>,
    nvrtc: &Nvrtc,
    folder: Option<&Path>,
    launches: impl Iterator<Item = &'a Launch>,
) -> Result<Loaded, DeviceError> {
    let mut wanted: BTreeMap<&str, (&Kernel, u32)> = BTreeMap::new();
    for launch in launches {
        let known = wanted.entry(&launch.kernel.name).or_insert((&launch.kernel, 0));
        known.1 = known.1.max(launch.shared);
    }
    let unknown = || {
        let (major, minor) = gpu.facts.capability;
        DeviceError::Program(format!("a GPU of compute capability {major}.{minor} is not known"))
    };
    let architecture = gpu.facts.architecture().ok_or_else(unknown)?;
    let store = Store { folder, suffix: suffix(nvrtc, &architecture) };
    let mut images: BTreeMap<String, Vec<u8>> = BTreeMap::new();
    let mut place: BTreeMap<&str, String> = BTreeMap::new();
    let mut missing = Vec::new();
    for (&name, (kernel, _)) in &wanted {
        match store.find(name, &mut images) {
            Some(image) => drop(place.insert(name, image)),
            None => missing.push((name, *kernel)),
        }
    }
    for some in missing.chunks(TOGETHER) {
        let source = device_program(some.iter().map(|it| it.1));
        let cubin = nvrtc.compile(&source, &architecture)?.cubin;
        let image = digest(&[&source, &store.suffix]);
        store.keep(&image, &cubin, some.iter().map(|it| it.0))?;
        place.extend(some.iter().map(|it| (it.0, image.clone())));
        images.insert(image, cubin);
    }
    let mut modules = BTreeMap::new();
    for (image, cubin) in &images {
        modules.insert(image, gpu.module(cubin)?);
    }
    let mut functions = BTreeMap::new();
    for (name, (_, shared)) in wanted {
        if shared > gpu.facts.shared {
            return Err(DeviceError::Program(format!(
                "kernel {name} needs {shared} bytes of shared memory, {} has {}",
                gpu.facts.name, gpu.facts.shared
            )));
        }
        if let Some(module) = place.get(name).and_then(|image| modules.get(image)) {
            functions.insert(name.to_owned(), module.function(name, shared)?);
        }
    }
    Ok(Loaded { functions, compiled: missing.len() })
}

/// What besides its source decides what a kernel is compiled to: the primitives, the architecture, the
/// compiler.
fn suffix(nvrtc: &Nvrtc, architecture: &Architecture) -> String {
    let (major, minor) = nvrtc.version;
    let primitives = digest(&[&device_program([])]);
    format!("{architecture}-{major}.{minor}-{}", &primitives[..16])
}

/// The hash of texts, in hexadecimal digits.
fn digest(texts: &[&str]) -> String {
    let mut hash = Sha256::new();
    for text in texts {
        hash.update(text.len().to_le_bytes());
        hash.update(text);
    }
    hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Where images are kept, if they are.
struct Store<'a> {
    folder: Option<&'a Path>,
    suffix: String,
}

impl Store<'_> {
    fn folder(&self) -> Option<PathBuf> {
        Some(self.folder?.join(&self.suffix))
    }

    /// The image that has a kernel, read if it is not yet there.
    fn find(&self, kernel: &str, images: &mut BTreeMap<String, Vec<u8>>) -> Option<String> {
        let folder = self.folder()?;
        let image = fs::read_to_string(folder.join(format!("{kernel}.at"))).ok()?;
        if !images.contains_key(&image) {
            let cubin = fs::read(folder.join(format!("{image}.cubin"))).ok()?;
            images.insert(image.clone(), cubin);
        }
        Some(image)
    }

    /// Keeps an image, and says of its kernels where they are.
    fn keep<'k>(
        &self,
        image: &str,
        cubin: &[u8],
        kernels: impl Iterator<Item = &'k str>,
    ) -> Result<(), DeviceError> {
        let Some(folder) = self.folder() else { return Ok(()) };
        write(&folder.join(format!("{image}.cubin")), cubin)?;
        for kernel in kernels {
            write(&folder.join(format!("{kernel}.at")), image.as_bytes())?;
        }
        Ok(())
    }
}

/// Writes a file at once: others see what was there before, or all of it.
pub(crate) fn write(path: &Path, bytes: &[u8]) -> Result<(), DeviceError> {
    use std::sync::atomic::{AtomicU64, Ordering};
    static WRITTEN: AtomicU64 = AtomicU64::new(0);
    let number = WRITTEN.fetch_add(1, Ordering::Relaxed);
    let failed = |error: std::io::Error| DeviceError::Cache(path.to_owned(), error.to_string());
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).map_err(failed)?;
    }
    let other = path.with_extension(format!("{}-{number}", std::process::id()));
    let written = fs::File::create(&other).and_then(|mut file| {
        file.write_all(bytes)?;
        // What is named is on its disk: after a crash an empty file would be taken for a kernel.
        file.sync_all()?;
        fs::rename(&other, path)
    });
    written.map_err(failed)
}
