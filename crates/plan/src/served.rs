//! How the devices of servers share a model, the same for all operations.

/// How the devices of a server share experts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ExpertsBy {
    /// Each has some of them.
    Experts,
    /// Each has some hidden units of all.
    Units,
}

/// How many devices do what. The product is all devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Served {
    /// Servers.
    pub replicas: u64,
    /// Data parallel groups of a server.
    pub data: u64,
    /// Devices of a group.
    pub tensor: u64,
    /// How the devices of a server share experts, if there are experts and several devices.
    pub experts: Option<ExpertsBy>,
}

impl Served {
    /// In words: `data 2, tensor 4, experts shared whole`.
    pub fn in_words(&self) -> String {
        let degrees = [("replicas", self.replicas), ("data", self.data), ("tensor", self.tensor)];
        let mut words: Vec<String> = Vec::new();
        words.extend(degrees.iter().filter(|it| it.1 > 1).map(|(name, size)| format!("{name} {size}")));
        words.extend(self.experts.map(|it| it.in_words().to_owned()));
        if words.is_empty() { "one device".to_owned() } else { words.join(", ") }
    }
}

impl ExpertsBy {
    /// In words.
    pub fn in_words(self) -> &'static str {
        match self {
            Self::Experts => "experts shared whole",
            Self::Units => "experts shared by hidden units",
        }
    }
}
