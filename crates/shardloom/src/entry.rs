//! Arguments to an exit code.

use std::ffi::OsString;
use std::io::Write;

use clap::Parser;

use crate::arguments::{Arguments, Command};
use crate::commands::{Context, Form, Lines, execute};
use crate::failure::Failure;
use crate::progress::{Progress, Wish};
use crate::stages::Stages;

/// Does what the arguments ask (the first one is the program's name): 0 if it is done, 1 if the
/// arguments make no sense, 2 for bad input or a plan that is rejected, 3 for an error of ours.
pub fn main_with<I>(arguments: I, stdout: &mut dyn Write, stderr: &mut dyn Write) -> u8
where
    I: IntoIterator<Item: Into<OsString> + Clone>,
{
    let arguments = match Arguments::try_parse_from(arguments) {
        Ok(arguments) => arguments,
        Err(error) => {
            let text = error.render().to_string();
            // Help and the version are what was asked for.
            if error.use_stderr() {
                print(stderr, &text);
                return 1;
            }
            return if print(stdout, &text) { 0 } else { 2 };
        }
    };
    match done(&arguments, stdout) {
        Ok(text) if print(stdout, &text) => 0,
        Ok(_) => 2,
        Err(failure) => {
            print(stderr, &format!("error: {failure}\n"));
            failure.code()
        }
    }
}

/// Whether the text was taken. A reader that goes away is no error of ours, and nobody is left to
/// be told.
fn print(to: &mut dyn Write, text: &str) -> bool {
    to.write_all(text.as_bytes()).and_then(|()| to.flush()).is_ok()
}

fn done(arguments: &Arguments, stdout: &mut dyn Write) -> Result<String, Failure> {
    let global = &arguments.global;
    let mut stages = Stages::new(global);
    let progress = Progress::new(if global.quiet { Wish::Hidden } else { Wish::Shown });
    let form = match () {
        () if global.json => Form::Json,
        () if global.quiet => Form::Nothing,
        () => Form::Text,
    };
    let lines = Lines { to: stdout, form };
    let outcome =
        execute(&arguments.command, &mut Context { stages: &mut stages, progress: &progress, lines });
    drop(progress);
    // What stages made is of most use if a later one failed.
    let dumped = stages.finish();
    let said = outcome?;
    let mut text = dumped?;
    if global.json && matches!(arguments.command, Command::Train(_)) {
        // Steps are lines of JSON, and so is what is said after them.
        text.push_str(&format!("{}\n", said.json));
    } else if let (true, Command::Validate(_), Some(rows)) =
        (global.json, &arguments.command, said.json.as_array())
    {
        // A line for each row.
        text.extend(rows.iter().map(|row| format!("{row}\n")));
    } else if global.json {
        text.push_str(&format!("{:#}\n", said.json));
    } else if !global.quiet {
        text.push_str(&said.text);
    }
    Ok(text)
}
