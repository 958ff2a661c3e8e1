//! `diff`: what differs between two plans.

use serde_json::{Value, json};

use ::plan::{Change, Diff};

use super::Said;
use crate::arguments::DiffArguments;
use crate::failure::Failure;
use crate::plan_file;

/// Compares two plans.
pub(crate) fn diff(arguments: &DiffArguments) -> Result<Said, Failure> {
    let before = plan_file::read_checked(&arguments.before)?;
    let after = plan_file::read_checked(&arguments.after)?;
    let diff = ::plan::diff(&before, &after);
    Ok(Said { text: diff.to_string(), json: value(&diff) })
}

fn value(diff: &Diff) -> Value {
    fn changes<T: serde::Serialize>(list: &[Change<T>]) -> Vec<Value> {
        list.iter().map(|it| json!({ "what": it.what, "before": it.before, "after": it.after })).collect()
    }
    let repeated = |list: &[::plan::Repeated]| -> Vec<Value> {
        let one = |it: &::plan::Repeated| {
            let Change { what, before, after } = &it.change;
            json!({ "count": it.count, "what": what, "before": before, "after": after })
        };
        list.iter().map(one).collect()
    };
    json!({
        "header": changes(&diff.header),
        "operations": repeated(&diff.operations),
        "values": repeated(&diff.values),
        "transfers": changes(&diff.transfers),
        "time": changes(&diff.time),
        "memory": changes(&diff.memory),
        "communication": changes(&diff.communication),
        "seconds": { "before": diff.seconds.before, "after": diff.seconds.after },
    })
}
