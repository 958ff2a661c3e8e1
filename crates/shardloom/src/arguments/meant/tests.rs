//! Every option of every command is obeyed or refused.

use std::collections::BTreeMap;

use clap::{Arg, ArgAction, CommandFactory, FromArgMatches};

use super::{Arguments, GLOBAL, ROWS, check};

/// Every command that does something, by its path, and its options.
fn commands() -> Vec<(String, Vec<Arg>)> {
    fn visit(path: &str, command: &clap::Command, all: &mut Vec<(String, Vec<Arg>)>) {
        for inner in command.get_subcommands().filter(|it| it.get_name() != "help") {
            let path = format!("{path} {}", inner.get_name()).trim().to_owned();
            let own = |it: &&Arg| !["help", "version"].contains(&it.get_id().as_str());
            all.push((path.clone(), inner.get_arguments().filter(own).cloned().collect()));
            visit(&path, inner, all);
        }
    }
    let mut command = Arguments::command();
    command.build();
    let mut all = Vec::new();
    visit("", &command, &mut all);
    all
}

fn is_global(option: &str) -> bool {
    GLOBAL.iter().any(|(options, _)| options.contains(&option))
}

#[test]
fn every_option_is_in_the_table_once() {
    let all = commands();
    let mut listed: BTreeMap<(&str, &str), usize> = BTreeMap::new();
    for row in ROWS {
        for command in row.commands {
            row.options.iter().for_each(|option| *listed.entry((command, option)).or_default() += 1);
        }
    }
    for (path, options) in all.iter().filter(|it| !it.0.starts_with("bench")) {
        for option in options.iter().filter(|it| !it.is_global_set()) {
            let found = listed.remove(&(path.as_str(), option.get_id().as_str()));
            assert_eq!(
                found,
                Some(1),
                "`{path}`: say in the table where `{}` means something",
                option.get_id()
            );
        }
        assert!(options.iter().filter(|it| it.is_global_set()).all(|it| is_global(it.get_id().as_str())));
    }
    assert_eq!(listed, BTreeMap::new(), "in the table, and no options");
}

/// Command lines of every kind, to which options are added.
const LINES: &[&str] = &[
    "plan m.onnx --machine m",
    "plan --config c --machine m",
    "plan m.onnx --machine m --mode generate",
    "plan m.onnx --machine m --mode train --loss l",
    "plan m.onnx --machine m --mode train --loss l --optimizer sgd-momentum",
    "plan m.onnx --machine m --mode train --loss l --stages 2",
    "plan m.onnx --machine m --mode train --loss l --stages auto",
    "sweep m.onnx --machine m --over devices=1,2",
    "sweep m.onnx --machine m --over devices=1,2 --mode train --loss l --stages auto",
    "sweep m.onnx --machine m --over memory=1GB,2GB",
    "sweep m.onnx --machine m --over batch=1,2",
    "sweep --config c --machine m --over batch=1,2",
    "run m.onnx",
    "run p.json",
    "run m.onnx --device cuda --inputs i.npz",
    "generate p.json --prompts f",
    "generate p.json --prompt-ids 1",
    "generate p.json --prompt-ids 1 --temperature 1",
    "train p.json --data d.bin --steps 1 --lr 1",
    "train p.json --data d.npz --steps 1 --lr 1 --schedule cosine --checkpoint c --resume c",
    "train p.json --data d.npz --steps 1 --lr 1 --checkpoint c",
    "launch run p.json",
    "explain p.json",
    "explain p.json --diagram o",
    "export p.json --to megatron",
    "simulate p.json",
    "partition [a,-,-] --mesh 4",
    "schedule 1f1b --stages 2 --micro-batches 2",
    "schedule --file f",
    "check p.json",
    "check p.json --model m.onnx",
    "diff a.json b.json",
    "import m.onnx",
    "model --config c",
    "machines show m",
    "man -o m",
    "calibrate",
    "calibrate --device cuda",
    "predict --config c",
    "score --megatron s --machine m",
    "score --bridge b --machine m",
    "score --torchtitan t --machine m",
    "score --deepspeed d --machine m",
    "validate",
    "validate --local",
    "validate --plans",
    "kernels p.json",
    "kernels p.json --out o",
];

