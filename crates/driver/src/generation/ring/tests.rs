//! Steps that write against steps that move up.
