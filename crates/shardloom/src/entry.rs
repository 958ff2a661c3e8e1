//! Arguments to an exit code.

use std::borrow::Cow;
use std::error::Error as _;
use std::ffi::OsString;
use std::io::Write;
use std::path::Path;

use clap::{ArgMatches, CommandFactory, FromArgMatches};
use files::Failure;
use files::interrupt::Interrupt;
use files::written::{self, Before};
use launch::Listener;
use launch::arguments::ClusterArguments;
use launch::cluster::Cluster;
use launch::contract::Launched;
use rayon::ThreadPoolBuildError;

use crate::arguments::{Arguments, Command, meant, outputs};
use crate::colour;
use crate::commands::{Context, Form, Lines, Said, execute};
use crate::progress::{Progress, Wish};
use crate::stages::Stages;

/// Does what the arguments ask (the first one is the program's name): 0 if it is done, 1 if the
/// arguments are invalid, 2 for bad input or a plan that is rejected, 3 for an error of ours, 4 where
/// processes have not found each other, 5 where a rank is lost, 6 where one has waited for too long, 7
/// where there is no room for a file; of `launch`, 130 or 143 where a signal has ended it.
pub fn main_with<I>(arguments: I, stdout: &mut dyn Write, stderr: &mut dyn Write) -> u8
where
    I: IntoIterator<Item: Into<OsString> + Clone>,
{
    let arguments: Vec<OsString> = arguments.into_iter().map(Into::into).collect();
    colour::wish(&arguments);
    let arguments = match read(arguments) {
        Ok((arguments, matches)) => match meant::check(&matches, &arguments.command) {
            Ok(()) => arguments,
            Err(failure) => {
                print(stderr, &format!("error: {}\n", readable(&failure.to_string())));
                return failure.code();
            }
        },
        Err(error) => {
            let text = error.render().to_string();
            // Help and the version are what was asked for.
            if error.use_stderr() {
                print(stderr, &readable(&text));
                return 1;
            }
            return if print(stdout, &text) { 0 } else { 2 };
        }
    };
    let cluster = match joined(&arguments) {
        Ok(cluster) => cluster,
        Err((failure, says)) => {
            if says {
                print(stderr, &format!("error: {}\n", readable(&failure.to_string())));
            }
            return failure.code();
        }
    };
    let leads = cluster.as_ref().is_none_or(|it| it.processes.leads());
    let done = done(&arguments, stdout, cluster.as_ref());
    match done.and_then(|text| if leads { printed(stdout, &text) } else { Ok(true) }) {
        Ok(true) => 0,
        Ok(false) => 2,
        Err(failure) => {
            let mut say = |words: &str| {
                print(stderr, &format!("error: {}\n", readable(words)));
            };
            match &cluster {
                Some(cluster) => cluster.failed(&failure, &mut say),
                // Those that have failed have said why.
                None if matches!(failure, Failure::Ended(..)) => {
                    print(stderr, &format!("{failure}\n"));
                }
                None => say(&failure.to_string()),
            }
            failure.code()
        }
    }
}

/// Does what arguments ask, without a program's name before them, in the process of who calls: what is being done
/// is told, and what there is to say is returned. Ranks are threads, whatever has started this process.
///
/// # Panics
///
/// Unwinds with [`Interrupted`](files::interrupt::Interrupted) where it is ended by `interrupt`.
pub fn call<I>(
    arguments: I,
    listener: Box<dyn Listener + Send>,
    interrupt: &Interrupt,
) -> Result<Said, Failure>
where
    I: IntoIterator<Item: Into<OsString> + Clone>,
{
    let named = [OsString::from("shardloom")].into_iter().chain(arguments.into_iter().map(Into::into));
    let (arguments, matches) = read(named).map_err(|error| Failure::Usage(refused(&error)))?;
    meant::check(&matches, &arguments.command)?;
    let interrupt = interrupt.clone();
    let threads = rayon::ThreadPoolBuilder::new().stack_size(STACK);
    let threads = threads.start_handler(move |_| interrupt.give_to_this_thread()).build();
    threads.map_err(|error| unstarted(&error))?.install(|| {
        executed(&arguments, Progress::Told(listener), (&mut std::io::sink(), Form::Text), None)
            .map(|(said, _)| said)
    })
}

/// How much a thread has for what it calls (bytes): as much as the first one of a process.
const STACK: usize = 8 << 20;

/// What arguments say, and which are given.
fn read<I>(arguments: I) -> Result<(Arguments, ArgMatches), clap::Error>
where
    I: IntoIterator<Item: Into<OsString> + Clone>,
{
    let matches = Arguments::command().try_get_matches_from(arguments)?;
    Ok((Arguments::from_arg_matches(&matches)?, matches))
}

/// What is wrong with arguments, without what is of use on a command line alone.
fn refused(error: &clap::Error) -> String {
    let text = error.render().to_string();
    let text = text.split("\n\nUsage:").next().unwrap_or_default();
    let text = text.split("\n\nFor more information").next().unwrap_or_default();
    text.strip_prefix("error: ").unwrap_or(text).trim_end().to_owned()
}

