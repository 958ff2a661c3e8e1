//! Spaces of setups.
