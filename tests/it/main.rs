//! The tests of the whole project, in one binary.
