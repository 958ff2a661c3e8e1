//! `explain` of a pipeline.

use ::plan::Pipeline;
use driver::pipeline::staged;
use files::Failure;
use files::{machine, written};
use report::chart::{Chart, MAX_DRAWN};
use report::explanation::staged::{Explanation, in_milliseconds, title};
use report::throughput;

use crate::arguments::ExplainArguments;
use crate::commands::Said;

/// Explains a pipeline.
pub(super) fn explain(arguments: &ExplainArguments, pipeline: &Pipeline) -> Result<Said, Failure> {
    if arguments.diagram.is_some() || arguments.alternatives {
        let message = "`--diagram` and `--alternatives` are of plans, expected neither for a pipeline";
        return Err(Failure::Usage(message.to_owned()));
    }
    let timeline = &in_milliseconds(staged::times(pipeline)?);
    let given = machine::given(&pipeline.machine, arguments.machine.as_deref(), &arguments.set.settings);
    let on = match (machine::priced_as(&pipeline.machine, given.as_deref()), &given) {
        (Err(failure), Some(_)) => return Err(failure),
        (on, _) => on.ok(),
    };
    if let Some(path) = &arguments.svg {
        let chart = Chart { schedule: &pipeline.schedule, timeline };
        if !chart.is_small() {
            let message = format!("a schedule of more than {MAX_DRAWN} tasks is too long to draw");
            return Err(Failure::Usage(message));
        }
        written::write(path, chart.svg(&title(pipeline)).as_bytes())?;
    }
    let throughput = throughput::of_pipeline(pipeline, pipeline.seconds(), on.as_ref());
    let explanation = Explanation { pipeline, timeline, throughput, picture: arguments.svg.as_deref() };
    Ok(Said { text: explanation.text(), json: explanation.json() })
}
