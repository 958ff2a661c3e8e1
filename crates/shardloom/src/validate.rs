//! Prices beside measurements: the page, its pictures, and plans that are run.

/// The page of errors.
pub(crate) mod page;

/// What prices are asked for.
pub(crate) mod goals;

/// Points as a picture.
pub(crate) mod scatter;

/// Plans of this machine, run.
pub(crate) mod local;
