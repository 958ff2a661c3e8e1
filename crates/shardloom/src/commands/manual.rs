//! `completions` and `man`: the command line, described for shells and for `man`.

use std::fmt::Write as _;

use clap_mangen::Man;
use files::Failure;
use files::written::{self, Before};

use super::Said;
use crate::arguments::{CompletionsArguments, ManArguments, described};

/// The script of a shell.
pub(crate) fn completions(arguments: &CompletionsArguments) -> Result<Said, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut described(), "shardloom", &mut script);
    let text = String::from_utf8(script).map_err(|error| Failure::internal("completions", error))?;
    let json = serde_json::json!({ "shell": arguments.shell.to_string(), "script": text });
    Ok(Said { text, json })
}

/// A page for the program and for each command of it.
pub(crate) fn man(arguments: &ManArguments, before: Before) -> Result<Said, Failure> {
    let mut whole = described();
    whole.build();
    let page = |command: &clap::Command| -> Result<(String, Vec<u8>), Failure> {
        let mut bytes = Vec::new();
        let title = command.get_display_name().unwrap_or("shardloom").to_owned();
        Man::new(command.clone())
            .title(title.to_uppercase())
            .render(&mut bytes)
            .map_err(|error| Failure::internal("man", error))?;
        Ok((format!("{title}.1"), bytes))
    };
    let mut pages = vec![page(&whole)?];
    for command in whole.get_subcommands().filter(|it| it.get_name() != "help") {
        pages.push(page(command)?);
    }
    let files: Vec<(&str, &[u8])> = pages.iter().map(|(name, bytes)| (name.as_str(), &bytes[..])).collect();
    let paths = written::into(&arguments.output, &files, before)?;
    let mut text = String::new();
    for path in &paths {
        // Writing to a string does not fail.
        let _ = writeln!(text, "written    {}", path.display());
    }
    let json = serde_json::json!({ "files": paths });
    Ok(Said { text, json })
}
