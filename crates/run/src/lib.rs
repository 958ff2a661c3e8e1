//! Programs to results, on devices and over transports.
