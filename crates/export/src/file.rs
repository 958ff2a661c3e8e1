//! What a target reads.

/// A file of a target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct File {
    /// Its name.
    pub name: &'static str,
    /// Its content.
    pub text: String,
}
