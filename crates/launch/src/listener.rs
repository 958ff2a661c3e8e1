//! Who is told what is being done.

use files::Doing;

/// Is told what is being done, also by threads that work beside each other, and what a person should know.
pub trait Listener: Sync {
    /// What is done now.
    fn say(&self, doing: Doing);

    /// What a person should know: a line of its own.
    fn remark(&self, words: &str);
}

/// Nobody is told.
#[derive(Clone, Copy, Debug)]
pub struct Nobody;

impl Listener for Nobody {
    fn say(&self, _: Doing) {}

    fn remark(&self, _: &str) {}
}
