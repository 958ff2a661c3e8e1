//! Tests that need the program itself.
//!
//! Modules are marked as tests, so that what serves tests may panic.

#[cfg(test)]
#[cfg(feature = "mpi")]
mod cluster; // ranks that are processes, under `mpirun`
#[cfg(test)]
mod partition; // `partition`, drawn and refused
#[cfg(test)]
mod train; // `train`, from a plan file to weights
