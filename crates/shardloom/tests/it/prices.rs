//! Prices of this host: measured once, kept in the user's cache, and said.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// A folder of one test, which goes away with it.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("shardloom-prices-{}-{name}", std::process::id()));
        fs::create_dir_all(path.join("here")).unwrap();
        Self(path)
    }

    /// Runs a model of the repository in `here`, with a cache.
    fn run(&self, cache: &Path) -> Output {
        let model = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/models/gpt2-bytes.onnx");
        let sizes = ["--ranks", "2", "--dim", "batch=2", "--dim", "sequence=16"];
        let mut command = Command::new(env!("CARGO_BIN_EXE_shardloom"));
        command.current_dir(self.0.join("here")).env("XDG_CACHE_HOME", cache).env_remove("HOME");
        command.arg("run").arg(model).args(sizes).output().unwrap()
    }

    fn files(&self, name: &str) -> usize {
        fs::read_dir(self.0.join(name)).unwrap().count()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[test]
fn a_host_is_measured_once_and_nothing_is_left_where_a_model_is_run() {
    let folder = Folder::new("kept");
    let cache = folder.0.join("cache");
    let said = [folder.run(&cache), folder.run(&cache)].map(|done| {
        assert!(done.status.success(), "{}", text(&done.stderr));
        text(&done.stdout)
    });
    for (said, when) in said.iter().zip([" s and kept: ", "measured before: "]) {
        assert!(said.contains("machine    this-host-2x, "), "{said}");
        assert!(said.contains(when) && said.contains("this-host.json\n"), "{said}");
        assert!(said.contains(" predicted\nreceived "), "{said}");
        assert!(said.contains("outputs    not written: `-o FILE` does\n"), "{said}");
    }
    assert_eq!(folder.files("here"), 0);
    // The same prices give the same plan, and so the same prediction.
    let predicted = |it: &str| it.lines().find(|it| it.starts_with("step ")).map(str::to_owned);
    assert_eq!(predicted(&said[0]), predicted(&said[1]));
}

#[test]
fn where_prices_cannot_be_kept_none_are_measured_and_why_is_said() {
    let folder = Folder::new("nowhere");
    let taken = folder.0.join("taken");
    fs::write(&taken, "a file").unwrap();
    let done = folder.run(&taken);
    assert!(done.status.success());
    let (said, warned) = (text(&done.stdout), text(&done.stderr));
    assert!(warned.starts_with("warning: prices of this host are not there: "), "{warned}");
    assert!(warned.contains("taken"), "{warned}");
    assert!(said.contains("machine    cpu-2x, ") && said.contains("step       not predicted: "), "{said}");
}
