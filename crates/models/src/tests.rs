//! Tests of configurations.
