//! Models in folders, written by the writer of `models`.

use std::fs::File;
use std::io::{self, BufWriter};
use std::ops::{Deref, DerefMut};
use std::path::{Path, PathBuf};

use models::onnx::{self, Data, WEIGHTS};
pub use models::onnx::{Attribute, Element};

/// The length after which buffered weights are written (bytes).
const BUFFER: usize = 1 << 20;

/// A model that is being written to a folder.
pub struct Writer {
    path: PathBuf,
    model: onnx::Writer<'static>,
}

impl Writer {
    /// A model in a folder, its weights in a file beside it.
    pub fn large(folder: &Path) -> io::Result<Self> {
        let file = BufWriter::with_capacity(BUFFER, File::create(folder.join(WEIGHTS))?);
        Ok(Self::new(folder, Data::Beside(Box::new(file))))
    }

    /// A model in a folder, its weights in it: less than 2 GiB.
    pub fn small(folder: &Path) -> Self {
        Self::new(folder, Data::Inside)
    }

    /// A model in a folder whose weights are nowhere: for plans they need not be there.
    pub fn absent(folder: &Path) -> Self {
        Self::new(folder, Data::Absent)
    }

    fn new(folder: &Path, data: Data<'static>) -> Self {
        Self { path: folder.join("model.onnx"), model: onnx::Writer::new(data) }
    }

    /// The same with operators of another version.
    pub fn of_version(self, operators: u64) -> Self {
        Self { model: self.model.of_version(operators), ..self }
    }

    /// The same with weights, inputs and outputs of such numbers.
    pub fn of_elements(self, element: Element) -> Self {
        Self { model: self.model.of_elements(element), ..self }
    }

    /// Writes the model; where it is.
    pub fn finish(self) -> io::Result<PathBuf> {
        std::fs::write(&self.path, self.model.finish()?)?;
        Ok(self.path)
    }
}

impl Deref for Writer {
    type Target = onnx::Writer<'static>;

    fn deref(&self) -> &Self::Target {
        &self.model
    }
}

impl DerefMut for Writer {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.model
    }
}
