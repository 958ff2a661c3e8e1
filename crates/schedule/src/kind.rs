//! The schedules that have names.

use std::fmt;
use std::str::FromStr;

use super::{Schedule, generate};

/// A schedule, by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// All forward tasks, then all backward tasks.
    GPipe,
    /// One forward, one backward, as few ahead as keep every stage at work.
    OneForwardOneBackward,
    /// The same with gradients of weights right after what the stage before waits for.
    OneForwardOneBackwardDelayed,
    /// One forward, one backward, with one more ahead for each stage after it: messages have the
    /// time of a task to arrive.
    Eager,
    /// The same with gradients of weights right after what the stage before waits for.
    EagerDelayed,
    /// One forward, one backward, with several stages in each group.
    Interleaved,
    /// The same with gradients of weights right after what the stage before waits for.
    InterleavedDelayed,
    /// Gradients of weights fill the bubble, with as many micro-batches at once in every group as one
    /// forward, one backward has in the first.
    ZeroBubbleH1,
    /// Gradients of weights fill the whole bubble, with about twice as many.
    ZeroBubbleH2,
}

/// Why there is no such schedule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KindError {
    /// No schedule has that name.
    Name(String),
    /// No groups, no chunks or no micro-batches; of what there are none.
    Nothing(&'static str),
    /// So many stages in each group, where it is one.
    Chunks(Kind, usize),
    /// One stage in each group, where there are several.
    OneChunk(Kind),
    /// So many micro-batches, which are not a multiple of so many groups.
    Multiple(Kind, usize, usize),
    /// More tasks than [`MAX_TASKS`].
    Tasks,
}

/// The most tasks of a schedule.
pub const MAX_TASKS: usize = 1 << 24;

impl Schedule {
    /// The schedule that has a name and is this one. Several are the same where groups have few micro-batches:
    /// `1f1b` is the name then, as it is what is planned if no other is asked for.
    pub fn kind(&self) -> Option<Kind> {
        let count = self.micro_batches();
        let is = |kind: &Kind| {
            kind.schedule(self.groups.len(), self.chunks, count).is_ok_and(|made| made == *self)
        };
        std::iter::once(Kind::OneForwardOneBackward).chain(Kind::ALL).find(is)
    }
}

impl Kind {
    /// Every kind.
    pub const ALL: [Self; 9] = [
        Self::GPipe,
        Self::OneForwardOneBackward,
        Self::OneForwardOneBackwardDelayed,
        Self::Eager,
        Self::EagerDelayed,
        Self::Interleaved,
        Self::InterleavedDelayed,
        Self::ZeroBubbleH1,
        Self::ZeroBubbleH2,
    ];

