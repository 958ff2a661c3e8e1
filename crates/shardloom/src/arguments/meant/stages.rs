//! Which stages commands make: these can be shown, and stopped after.

use super::super::{Command, Dumped, StageName};
use super::{Way, planned, runs_plan, way};
use StageName::{Import, Lower, Plan, Raise, Train};

/// The stages that a command makes, in order; none where it is refused anyway.
pub(super) fn made(command: &Command) -> &'static [StageName] {
    match command {
        Command::Import(_) => &[Import, Raise],
        Command::Run(_) if !runs_plan(command) => &[Import, Raise, Plan, Lower],
        Command::Run(_) | Command::Train(_) => &[Plan, Lower],
        Command::Generate(_) | Command::Check(_) | Command::Kernels(_) => &[Lower],
        _ if planned(command).is_some() => match way(command) {
            Way::Inference | Way::Generate => &[Import, Raise, Plan],
            Way::Train => &[Import, Raise, Train, Plan],
            Way::Staged => &[Import, Plan],
            Way::Auto => &[Plan],
        },
        _ => &[],
    }
}

/// The stage that is to be shown, if it is one.
pub(super) fn shown(dumped: Dumped) -> Option<StageName> {
    match dumped {
        Dumped::Import => Some(Import),
        Dumped::Raise => Some(Raise),
        Dumped::Train => Some(Train),
        Dumped::Plan => Some(Plan),
        Dumped::Lower => Some(Lower),
        Dumped::All => None,
    }
}
