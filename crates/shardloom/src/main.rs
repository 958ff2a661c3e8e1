//! The binary `shardloom`.

use std::path::Path;

use shardloom::{arrays, inputs, model_file, pipeline};

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let path = Path::new(&arguments[1]);
    let file = model_file::open(path).unwrap_or_else(|e| panic!("{e}"));
    let mut bindings = import::Bindings::default();
    let mut given = std::collections::BTreeMap::new();
    let mut expected = std::collections::BTreeMap::new();
    for (name, array) in arrays::read(Path::new(&arguments[2])).unwrap_or_else(|e| panic!("{e}")) {
        if let Some(name) = name.strip_prefix("in/") { bindings.inputs.insert(name.to_owned(), array.shape().to_vec()); given.insert(name.to_owned(), array); }
        else if let Some(name) = name.strip_prefix("out/") { expected.insert(name.to_owned(), array); }
    }
    let t = std::time::Instant::now();
    let prepared = pipeline::prepare(&file, &bindings, &mut |_, _| {}).unwrap_or_else(|e| panic!("{e}"));
    eprintln!("prepared {:?} sections {:?} nodes {}", t.elapsed(), prepared.sections.iter().map(|s| (s.repetitions.len(), s.graph.nodes.len())).collect::<Vec<_>>(), prepared.graph.nodes.len());
    eprintln!("{}", prepared.graph);
    let _ = inputs::made(&prepared.graph, 0);
    for mesh in arguments[3].split(';') {
        let mesh = planner_ir::Mesh::parse(mesh).unwrap_or_else(|e| panic!("{e}"));
        let machine = cost_models::machine::shipped::named(&format!("cpu-{}x", mesh.devices())).unwrap_or_else(|e| panic!("{e:?}"));
        let t = std::time::Instant::now();
        let target = pipeline::Target { machine: &machine, mesh: &mesh, capacity: machine.usable_memory().0 };
        let model = plan::ModelFile { path: arguments[1].clone(), sha256: file.sha256.clone(), dims: vec![] };
        let plan = pipeline::plan(&prepared, &model, &target, &mut |_, _| {}).unwrap_or_else(|e| panic!("{e}"));
        eprintln!("planned {:?} {} {:?} {:?}", t.elapsed(), plan.seconds(), plan.proof, plan.space);
        let programs = pipeline::lower(&plan, &mut |_, _| {}).unwrap_or_else(|e| panic!("{e}"));
        let weight = |name: &str| file.weight(name);
        let outcome = run::run(programs, run::Sources { inputs: &given, weight: &weight }).unwrap_or_else(|e| panic!("{e}"));
        for (name, want) in &expected {
            let got = outcome.outputs[name].to_floats().unwrap_or_else(|e| panic!("{e}"));
            let want = want.to_floats().unwrap_or_else(|e| panic!("{e}"));
            let worst = got.iter().zip(&want).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
            let largest = want.iter().map(|b| b.abs()).fold(0.0, f64::max);
            eprintln!("{name}: worst {worst} of {largest}; lengths {} {}", got.len(), want.len());
        }
    }
}
