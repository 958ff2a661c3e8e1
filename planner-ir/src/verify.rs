//! The rules that a program obeys.
