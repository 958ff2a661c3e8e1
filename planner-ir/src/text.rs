//! The text form: print and parse.
