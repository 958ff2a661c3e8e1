//! Tests of what moves between steps.
