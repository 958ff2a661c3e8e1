//! The files of frameworks' figures and of models' shapes that come with the program.

/// The file with figures that hold for all frameworks.
pub const COMMON: (&str, &str) = ("common", include_str!("../frameworks/common.json"));

/// What programs of plans are called, as a framework.
pub const PROGRAMS: &str = "shardloom";

/// The frameworks that there are files of.
pub const FILES: [(&str, &str); 9] = [
    ("megatron-lm", include_str!("../frameworks/megatron-lm.json")),
    ("megatron-core", include_str!("../frameworks/megatron-core.json")),
    ("nemo", include_str!("../frameworks/nemo.json")),
    ("deepspeed", include_str!("../frameworks/deepspeed.json")),
    ("fsdp", include_str!("../frameworks/fsdp.json")),
    ("serving", include_str!("../frameworks/serving.json")),
    ("torchtitan", include_str!("../frameworks/torchtitan.json")),
    ("fsdp-compiled", include_str!("../frameworks/fsdp-compiled.json")),
    (PROGRAMS, include_str!("../frameworks/shardloom.json")),
];

/// Shapes of published models.
pub const SHAPES: &str = include_str!("../shapes/shapes.json");
