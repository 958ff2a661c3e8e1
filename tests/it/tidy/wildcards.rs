//! Where operations are told apart: all of them are, so that a new one does not get a silent default.
//!
//! Source is read as text, not as the compiler reads it. A `match` is looked at if one of the patterns of
//! its arms names a variant of an operation, of its class, or of a function of elements; none of its arms
//! may then be a wildcard or a bare name, outside of `planner-ir`, unless `RECOGNISED` says why. In `PLACES`
//! neither may `matches!` or a `let` pattern pick out some variants: those are matches with a wildcard. Tests
//! are not looked at, nor a pattern such as `OpClass::Norm(_)`, which takes all of one class.

use super::{files, nothing, read};

/// Files and folders where operations are told apart by class, or one by one.
const PLACES: [&str; 6] = [
    "cost-models/src/",
    "crates/import/src/outline.rs",
    "crates/plan/src/words.rs",
    "crates/plan/src/words/class.rs",
    "crates/plan/src/words/strategy/uses.rs",
    "planner-ir/src/op/class.rs",
];

/// Files and folders whose matches may have wildcards, and what the operations are that these take.
const RECOGNISED: [(&str, &str); 28] = [
    ("crates/autoparallel/src/cluster/guess.rs", "neither products nor experts, of which rough prices are"),
    ("crates/autoparallel/src/cluster/least.rs", "not those whose time bounds a step"),
    ("crates/autoparallel/src/otherwise.rs", "split as their result lies, but for products and attention"),
    ("crates/autoparallel/src/rows.rs", "not sums over rows"),
    ("crates/autoparallel/src/serving.rs", "neither attention nor experts, which limit servers"),
    ("crates/bench/src/flops.rs", "not those whose arithmetic is counted"),
    ("crates/device/src/group.rs", "not those that have a kernel for a group of them"),
    ("crates/device/src/task.rs", "printed by their names"),
    (
        "crates/driver/src/generation/ring",
        "not those that do the same in any order, or made element by element",
    ),
    ("crates/driver/src/generation/written.rs", "not those by which entries are put into a cache"),
    ("crates/driver/src/training/ranges.rs", "not look-ups, which limit numbers of an input"),
    ("crates/export/src/model.rs", "not those that a model is told by"),
    ("crates/export/src/model/unlike.rs", "as decoders usually have, or not to be told"),
    ("crates/export/src/specs.rs", "not movements through which a sharding is followed"),
    ("crates/files/src/impossible.rs", "possible with any numbers"),
    ("crates/files/src/inputs.rs", "not look-ups, which limit numbers of an input"),
    ("crates/import/src/builder.rs", "not those that import folds or refuses"),
    ("crates/import/src/builder/partial.rs", "not those that shapes are computed with"),
    ("crates/lower/src/show.rs", "printed by their names"),
    ("crates/plan/src/check/rounding.rs", "not steps of rounding by chance"),
    ("crates/plan/src/generation.rs", "not look-ups, which have a row for each token"),
    ("crates/report/src/attention.rs", "not attention, which has masks"),
    ("crates/report/src/diagram.rs", "drawn by how many operands they have"),
    ("crates/rewrite/src/", "not the left side of a rule"),
    ("crates/run/src/view.rs", "not movements, which are views"),
    ("crates/search/src/ruled.rs", "of no kind of parallelism that users name"),
    ("crates/train/src/", "not what a training step is told by"),
    ("kernels/src/", "not those of the kind that is computed there"),
];

/// Enums whose variants say which operation it is.
const ENUMS: [&str; 12] = [
    "Op",
    "OpClass",
    "ElementwiseClass",
    "ConvolutionClass",
    "AttentionClass",
    "ExpertsClass",
    "NormClass",
    "MovementClass",
    "GatherClass",
    "Recurrence",
    "Unary",
    "Binary",
];

/// Where something ends that begins at the start of the text: outside of brackets opened since.
fn ends(text: &str, ended: impl Fn(&str) -> bool) -> Option<usize> {
    let mut depth = 0_i32;
    for (at, it) in text.char_indices() {
        if depth == 0 && ended(&text[at..]) {
            return Some(at);
        }
        match it {
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' => depth -= 1,
            _ => {}
        }
        if depth < 0 {
            return None;
        }
    }
    None
}