/// A value that an option takes, which is not the one that it has where it is not given.
fn value(option: &Arg) -> String {
    let values = [
        ("mesh", "3"),
        ("memory", "3GB"),
        ("dims", "d=3"),
        ("loss", "other"),
        ("betas", "0.5,0.6"),
        ("roles", "tokens=t"),
        ("kept", "a=b"),
        ("prompt_ids", "3,4"),
        ("crossings", "0-1=0.5"),
        ("interface", "10.0.0.0/8"),
        ("arch", "sm_100a"),
        ("top_p", "0.3"),
        ("cut", "0,3"),
        ("pins", "pp=3"),
        ("over", "devices=3,4"),
        ("name", "gpipe"),
        ("runtime", "megatron"),
        ("framework_year", "2026"),
    ];
    let possible = option.get_possible_values();
    match values.iter().find(|it| it.0 == option.get_id().as_str()) {
        Some((_, value)) => (*value).to_owned(),
        None => possible.last().map_or("3".to_owned(), |it| it.get_name().to_owned()),
    }
}

fn read(line: &[String]) -> Option<(String, Result<(), String>)> {
    let words = ["shardloom".to_owned()].into_iter().chain(line.iter().cloned());
    let matches = Arguments::command().try_get_matches_from(words).ok()?;
    let arguments = Arguments::from_arg_matches(&matches).unwrap();
    let outcome = check(&matches, &arguments.command).map_err(|it| it.to_string());
    Some((format!("{arguments:?}"), outcome))
}

#[test]
fn every_option_changes_what_is_asked_for_or_is_refused() {
    let (all, mut counts) = (commands(), BTreeMap::new());
    for line in LINES {
        let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        let (before, outcome) = read(&words).unwrap_or_else(|| panic!("{line}"));
        assert_eq!(outcome, Ok(()), "{line}");
        let is_own = |it: &&(String, Vec<Arg>)| format!("{line} ").starts_with(&format!("{} ", it.0));
        let (path, options) = all.iter().filter(is_own).max_by_key(|it| it.0.len()).unwrap();
        for option in options.iter().filter(|it| !it.is_positional()) {
            let long = format!("--{}", option.get_long().unwrap());
            let mut more = vec![long.clone()];
            if !matches!(option.get_action(), ArgAction::SetTrue | ArgAction::Count) {
                more.push(value(option));
            }
            // What a launcher starts comes last.
            let place = if path == "launch" { 1 } else { words.len() };
            let line = [&words[..place], &more, &words[place..]].concat();
            // What the command line itself does not take is refused.
            let Some((after, outcome)) = read(&line) else { continue };
            let (obeyed, refused): &mut (u32, u32) = counts.entry((path, long.clone())).or_default();
            match outcome {
                Ok(()) => {
                    assert_ne!(after, before, "{line:?} asks for the same as without {long}");
                    *obeyed += 1;
                }
                Err(words) => {
                    assert!(words.starts_with(&format!("`{long}` goes with ")), "{words}");
                    *refused += 1;
                }
            }
        }
    }
    let mut never = Vec::new();
    for row in ROWS {
        for path in row.commands {
            let (_, options) = all.iter().find(|it| it.0 == *path).unwrap();
            for option in options.iter().filter(|it| row.options.contains(&it.get_id().as_str())) {
                // What has to be given stands in every line.
                let Some(long) = option.get_long().filter(|_| !option.is_required_set()) else { continue };
                let count = counts.iter().find(|it| it.0.0 == path && it.0.1 == format!("--{long}"));
                // One of two that exclude each other and of which one is needed stands in a line of its own.
                let stands = LINES.iter().any(|line| {
                    line.starts_with(path) && line.split(' ').any(|word| word == format!("--{long}"))
                });
                if count.is_none() && !stands {
                    never.push(format!("{path} --{long}"));
                }
            }
        }
    }
    assert!(never.is_empty(), "no line of this test gives these to anything: {never:?}");
}

