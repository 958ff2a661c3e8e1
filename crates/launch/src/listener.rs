//! Who is told what is being done.

/// Is told what is being done, and what a person should know.
pub trait Listener {
    /// What is done now.
    fn say(&self, what: String);

    /// What a person should know: a line of its own.
    fn remark(&self, words: &str);
}

/// Nobody is told.
#[derive(Clone, Copy, Debug)]
pub struct Nobody;

impl Listener for Nobody {
    fn say(&self, _: String) {}

    fn remark(&self, _: &str) {}
}
