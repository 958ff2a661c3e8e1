//! What computing, moving and holding values costs on a machine.
