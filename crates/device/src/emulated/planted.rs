//! A GPU that is not there, with a speed that is planted: it computes nothing, and what is measured of it has
//! to be what was planted.

use std::fs;

use super::emulated::Emulated;

impl Emulated {
    /// The same as a GPU that calls itself so, and is so fast: a number for each name. What they mean is
    /// said where the driver reads them.
    pub(crate) fn planted(mut self, name: &str, speeds: &[(&str, f64)]) -> Self {
        let lines: Vec<String> = speeds.iter().map(|(name, value)| format!("{name} {value:e}\n")).collect();
        let folder = self.libraries.parent().expect("libraries are in a folder of tests").join("kernels");
        let path = folder.join(format!("speeds.{}", std::process::id()));
        fs::write(&path, format!("name {name}\nplanted 1\n{}", lines.concat())).unwrap();
        self.speeds = Some(path);
        self
    }
}
