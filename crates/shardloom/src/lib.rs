//! Shardloom, a compiler for parallelism: the command line.