    /// The name.
    pub fn name(self) -> &'static str {
        match self {
            Self::GPipe => "gpipe",
            Self::OneForwardOneBackward => "1f1b",
            Self::OneForwardOneBackwardDelayed => "1f1b-delayed",
            Self::Eager => "eager-1f1b",
            Self::EagerDelayed => "eager-1f1b-delayed",
            Self::Interleaved => "interleaved",
            Self::InterleavedDelayed => "interleaved-delayed",
            Self::ZeroBubbleH1 => "zb-h1",
            Self::ZeroBubbleH2 => "zb-h2",
        }
    }

    /// The schedule of the same tasks that holds fewer micro-batches at once, with fewer forward tasks
    /// ahead; nothing if there is none.
    pub fn held_back(self) -> Option<Self> {
        match self {
            Self::Eager => Some(Self::OneForwardOneBackward),
            Self::EagerDelayed => Some(Self::OneForwardOneBackwardDelayed),
            Self::ZeroBubbleH2 => Some(Self::ZeroBubbleH1),
            _ => None,
        }
    }

    /// Whether groups have several stages.
    pub fn interleaves(self) -> bool {
        matches!(self, Self::Interleaved | Self::InterleavedDelayed)
    }

    /// Whether gradients of weights are tasks of their own.
    pub fn splits_backward(self) -> bool {
        match self {
            Self::GPipe | Self::OneForwardOneBackward | Self::Eager | Self::Interleaved => false,
            Self::OneForwardOneBackwardDelayed
            | Self::EagerDelayed
            | Self::InterleavedDelayed
            | Self::ZeroBubbleH1
            | Self::ZeroBubbleH2 => true,
        }
    }

    /// The schedule for so many groups of devices with so many stages each.
    ///
    /// Each stage finishes its micro-batches in their order, so that sums of gradients over them
    /// have the same bits by every schedule.
    pub fn schedule(self, groups: usize, chunks: usize, micro_batches: usize) -> Result<Schedule, KindError> {
        self.check(groups, chunks, micro_batches)?;
        let schedule = match self {
            Self::GPipe => generate::all_then_all(groups, micro_batches),
            Self::OneForwardOneBackward | Self::OneForwardOneBackwardDelayed => {
                generate::in_turn(groups, micro_batches, |after| after + 1)
            }
            Self::Eager | Self::EagerDelayed => {
                generate::in_turn(groups, micro_batches, |after| 2 * after + 1)
            }
            Self::Interleaved | Self::InterleavedDelayed => {
                generate::interleaved(groups, chunks, micro_batches)
            }
            Self::ZeroBubbleH1 => generate::zero_bubble(groups, micro_batches, 1),
            Self::ZeroBubbleH2 => generate::zero_bubble(groups, micro_batches, 2),
        };
        Ok(if self.splits_backward() { schedule.with_weights_apart() } else { schedule })
    }

    /// Whether there is such a schedule.
    pub fn check(self, groups: usize, chunks: usize, micro_batches: usize) -> Result<(), KindError> {
        let counts = [(groups, "pipeline ranks"), (chunks, "chunks"), (micro_batches, "micro-batches")];
        if let Some((_, what)) = counts.into_iter().find(|(count, _)| *count == 0) {
            return Err(KindError::Nothing(what));
        }
        let tasks = groups.checked_mul(chunks).and_then(|it| it.checked_mul(micro_batches)?.checked_mul(3));
        if tasks.is_none_or(|tasks| tasks > MAX_TASKS) {
            return Err(KindError::Tasks);
        }
        match chunks {
            1 if self.interleaves() => Err(KindError::OneChunk(self)),
            2.. if !self.interleaves() => Err(KindError::Chunks(self, chunks)),
            2.. if !micro_batches.is_multiple_of(groups) => {
                Err(KindError::Multiple(self, micro_batches, groups))
            }
            _ => Ok(()),
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Kind {
    type Err = KindError;

    fn from_str(name: &str) -> Result<Self, KindError> {
        let kind = Self::ALL.into_iter().find(|kind| kind.name() == name);
        kind.ok_or_else(|| KindError::Name(name.to_owned()))
    }
}

impl fmt::Display for KindError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => {
                let names: Vec<String> = Kind::ALL.iter().map(|kind| format!("`{kind}`")).collect();
                write!(f, "no schedule is called `{name}`, expected one of {}", names.join(", "))
            }
            Self::Nothing(what) => write!(f, "a schedule has 0 {what}, expected 1 at least"),
            Self::Chunks(kind, chunks) => write!(
                f,
                "schedule `{kind}` has {chunks} chunks in a pipeline rank, expected 1 (`interleaved` has more)"
            ),
            Self::OneChunk(kind) => write!(
                f,
                "schedule `{kind}` has 1 chunk in a pipeline rank, expected 2 at least (`1f1b` has 1)"
            ),
            Self::Multiple(kind, micro_batches, groups) => write!(
                f,
                "schedule `{kind}` has {micro_batches} micro-batches, expected a multiple of its {groups} \
                 pipeline ranks"
            ),
            Self::Tasks => write!(f, "a schedule has more than {MAX_TASKS} tasks"),
        }
    }
}

impl std::error::Error for KindError {}
