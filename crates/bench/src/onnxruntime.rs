//! The same model run by ONNX Runtime on one thread, for comparison.
//!
//! It runs in a process of its own that does a step whenever it is asked, so that steps of both
//! programs alternate: what else the machine does slows both alike.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};

use files::arrays;
use kernels::Array;

const PROGRAM: &str = "
import sys, time
import numpy, onnxruntime
model, inputs, outputs = sys.argv[1:]
options = onnxruntime.SessionOptions()
options.intra_op_num_threads = 1
options.inter_op_num_threads = 1
session = onnxruntime.InferenceSession(model, options, providers=['CPUExecutionProvider'])
names = [it.name for it in session.get_inputs()]
feed = {name: array for name, array in numpy.load(inputs).items() if name in names}
made = []
print(onnxruntime.__version__, flush=True)
for line in sys.stdin:
    start = time.perf_counter()
    made = session.run(None, feed)
    print(time.perf_counter() - start, flush=True)
numpy.savez(outputs, **dict(zip([it.name for it in session.get_outputs()], made)))
";

/// A process with the model.
pub(crate) struct Other {
    child: Child,
    answers: BufReader<ChildStdout>,
    outputs: PathBuf,
    /// The version of ONNX Runtime.
    pub version: String,
}

impl Other {
    /// Loads a model, or says why it cannot be.
    pub(crate) fn start(
        python: &str,
        model: &Path,
        inputs: &BTreeMap<String, Array>,
        folder: &Path,
    ) -> Result<Self, String> {
        let (given, outputs) = (folder.join("inputs.npz"), folder.join("onnxruntime.npz"));
        arrays::write(&given, inputs).map_err(|error| error.to_string())?;
        let mut child = Command::new(python)
            .args(["-c", PROGRAM])
            .args([model, &given, &outputs])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| format!("`{python}` cannot be started: {error}"))?;
        let answers = BufReader::new(child.stdout.take().ok_or("it has no output")?);
        let mut other = Self { child, answers, outputs, version: String::new() };
        other.version = other.answer()?;
        Ok(other)
    }

    /// Runs a step; what it took (seconds).
    pub(crate) fn step(&mut self) -> Result<f64, String> {
        let ask =
            |child: &mut Child| child.stdin.as_mut().map(|it| it.write_all(b"\n").and_then(|()| it.flush()));
        if !matches!(ask(&mut self.child), Some(Ok(()))) {
            return Err(self.complaint());
        }
        let answer = self.answer()?;
        answer.parse().map_err(|_| format!("it answers `{answer}`, expected a time"))
    }

    /// The outputs of the last step.
    pub(crate) fn finish(mut self) -> Result<BTreeMap<String, Array>, String> {
        drop(self.child.stdin.take());
        match self.child.wait() {
            Ok(status) if status.success() => arrays::read(&self.outputs).map_err(|error| error.to_string()),
            _ => Err(self.complaint()),
        }
    }

    fn answer(&mut self) -> Result<String, String> {
        let mut line = String::new();
        match self.answers.read_line(&mut line) {
            Ok(length) if length > 0 => Ok(line.trim().to_owned()),
            _ => Err(self.complaint()),
        }
    }

    /// The last thing it said before it ended.
    fn complaint(&mut self) -> String {
        let mut said = String::new();
        if let Some(errors) = &mut self.child.stderr {
            // What cannot be read is not there.
            let _ = errors.read_to_string(&mut said);
        }
        said.trim().lines().last().unwrap_or("it ended").to_owned()
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        // It may have ended already.
        let _ = self.child.wait();
    }
}
