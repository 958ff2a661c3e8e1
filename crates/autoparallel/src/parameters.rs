//! Which weights of a model file are parameters.

use std::collections::BTreeSet;

use files::Failure;
use files::model_file::ModelFile;
use import::{Declared, WeightData};
use plan::Roles;
use planner_ir::Graph;
use train::{Found, Known};

/// What the weights of an imported model are to its training, with what was asked of them.
pub fn roles(file: &ModelFile, imported: &Graph, asked: &Roles) -> Result<Found, Failure> {
    let declared = |name: &str| file.model.declared(name).map(of_file);
    let bytes = |name: &str| match file.model.weight(name) {
        Ok(WeightData::Bytes(bytes)) => Some(bytes),
        _ => None,
    };
    let found = train::roles(imported, asked, &Known { declared: &declared, bytes: &bytes });
    run::Stored::release(file);
    found.map_err(|error| Failure::Usage(format!("{}: {error}", file.path.display())))
}

/// The weights of one element that may be trained: those that look like parameters, and those that were
/// asked for by their names.
pub fn single(file: &ModelFile, asked: &Roles) -> BTreeSet<String> {
    let readers = file.model.readers();
    let weights = file.model.weights();
    let single = weights.iter().filter(|(_, type_)| type_.dtype.is_float() && type_.elements() == 1);
    let may = |name: &str| {
        let declared = file.model.declared(name).map(of_file);
        let is_asked = asked.trained.iter().any(|it| it == name);
        is_asked || readers.get(name).is_some_and(|&count| train::may_be_parameter(declared, name, count))
    };
    single.filter(|(name, _)| may(name)).map(|(name, _)| (*name).to_owned()).collect()
}

fn of_file(declared: Declared) -> train::Declared {
    match declared {
        Declared::Parameter => train::Declared::Parameter,
        Declared::Constant => train::Declared::Constant,
        Declared::Nothing => train::Declared::Nothing,
    }
}
