//! `model`: a configuration to an ONNX model.

use std::cell::RefCell;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use cost_models::quantity;
use files::Failure;
use files::arrays::Arrays;
use files::written::folder;
use files::{readable, written};
use models::onnx::{Data, Element, Parameter, Place};
use models::{Model, Wanted};
use planner_ir::DType;
use serde_json::json;

use super::Said;
use crate::arguments::{ElementName, ExpertsName, GraphArguments};

/// Writes the model of a configuration.
pub(crate) fn model(arguments: &GraphArguments) -> Result<Said, Failure> {
    let GraphArguments { config, output, weights, .. } = arguments;
    let read: Vec<&Path> = weights.iter().chain([config]).map(PathBuf::as_path).collect();
    written::differs(output, &read)?;
    let text = readable::text(config)?;
    let usual = Wanted::of(arguments.of.of());
    let wanted = Wanted {
        of: usual.of,
        experts: arguments.experts.map_or(usual.experts, ExpertsName::weights),
        element: arguments.dtype.map(ElementName::element),
        layers: arguments.layers,
        batch: arguments.batch,
        sequence: arguments.sequence,
    };
    let refused = |error| Failure::file(config, error);
    let model = if weights.is_empty() {
        models::written(&text, &wanted, Data::Absent).map_err(refused)?
    } else {
        let files = weights.iter().map(|it| Checkpoint::open(it, output)).collect::<Result<Vec<_>, _>>()?;
        let wrong = RefCell::new(None);
        let place = |parameter: &Parameter| match placed(&files, parameter) {
            Ok(place) => Some(place),
            Err(message) => {
                wrong.borrow_mut().get_or_insert(message);
                None
            }
        };
        let model = models::written(&text, &wanted, Data::Placed(&place)).map_err(refused)?;
        if let Some(message) = wrong.take() {
            return Err(Failure::file(&weights[0], message));
        }
        model
    };
    written::write(output, &model.bytes)?;
    Ok(said(arguments, &model))
}

/// A file of weights, and how the model calls it.
struct Checkpoint {
    arrays: Arrays,
    name: String,
}

impl Checkpoint {
    /// Opens a file, which has to lie below the folder of the model.
    fn open(path: &Path, output: &Path) -> Result<Self, Failure> {
        let whole = |path: &Path| fs::canonicalize(path).map_err(|error| readable::failed(path, &error));
        let (file, folder) = (whole(path)?, whole(folder(output))?);
        let below = file.strip_prefix(&folder).ok().and_then(Path::to_str).ok_or_else(|| {
            let folder = folder.display();
            Failure::file(
                path,
                format!("expected a file below {folder}, where the model is written: write it beside"),
            )
        })?;
        Ok(Self { name: below.to_owned(), arrays: Arrays::open(path)? })
    }
}

/// Where the checkpoint has a weight; what is wrong with it, if it does not fit.
fn placed(files: &[Checkpoint], parameter: &Parameter) -> Result<Place, String> {
    let Parameter { name, shape, element } = parameter;
    let Some(file) = files.iter().find(|it| it.arrays.types().contains_key(name)) else {
        return Err(format!("there is no weight `{name}`, expected {} {shape:?}", element.name()));
    };
    let found = &file.arrays.types()[name];
    if found.shape != *shape || found.dtype != dtype(*element) {
        return Err(format!(
            "`{name}` is {found}, expected {} {shape:?}; `--dtype` says other numbers",
            element.name()
        ));
    }
    let offset = file.arrays.offset(name).ok_or("expected a name that ends in `.safetensors`")?;
    Ok(Place { file: file.name.clone(), offset })
}

fn dtype(element: Element) -> DType {
    match element {
        Element::F32 => DType::F32,
        Element::Bf16 => DType::BF16,
        Element::F16 => DType::F16,
    }
}

fn said(arguments: &GraphArguments, model: &Model) -> Said {
    let bytes: u64 = model.parameters.iter().map(|it| it.count() * it.element.bytes()).sum();
    let mut text = String::new();
    // Writing to a string does not fail.
    let _ = writeln!(
        text,
        "parameters {}, {} in {} weights",
        model.count(),
        quantity::bytes(bytes),
        model.parameters.len()
    );
    for left_out in &model.left_out {
        let _ = writeln!(text, "left out   {left_out}");
    }
    let _ = writeln!(text, "model written to {}", arguments.output.display());
    let json = json!({
        "path": arguments.output.display().to_string(),
        "parameters": model.count(),
        "weights": model.parameters.len(),
        "weight_bytes": bytes,
        "left_out": model.left_out,
    });
    Said { text, json }
}
