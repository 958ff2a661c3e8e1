//! The vocabulary of Shardloom: mesh, layout, operation, graph, text form, verifier.
