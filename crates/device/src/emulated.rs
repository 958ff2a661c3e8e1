//! A GPU that is not there, for tests: libraries in the places of the driver, of NVRTC, of cuBLASLt and of
//! NCCL, written in C, which the product loads as it loads those.
//!
//! What they check is said where they are written, in the folder beside this file. There are two such GPUs,
//! each of libraries of its own, so that two tests that need one do not wait for each other. One test at a time
//! has a GPU: an error that it makes stays until the driver is begun anew. How fast it is can be planted: then
//! it computes nothing, and what is measured of it has to be what was planted.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Condvar, Mutex, OnceLock, PoisonError};

/// The libraries, by the names that they are looked for: their sources.
const LIBRARIES: [(&str, &str); 4] = [
    ("libcuda.so.1", include_str!("emulated/cuda.c")),
    ("libnvrtc.so.13", include_str!("emulated/nvrtc.c")),
    ("libcublasLt.so.13", include_str!("emulated/cublaslt.c")),
    ("libnccl.so.2", include_str!("emulated/nccl.c")),
];

/// What the driver reads to know how fast the GPU is.
const PLANTED: &str = include_str!("emulated/planted.h");

/// How many GPUs there are.
const GPUS: usize = 2;

/// A GPU, while a test has it.
pub(crate) struct Emulated {
    /// Where its libraries are.
    pub(crate) libraries: PathBuf,
    /// Where compiled kernels may be kept from test to test.
    pub(crate) cache: PathBuf,
    /// The file that says how fast it is, if one does.
    pub(crate) speeds: Option<PathBuf>,
    _turn: Turn,
}

impl Drop for Emulated {
    fn drop(&mut self) {
        if let Some(path) = &self.speeds {
            let _ = fs::remove_file(path);
        }
    }
}

/// The number of a GPU that a test has.
struct Turn(usize);

/// Which GPUs nobody has, and who waits for one.
static FREE: (Mutex<[bool; GPUS]>, Condvar) = (Mutex::new([true; GPUS]), Condvar::new());

impl Turn {
    /// Waits for a GPU that nobody has.
    fn wait() -> Self {
        let mut free = FREE.0.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if let Some(number) = free.iter().position(|it| *it) {
                free[number] = false;
                return Self(number);
            }
            free = FREE.1.wait(free).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        FREE.0.lock().unwrap_or_else(PoisonError::into_inner)[self.0] = true;
        FREE.1.notify_one();
    }
}

/// Waits for a GPU.
pub(crate) fn emulated() -> Emulated {
    static FOLDERS: [OnceLock<PathBuf>; GPUS] = [const { OnceLock::new() }; GPUS];
    let turn = Turn::wait();
    let folder = FOLDERS[turn.0].get_or_init(|| built(turn.0));
    let cache = folder.with_file_name("cache");
    Emulated { libraries: folder.join("libraries"), cache, speeds: None, _turn: turn }
}

/// Where primitives of kernels are.
fn primitives() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .ancestors()
        .map(|it| it.join("kernels/src/cuda/primitives"))
        .find(|it| it.is_dir())
        .expect("the repository has the primitives of kernels")
}

/// The folder of the GPU of a number with its libraries, compiled.
fn built(number: usize) -> PathBuf {
    // Beside the test's own program, so that what is compiled is there the next time.
    let program = std::env::current_exe().unwrap();
    let all = program.ancestors().nth(2).unwrap().join("emulated");
    let folder = all.join(number.to_string());
    let (libraries, kernels) = (folder.join("libraries"), folder.join("kernels"));
    for folder in [&libraries, &kernels, &all.join("cache"), &all.join("kernels")] {
        fs::create_dir_all(folder).unwrap();
    }
    let header = folder.join(format!("planted.{}.h", std::process::id()));
    fs::write(&header, PLANTED).unwrap();
    for (name, source) in LIBRARIES {
        let text = folder.join(format!("{name}.{}.c", std::process::id()));
        fs::write(&text, source).unwrap();
        let made = text.with_extension("so");
        let named = |name: &str, path: &Path| format!("-D{name}=\"{}\"", path.display());
        let done = Command::new("cc")
            .args(["-O2", "-Wall", "-Werror", "-Wno-unused-result", "-fPIC", "-shared", "-Wl,-Bsymbolic"])
            .arg(named("DEVICE", &primitives().join("device.h")))
            .arg(named("HOST", &primitives().join("host.h")))
            .arg(named("HOST_MAIN", &primitives().join("host_main.h")))
            .arg(named("PLANTED", &header))
            .arg(named("DRIVER", &libraries.join("libcuda.so.1")))
            .arg(named("FOLDER", &kernels))
            .arg(named("COMPILED", &all.join("kernels")))
            .args(["-o".as_ref(), made.as_os_str(), text.as_os_str()])
            .args(["-lm", "-lpthread", "-ldl"])
            .output()
            .expect("a C compiler is there: the build of this project needs one");
        assert!(done.status.success(), "{name}: {}", String::from_utf8_lossy(&done.stderr));
        fs::remove_file(&text).unwrap();
        // Others may be building the same: who renames last is right.
        fs::rename(&made, libraries.join(name)).unwrap();
    }
    fs::remove_file(&header).unwrap();
    folder
}