#[test]
fn what_means_nothing_is_named_with_what_it_goes_with() {
    let train = "plan m.onnx --machine m --mode train --loss l";
    let cases = [
        (
            "plan m.onnx --machine m --mode train --loss l --stages 2 --stop-after raise",
            "`--stop-after` goes with what is made here: `import`, `plan`, not `raise`",
        ),
        (
            "plan m.onnx --machine m --mode train --loss l --stages auto --dump-after import",
            "`--dump-after` goes with what is made here: `plan`, not `import`",
        ),
        (
            "plan m.onnx --machine m --stop-after train",
            "`--stop-after` goes with what is made here: `import`, `raise`, `plan`, not `train`",
        ),
        (
            "plan m.onnx --machine m --stop-after lower",
            "`--stop-after` goes with what is made here: `import`, `raise`, `plan`, not `lower`",
        ),
        (
            "run p.json --stop-after import",
            "`--stop-after` goes with what is made here: `plan`, `lower`, not `import`",
        ),
        ("kernels p.json --arch sm_100a", "`--arch` goes with `--out`"),
        ("check p.json --dump-after plan", "`--dump-after` goes with what is made here: `lower`, not `plan`"),
        ("plan m.onnx --machine m --mode generate --stages 2", "`--stages` goes with `--mode train`"),
        ("plan m.onnx --machine m --mode generate --clip 1", "`--clip` goes with `--mode train`"),
        ("plan m.onnx --machine m --microbatches 4", "`--microbatches` goes with `--mode train`"),
        ("plan m.onnx --machine m --loss l", "`--loss` goes with `--mode train`"),
        ("plan m.onnx --machine m --precision file", "`--precision` goes with `--mode train`"),
        ("plan m.onnx --machine m --stages auto", "`--stages` goes with `--mode train`"),
        ("plan m.onnx --machine m --betas 0.5,0.6", "`--betas` goes with `--optimizer adamw`"),
        (
            &format!("{train} --optimizer sgd --momentum 0.5"),
            "`--momentum` goes with `--optimizer sgd-momentum`",
        ),
        ("plan m.onnx --machine m --mode generate --pin o=[a,-,-]", "`--pin` goes with plans of one program"),
        (
            "plan m.onnx --machine m --mode generate --inputs i.npz",
            "`--inputs` goes with sizes that are said",
        ),
        ("plan m.onnx --machine m --context 4", "`--context` goes with `--mode generate`"),
        (&format!("{train} --global-batch 4"), "`--global-batch` goes with `--stages auto`"),
        (&format!("{train} --stages 2 --phases apart"), "`--phases` goes with `--mode train` without stages"),
        (&format!("{train} --stages auto --recompute full"), "`--recompute` goes with `--mode train` where"),
        (&format!("{train} --stages auto --inputs i.npz"), "`--inputs` goes with sizes that are said"),
        (
            &format!("{train} --stages auto --schedule gpipe"),
            "`--schedule` goes with `--mode train --stages N`",
        ),
        (
            "sweep m.onnx --machine m --over devices=1,2 -o p.json",
            "`--output` goes with `plan`: a sweep makes",
        ),
        ("sweep m.onnx --machine m --over devices=1,2 --devices 4", "`--devices` goes with a sweep over"),
        ("sweep m.onnx --machine m --over devices=1,2 --stages 4", "`--stages` goes with"),
        ("sweep m.onnx --machine m --over batch=1,2 --context 4", "`--context` goes with `--mode generate`"),
        ("run p.json --in-time never", "`--in-time` goes with a model; a plan has decided that already"),
        ("run m.onnx --libraries l", "`--libraries` goes with `--device cuda`"),
        ("generate p.json --prompt-ids 1 --seed 3", "`--seed` goes with `--temperature` above 0"),
        ("train p.json --data d --steps 1 --lr 1 --min-lr 1", "`--min-lr` goes with `--schedule linear`"),
        ("validate --rounds 3", "`--rounds` goes with `--local`"),
        ("calibrate --again", "`--again` goes with `--device cuda`"),
        ("machines show m --dump-after plan", "`--dump-after` goes with `run`, `plan`, `import`"),
        ("check p.json --stop-after lower", "`--stop-after` goes with `run`, `plan`, `import`, `train`"),
    ];
    for (line, expected) in cases {
        let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        let said = read(&words).unwrap_or_else(|| panic!("{line}")).1.unwrap_err();
        assert!(said.starts_with(expected), "{line}: {said}");
    }
}
