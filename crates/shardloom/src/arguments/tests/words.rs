//! What `--help` says: what each option is or does, in the words of the field.

use clap::{Command, CommandFactory as _};

use crate::arguments::Arguments;

/// How help does not begin: it is an imperative or a noun phrase.
const BEGINNINGS: [&str; 10] = ["As", "For", "From", "How", "In", "Of", "On", "What", "Where", "Whether"];

/// What must not come back into help.
const WORDS: [&str; 17] = [
    "beside computing",
    "computed again",
    "crossing is",
    "held skewed",
    "if there is room",
    "in time steps",
    "is made small",
    "is not said",
    "layout is",
    "make no sense",
    "makes no sense",
    "no sense",
    "owed sum",
    " prices",
    "stage group",
    "sum owed",
    "what it takes",
];

/// What is wrong with the help of a command and of those below it.
fn wrong(command: &mut Command, name: &str, found: &mut Vec<String>) {
    let mut said = |of: String, help: Option<String>| match help {
        None => found.push(format!("{of} has no help")),
        Some(help) if BEGINNINGS.iter().any(|it| help.split(' ').next() == Some(it)) => {
            found.push(format!("{of} begins as a circumscription: {help}"));
        }
        Some(_) => {}
    };
    said(name.to_owned(), command.get_about().map(ToString::to_string));
    for argument in command.get_arguments().filter(|it| !it.is_hide_set()) {
        said(format!("{name} {}", argument.get_id()), argument.get_help().map(ToString::to_string));
    }
    let text = command.render_long_help().to_string().split_whitespace().collect::<Vec<_>>().join(" ");
    let lower = text.to_lowercase();
    found.extend(WORDS.iter().filter(|it| lower.contains(*it)).map(|it| format!("{name} says `{it}`")));
    for inner in command.get_subcommands_mut() {
        let name = format!("{name} {}", inner.get_name());
        wrong(inner, &name, found);
    }
}

#[test]
fn help_is_in_the_words_of_the_field() {
    let mut found = Vec::new();
    wrong(&mut Arguments::command(), "shardloom", &mut found);
    assert!(found.is_empty(), "\n{}", found.join("\n"));
}
