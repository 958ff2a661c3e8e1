//! Prices beside measurements: the page, its pictures, and fits.

/// The page of errors.
pub(crate) mod page;

/// Points as a picture.
pub(crate) mod scatter;

/// Plans of this machine, run.
pub(crate) mod local;

/// Figures of frameworks, fitted.
pub(crate) mod fitted;
