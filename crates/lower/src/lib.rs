//! A plan to one program per rank.
