//! The binary `shardloom`.

fn main() {}
