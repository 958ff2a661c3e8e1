//! The same model run by ONNX Runtime on one thread, for comparison.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use kernels::Array;
use serde::Deserialize;

use crate::arrays;

/// What it took and what came of it.
#[derive(Debug)]
pub(crate) struct Compared {
    /// Its version.
    pub(crate) version: String,
    /// What each step took (seconds).
    pub(crate) seconds: Vec<f64>,
    /// The outputs.
    pub(crate) outputs: BTreeMap<String, Array>,
}

#[derive(Deserialize)]
struct Answer {
    version: String,
    seconds: Vec<f64>,
}

const PROGRAM: &str = "
import json, sys, time
import numpy, onnxruntime
model, inputs, outputs, warm_up, steps = sys.argv[1:]
options = onnxruntime.SessionOptions()
options.intra_op_num_threads = 1
options.inter_op_num_threads = 1
session = onnxruntime.InferenceSession(model, options, providers=['CPUExecutionProvider'])
names = [it.name for it in session.get_inputs()]
feed = {name: array for name, array in numpy.load(inputs).items() if name in names}
for _ in range(int(warm_up)):
    session.run(None, feed)
seconds = []
for _ in range(int(steps)):
    start = time.perf_counter()
    made = session.run(None, feed)
    seconds.append(time.perf_counter() - start)
numpy.savez(outputs, **dict(zip([it.name for it in session.get_outputs()], made)))
print(json.dumps({'version': onnxruntime.__version__, 'seconds': seconds}))
";

/// Steps of ONNX Runtime, or why there are none.
pub(crate) fn run(
    python: &str,
    model: &Path,
    inputs: &BTreeMap<String, Array>,
    folder: &Path,
    [warm_up, steps]: [u32; 2],
) -> Result<Compared, String> {
    let (given, made) = (folder.join("inputs.npz"), folder.join("onnxruntime.npz"));
    arrays::write(&given, inputs).map_err(|error| error.to_string())?;
    let output = Command::new(python)
        .args(["-c", PROGRAM])
        .args([model, &given, &made])
        .args([warm_up, steps].map(|it| it.to_string()))
        .output()
        .map_err(|error| format!("`{python}` cannot be started: {error}"))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(said.trim().lines().last().unwrap_or("it said nothing").to_owned());
    }
    let answer: Answer = serde_json::from_slice(&output.stdout).map_err(|error| error.to_string())?;
    let outputs = arrays::read(&made).map_err(|error| error.to_string())?;
    Ok(Compared { version: answer.version, seconds: answer.seconds, outputs })
}
