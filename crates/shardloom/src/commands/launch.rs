//! `launch`: the same program as processes on this host, one for each rank.

use ::launch::start::{Job, start};
use files::Failure;
use serde_json::json;

use super::{Context, Said};
use crate::arguments::LaunchArguments;

/// Starts ranks, and starts them again.
pub(crate) fn launch(arguments: &LaunchArguments, context: &Context<'_, '_>) -> Result<Said, Failure> {
    check(arguments)?;
    let LaunchArguments { ranks, restarts, command } = arguments;
    let job = Job { ranks: *ranks, restarts: *restarts, command };
    let restarts = start(&job, context.progress)?;
    Ok(Said { text: String::new(), json: json!({ "restarts": restarts }) })
}

/// Refuses what could not go well.
fn check(arguments: &LaunchArguments) -> Result<(), Failure> {
    let has = |name: &str| arguments.command.iter().any(|it| it == name);
    let first = arguments.command.first().map(|it| it.to_string_lossy());
    let is_train = first.as_deref() == Some("train");
    const STARTED: [&str; 4] = ["run", "generate", "train", "calibrate"];
    if !STARTED.contains(&first.as_deref().unwrap_or_default()) {
        let found = first.unwrap_or_default();
        let message = format!(
            "`{found}` is one process's work: `launch` starts `run`, `generate`, `train` or `calibrate --nccl`"
        );
        return Err(Failure::Usage(message));
    }
    if arguments.restarts > 0 && is_train && !has("--continue") {
        let message = "`--restarts` goes with `train --checkpoint DIR --continue`: what is started again has to \
                       go on from the newest checkpoint";
        return Err(Failure::Usage(message.to_owned()));
    }
    Ok(())
}
