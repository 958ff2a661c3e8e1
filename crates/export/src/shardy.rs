//! Shardings of Shardy: a module of MLIR with the mesh of each stage, and functions whose arguments stand for its
//! parameters, what the optimizer keeps, its inputs, and what its operations make, each at a location of its name.
//!
//! Source: Shardy, `docs/sharding_representation.md`; MLIR, `mlir/docs/LangRef.md`.

use planner_ir::{DType, Type};

use crate::file::File;
use crate::job::Job;
use crate::specs::{Lies, stages};

/// The module, and in words what it does not say.
pub(crate) fn files(job: &Job<'_>) -> (Vec<File>, Vec<String>) {
    let (stages, lost) = stages(job);
    let mut text = String::from(
        "// How the values of a plan of Shardloom are sharded, stage by stage, as Shardy says it. Each argument stands for\n\
         // the value of the model that its location names.\n\
         module @shardloom {\n",
    );
    for (number, stage) in stages.iter().enumerate() {
        let axes: Vec<String> =
            stage.mesh.axes.iter().map(|it| format!("\"{}\"={}", it.name, it.size)).collect();
        text += &format!("  sdy.mesh @stage{number} = <[{}]>\n", axes.join(", "));
        for (title, all) in [
            ("parameters", &stage.parameters),
            ("optimizer", &stage.optimizer),
            ("inputs", &stage.inputs),
            ("values", &stage.values),
        ] {
            let argument = |(place, it): (usize, &Lies<'_>)| argument(place, it, number);
            let arguments: Vec<String> = all.iter().enumerate().map(argument).collect();
            let arguments = arguments.join(",");
            text += &format!("  func.func @stage{number}_{title}({arguments}) {{\n    return\n  }}\n");
        }
    }
    text += "}\n";
    (vec![File { name: "shardy.mlir", text }], lost)
}

fn argument(place: usize, it: &Lies<'_>, stage: usize) -> String {
    let dim = |axes: &Vec<&str>| {
        let axes: Vec<String> = axes.iter().map(|it| format!("\"{it}\"")).collect();
        format!("{{{}}}", axes.join(", "))
    };
    let dims: Vec<String> = it.dims.iter().map(dim).collect();
    let name = it.name.replace('\\', "\\\\").replace('"', "\\\"");
    format!(
        "\n    %arg{place}: {} {{sdy.sharding = #sdy.sharding<@stage{stage}, [{}]>}} loc(\"{name}\")",
        tensor(it.type_),
        dims.join(", ")
    )
}

fn tensor(type_: &Type) -> String {
    let extents: String = type_.shape.iter().map(|it| format!("{it}x")).collect();
    format!("tensor<{extents}{}>", element(type_.dtype))
}

fn element(dtype: DType) -> &'static str {
    match dtype {
        DType::F64 => "f64",
        DType::F32 => "f32",
        DType::F16 => "f16",
        DType::BF16 => "bf16",
        DType::F8E4M3FN => "f8E4M3FN",
        DType::F8E4M3FNUZ => "f8E4M3FNUZ",
        DType::F8E5M2 => "f8E5M2",
        DType::F8E5M2FNUZ => "f8E5M2FNUZ",
        DType::I64 => "i64",
        DType::I32 => "i32",
        DType::I16 => "i16",
        DType::I8 => "i8",
        DType::U64 => "ui64",
        DType::U32 => "ui32",
        DType::U16 => "ui16",
        DType::U8 => "ui8",
        DType::Bool => "i1",
    }
}