/// The processes of all ranks, if a launcher has started this one; or why not, and whether this
/// process says so.
fn joined(arguments: &Arguments) -> Result<Option<Cluster>, (Failure, bool)> {
    let variable = |name: &str| std::env::var(name).ok();
    let launched = Launched::of(&variable);
    let Some((cluster, checkpoint)) = of_cluster(&arguments.command) else {
        return match launched {
            // What is half there is of no meaning to other commands.
            Ok(Some(launched)) if !matches!(arguments.command, Command::Launch(_)) => {
                let message = "this command is one process's work: only `run`, `generate`, `train` and \
                               `calibrate --nccl` run under a launcher";
                Err((Failure::Usage(message.to_owned()), launched.rank == 0))
            }
            _ => Ok(None),
        };
    };
    let Some(launched) = launched.map_err(|failure| (failure, true))? else {
        let Some(name) = cluster.given() else { return Ok(None) };
        let message =
            format!("`{name}` goes with ranks that are processes: start them with `shardloom launch -n N`");
        return Err((Failure::Usage(message), true));
    };
    launched.join(cluster, checkpoint, &variable).map(Some)
}

/// What a command whose ranks can be processes is told of that, and the folder of its checkpoints.
fn of_cluster(command: &Command) -> Option<(&ClusterArguments, Option<&Path>)> {
    match command {
        Command::Run(it) => Some((&it.cluster, None)),
        Command::Generate(it) => Some((&it.cluster, None)),
        Command::Train(it) => Some((&it.cluster, it.checkpoint.as_deref())),
        Command::Calibrate(it) if it.nccl => Some((&it.cluster, None)),
        _ => None,
    }
}

/// A message without the middle of what is longer than anybody reads: it may quote a file or an argument
/// of any length.
fn readable(message: &str) -> Cow<'_, str> {
    const MOST: usize = 4000;
    let Some(left_out) = message.len().checked_sub(MOST).filter(|it| *it > 0) else { return message.into() };
    let (first, last) =
        (message.floor_char_boundary(MOST / 2), message.ceil_char_boundary(message.len() - MOST / 2));
    format!("{} ... ({left_out} bytes left out) ... {}", &message[..first], &message[last..]).into()
}

/// Whether the text was taken. A reader that goes away is no error of ours, and nobody is left to
/// be told.
fn print(to: &mut dyn Write, text: &str) -> bool {
    to.write_all(text.as_bytes()).and_then(|()| to.flush()).is_ok()
}

/// Prints what was asked for; whether there still is a reader. Where there is no room for it, that is said.
fn printed(to: &mut dyn Write, text: &str) -> Result<bool, Failure> {
    match to.write_all(text.as_bytes()).and_then(|()| to.flush()) {
        Ok(()) => Ok(true),
        Err(error) => match Failure::unwritten(Path::new("standard output"), &error) {
            full @ Failure::Full(_) => Err(full),
            _ => Ok(false),
        },
    }
}

/// Starts the threads that stages work on, so that want of them is said and ends nothing in the middle.
fn threads() -> Result<(), Failure> {
    let built = rayon::ThreadPoolBuilder::new().build_global();
    match built.as_ref().err().and_then(|it| it.source()) {
        // They are there already, where a process does several things.
        None => Ok(()),
        Some(_) => built.map_err(|error| unstarted(&error)),
    }
}

/// Why there are no threads.
fn unstarted(error: &ThreadPoolBuildError) -> Failure {
    let why = error.source().map_or_else(|| error.to_string(), ToString::to_string);
    Failure::Input(format!(
        "threads cannot be started, one for each processor: {why}; allow more (`ulimit -u`, or what limits this \
         container), or set `RAYON_NUM_THREADS`"
    ))
}

fn done(arguments: &Arguments, stdout: &mut dyn Write, cluster: Option<&Cluster>) -> Result<String, Failure> {
    threads()?;
    let global = &arguments.global;
    let leads = cluster.is_none_or(|it| it.processes.leads());
    let progress = Progress::line(if global.quiet || !leads { Wish::Hidden } else { Wish::Shown });
    let form = match () {
        () if !leads => Form::Nothing,
        () if global.json => Form::Json,
        () if global.quiet => Form::Nothing,
        () => Form::Text,
    };
    let (said, mut text) = executed(arguments, progress, (stdout, form), cluster)?;
    if global.json && matches!(arguments.command, Command::Train(_) | Command::Generate(_)) {
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

/// What a command says, and what its stages made, as far as it is wanted.
fn executed(
    arguments: &Arguments,
    progress: Progress,
    (to, form): (&mut dyn Write, Form),
    cluster: Option<&Cluster>,
) -> Result<(Said, String), Failure> {
    let mut stages = Stages::new(&arguments.global);
    let lines = Lines { to, form };
    let before = if arguments.global.force { Before::Replaced } else { Before::Kept };
    let mut context = Context { stages: &mut stages, progress: &progress, lines, cluster, before };
    let writes = context.leads() && outputs::is_reached(&arguments.command, context.stages.last());
    let kept = if writes { written::kept(&outputs::outputs(&arguments.command), before) } else { Ok(()) };
    let outcome = kept.and_then(|()| execute(&arguments.command, &mut context));
    drop(progress);
    // What stages made is of most use if a later one failed.
    let dumped = stages.finish();
    let said = outcome?;
    Ok((said, dumped?))
}
