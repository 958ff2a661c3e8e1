//! A GPU that is not there, for tests: libraries in the places of the driver, of NVRTC, of cuBLASLt and of
//! NCCL, written in C, which the product loads as it loads those.
//!
//! What they check is said where they are written, in the folder beside this file. One test at a time has
//! the GPU: an error that it makes stays until the driver is begun anew. How fast it is can be planted: then
//! it computes nothing, and what is measured of it has to be what was planted.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

/// The libraries, by the names that they are looked for: their sources.
const LIBRARIES: [(&str, &str); 4] = [
    ("libcuda.so.1", include_str!("emulated/cuda.c")),
    ("libnvrtc.so.13", include_str!("emulated/nvrtc.c")),
    ("libcublasLt.so.13", include_str!("emulated/cublaslt.c")),
    ("libnccl.so.2", include_str!("emulated/nccl.c")),
];

/// What the driver reads to know how fast the GPU is.
const PLANTED: &str = include_str!("emulated/planted.h");

/// The GPU, while a test has it.
pub(crate) struct Emulated {
    /// Where its libraries are.
    pub(crate) libraries: PathBuf,
    /// Where compiled kernels may be kept from test to test.
    pub(crate) cache: PathBuf,
    /// The file that says how fast it is, if one does.
    pub(crate) speeds: Option<PathBuf>,
    _turn: MutexGuard<'static, ()>,
}

impl Drop for Emulated {
    fn drop(&mut self) {
        if let Some(path) = &self.speeds {
            let _ = fs::remove_file(path);
        }
    }
}

/// Waits for the GPU.
pub(crate) fn emulated() -> Emulated {
    static TURN: Mutex<()> = Mutex::new(());
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let folder = FOLDER.get_or_init(built);
    Emulated { libraries: folder.join("libraries"), cache: folder.join("cache"), speeds: None, _turn: turn }
}

/// Where primitives of kernels are.
fn primitives() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .ancestors()
        .map(|it| it.join("kernels/src/cuda/primitives"))
        .find(|it| it.is_dir())
        .expect("the repository has the primitives of kernels")
}

/// The folder with the libraries, compiled.
fn built() -> PathBuf {
    // Beside the test's own program, so that what is compiled is there the next time.
    let program = std::env::current_exe().unwrap();
    let folder = program.ancestors().nth(2).unwrap().join("emulated");
    for name in ["libraries", "cache", "kernels"] {
        fs::create_dir_all(folder.join(name)).unwrap();
    }
    let header = folder.join(format!("planted.{}.h", std::process::id()));
    fs::write(&header, PLANTED).unwrap();
    for (name, source) in LIBRARIES {
        let text = folder.join(format!("{name}.{}.c", std::process::id()));
        fs::write(&text, source).unwrap();
        let made = text.with_extension("so");
        let path = |name: &str| format!("\"{}\"", primitives().join(name).display());
        let done = Command::new("cc")
            .args(["-O2", "-Wall", "-Werror", "-Wno-unused-result", "-fPIC", "-shared", "-Wl,-Bsymbolic"])
            .arg(format!("-DDEVICE={}", path("device.h")))
            .arg(format!("-DHOST={}", path("host.h")))
            .arg(format!("-DHOST_MAIN={}", path("host_main.h")))
            .arg(format!("-DPLANTED=\"{}\"", header.display()))
            .arg(format!("-DFOLDER=\"{}\"", folder.join("kernels").display()))
            .args(["-o".as_ref(), made.as_os_str(), text.as_os_str()])
            .args(["-lm", "-lpthread", "-ldl"])
            .output()
            .expect("a C compiler is there: the build of this project needs one");
        assert!(done.status.success(), "{name}: {}", String::from_utf8_lossy(&done.stderr));
        fs::remove_file(&text).unwrap();
        // Others may be building the same: who renames last is right.
        fs::rename(&made, folder.join("libraries").join(name)).unwrap();
    }
    fs::remove_file(&header).unwrap();
    folder
}
