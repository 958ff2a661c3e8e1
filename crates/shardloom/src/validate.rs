//! Plans that are run on this machine, beside their prices.

/// Plans of this machine, run.
pub(crate) mod local;
