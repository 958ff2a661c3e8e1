//! Tests of derived steps.