/// The text without what comments and strings say.
fn code(text: &str) -> String {
    let lines = text.lines().map(|line| line.split("//").next().unwrap_or_default());
    let text = lines.collect::<Vec<_>>().join("\n").replace("\\\"", "");
    let plain = ["'{'", "'}'", "'('", "')'", "'['", "']'", "'\"'"];
    let text = plain.iter().fold(text, |text, it| text.replace(it, "' '"));
    text.split('"').step_by(2).collect::<Vec<_>>().join("\"\"")
}

/// Whether a text names a variant of one of the enums.
fn names(text: &str, enums: &[&str]) -> bool {
    let is_name = |it: char| it.is_alphanumeric() || it == '_';
    let named = |name: &&str| {
        let path = format!("{name}::");
        text.match_indices(&path).any(|(at, _)| !text[..at].ends_with(is_name))
    };
    enums.iter().any(named)
}

/// Where a word stands in the text by itself: what follows each.
fn after<'a>(text: &'a str, word: &'a str) -> impl Iterator<Item = &'a str> {
    let is_name = |it: char| it.is_alphanumeric() || it == '_' || it == '.';
    let alone = move |&(at, _): &(usize, &str)| !text[..at].ends_with(is_name);
    text.match_indices(word).filter(alone).map(move |(at, _)| &text[at + word.len()..])
}

/// The patterns of the arms of a match whose body begins here, with their guards.
fn patterns(mut body: &str) -> Vec<&str> {
    let mut found = Vec::new();
    while let Some(arrow) = ends(body, |it| it.starts_with("=>")) {
        found.push(body[..arrow].trim());
        body = body[arrow + 2..].trim_start();
        let block = body.starts_with('{').then(|| ends(&body[1..], |it| it.starts_with('}'))).flatten();
        body = match block {
            Some(end) => body[end + 2..].trim_start().trim_start_matches(','),
            None => match ends(body, |it| it.starts_with(',')) {
                Some(comma) => &body[comma + 1..],
                None => "",
            },
        };
    }
    found
}

/// Whether a pattern takes whatever no other arm does, if its guard lets it.
fn takes_all(pattern: &str) -> bool {
    let pattern = pattern.split(" if ").next().unwrap_or_default();
    let any = |it: &str| {
        let name = it.trim().trim_start_matches("ref ").trim_start_matches("mut ");
        let parts = name.trim_start_matches(['&', '(']).trim_end_matches(')').split(',');
        let bare = |part: &str| {
            let part = part.trim();
            part == ".."
                || part.starts_with(|it: char| it.is_lowercase() || it == '_')
                    && part.chars().all(|it| it.is_alphanumeric() || it == '_')
        };
        parts.clone().count() > 0 && parts.into_iter().all(bare)
    };
    pattern.split('|').filter(|it| !it.trim().is_empty()).any(any)
}

/// How many matches on operations a text has, and those that have wildcards.
fn matched(text: &str) -> (usize, Vec<String>) {
    let text = code(text);
    let enums = enums(&text);
    let (mut count, mut wrong) = (0, Vec::new());
    for rest in after(&text, "match ") {
        let Some(brace) = ends(rest, |it| it.starts_with('{')) else { continue };
        let patterns = patterns(&rest[brace + 1..]);
        if patterns.iter().any(|it| names(it, &enums)) {
            count += 1;
            let all = patterns.into_iter().filter(|it| takes_all(it));
            wrong.extend(all.map(|it| format!("`match {}` has the arm `{it}`", rest[..brace].trim())));
        }
    }
    (count, wrong)
}

/// The enums that a text may name, by their names or as its own type.
fn enums(code: &str) -> Vec<&'static str> {
    let own = code.contains("impl Op {").then_some("Self");
    ENUMS.into_iter().chain(own).collect()
}

/// Where a text picks some operations out, without a match.
fn picked(text: &str) -> Vec<String> {
    let text = code(text);
    let enums = enums(&text);
    let mut wrong = Vec::new();
    for rest in after(&text, "matches!(") {
        let some = &rest[..ends(rest, |it| it.starts_with(')')).unwrap_or(rest.len())];
        if names(some, &enums) {
            wrong.push(format!("`matches!({some})` takes some operations only"));
        }
    }
    for rest in after(&text, "let ") {
        let pattern = &rest[..ends(rest, |it| it.starts_with(['=', ';'])).unwrap_or(rest.len())];
        let pattern = pattern.trim();
        if names(pattern, &enums) {
            wrong.push(format!("`let {pattern}` takes some operations only"));
        }
    }
    wrong
}

#[test]
fn operations_are_told_apart_without_wildcards() {
    let mut wrong = Vec::new();
    for place in PLACES {
        let paths = if place.ends_with('/') { files(place, ".rs") } else { vec![place.to_owned()] };
        let mut matches = 0;
        for path in paths.iter().filter(|it| !it.contains("/tests")) {
            let (count, faults) = matched(&read(path));
            matches += count;
            wrong.extend(faults.into_iter().chain(picked(&read(path))).map(|it| {
                format!("{path}: {it}, expected every variant by name, so that a new one does not compile")
            }));
        }
        if matches == 0 {
            wrong.push(format!("{place} tells no operations apart: it need not be listed"));
        }
    }
    nothing(&wrong);
}

#[test]
fn no_match_elsewhere_takes_the_rest_but_for_reasons() {
    let folders = ["cost-models/src/", "kernels/src/", "crates/"];
    let mut wrong = Vec::new();
    let mut needed = vec![false; RECOGNISED.len()];
    for path in folders.into_iter().flat_map(|it| files(it, ".rs")).filter(|it| !it.contains("/tests")) {
        let (_, faults) = matched(&read(&path));
        match RECOGNISED.iter().position(|it| path.starts_with(it.0)) {
            Some(place) => needed[place] |= !faults.is_empty(),
            None => wrong.extend(faults.into_iter().map(|it| {
                format!(
                    "{path}: {it}, expected every variant by name; or `RECOGNISED` with what the others are"
                )
            })),
        }
    }
    let unneeded = RECOGNISED.iter().zip(needed).filter(|it| !it.1).map(|it| it.0.0);
    wrong.extend(unneeded.map(|it| format!("{it} has no wildcard: it need not be listed")));
    nothing(&wrong);
}

#[test]
fn wildcards_are_seen() {
    let arms = [
        "OpClass::Region => 1, _ => 2,",
        "OpClass::Region => { 1 } _ => 2,",
        "OpClass::Norm(NormClass::Layer) => f(|a, b| a), other => 2,",
        "OpClass::Region => match n { 1 => 2, _ => 3 }, _ if n > 1 => 2,",
        "Op::Reshape { .. } => 1, Op::Select | _ => 2,",
        "(Op::Select, 1) => 1, (_, _) => 2,",
        "Some(Unary::Exp) => '{', _ => 2,",
    ];
    for arms in arms {
        let (count, wrong) = matched(&format!("fn f() {{ match x.class() {{ {arms} }} }}"));
        assert_eq!((count, wrong.len()), (1, 1), "{arms}: {wrong:?}");
    }
    for some in
        ["matches!(op, Op::Select)", "if let Op::Cast(to) = op {}", "let Some(Op::Cast(to)) = op else {}"]
    {
        assert_eq!(picked(some).len(), 1, "{some}");
    }
    let right = [
        "match op.class() { OpClass::Norm(_) => match n { 1 => 2, _ => 3 }, OpClass::Region => \"_ => {\" }",
        "match n { 1 => Op::Select, _ => Op::Cast(to) }",
        "match op { Op::Select if n > 1 => 1, Op::Select => 2, Op::Cast(_) => 3 }",
        "let op = Op::Select; let class: OpClass = op.class(); // match op { Op::Select => 1, _ => 2 }",
    ];
    for right in right {
        assert_eq!([matched(right).1, picked(right)].concat(), Vec::<String>::new(), "{right}");
    }
}
