//! Ranks that are killed, stopped, or have no room: all end, one line says why, and a checkpoint is
//! left to go on from.

use std::fs;
use std::io::Read;
use std::path::Path;
use std::process::{Child, Command};
use std::thread;
use std::time::Duration;

use super::{Folder, children, complaint, hit, hit_after, launch, plan, process, shardloom, signal, words};

/// A number below another one: where a rank is hit is meant to differ from run to run.
fn some(below: u32) -> u32 {
    let mut bytes = [0; 4];
    fs::File::open("/dev/urandom").unwrap().read_exact(&mut bytes).unwrap();
    u32::from_le_bytes(bytes) % below
}

fn blow<'a>(name: &'a str, rank: u32) -> impl Fn(&Child) + 'a {
    // In the middle of a step.
    let pause = Duration::from_millis(some(300).into());
    move |launcher| {
        thread::sleep(pause);
        signal(name, &process(launcher, &format!("SHARDLOOM_RANK={rank}")));
    }
}

#[test]
fn all_end_when_any_rank_is_killed() {
    // The first rank leads: it is killed too.
    for rank in [0, 1 + some(3)] {
        let folder = Folder::new(&format!("killed-{rank}"));
        let launcher = launch(4, &[], &folder.training(plan(rank == 0), "hit", "100000"));
        let done = hit(launcher, 3, &blow("-KILL", rank));
        assert_eq!(done.status.code(), Some(5), "{}", words(&done));
        let first = u32::from(rank == 0);
        let line = complaint(&done);
        assert!(line.starts_with(&format!("[{first}] error: rank {rank} on `")), "{line}");
        assert!(line.contains("is gone: its connection has ended; what each rank did last is in "), "{line}");
        assert!(
            words(&done).contains(&format!("launch: rank {rank} was ended by signal 9")),
            "{}",
            words(&done)
        );
        assert!(!Path::new(&folder.path("hit.safetensors")).exists());
        folder.newest("hit");
        for other in (0..4).filter(|it| *it != rank) {
            let record = fs::read_to_string(folder.path(&format!("hit/flight/rank-{other}.txt"))).unwrap();
            assert!(record.contains("micro-batch ") && record.contains("waits for"), "{record}");
        }
    }
}

/// The plans of prompts and of single tokens are two programs: what the other rank did last is said by the
/// words of the one that it was in.
#[test]
fn all_end_when_a_rank_is_killed_that_makes_tokens() {
    let folder = Folder::new("killed-tokens");
    let (plan, flight) = (folder.decoding("100000"), folder.path("flight"));
    // They go on until one is killed.
    let (prompts, most) =
        (["--prompt-ids", "1,2,3,4,5", "--prompt-ids", "6,7"], ["--max-new-tokens", "90000"]);
    let arguments = [&["generate", &plan, "--flight", &flight][..], &prompts, &most].concat();
    let arguments: Vec<String> = arguments.into_iter().map(str::to_owned).collect();
    let lines = std::cell::Cell::new(0);
    let some_tokens = |_: &str| {
        lines.set(lines.get() + 1);
        lines.get() == 5
    };
    let done = hit_after(launch(2, &[], &arguments), &some_tokens, &blow("-KILL", 1));
    assert_eq!(done.status.code(), Some(5), "{}", words(&done));
    let line = complaint(&done);
    assert!(
        line.starts_with("[0] error: rank 1 on `") && line.contains("its connection has ended"),
        "{line}"
    );
    let record = fs::read_to_string(folder.path("flight/rank-0.txt")).unwrap();
    // A query of one token, of a cache with room for all.
    let last = record.lines().rfind(|line| line.contains("Attention(")).unwrap();
    assert!(last.contains("[0/2,0/4,0/1,0/8]") && last.contains("[0/2,0/2,0/100000,0/8]"), "{last}");
    assert!(last.contains("program 0  step "), "{last}");
}

/// Both are mostly waiting: one test that waits for both leaves a processor to others.
#[test]
fn ranks_that_give_no_sign_of_life_or_do_not_go_on_are_named() {
    thread::scope(|scope| [is_lost, does_not_go_on].map(|it| scope.spawn(it)).map(|it| it.join().unwrap()));
}

/// A rank that gives no sign of life is lost.
fn is_lost() {
    let (folder, rank) = (Folder::new("stopped"), some(4));
    let mut arguments = folder.training(plan(true), "hit", "100000");
    arguments.extend(["--lost-after", "4"].map(str::to_owned));
    let done = hit(launch(4, &[], &arguments), 1, &blow("-STOP", rank));
    assert_eq!(done.status.code(), Some(5), "{}", words(&done));
    let line = complaint(&done);
    assert!(line.contains(&format!("error: rank {rank} on `")), "{line}");
    assert!(line.contains("has given no sign of life for 4 s"), "{line}");
}

/// A rank that lives and does not go on is named.
fn does_not_go_on() {
    let folder = Folder::new("hangs");
    let mut arguments = folder.training(plan(false), "hit", "2");
    // The first rank writes its log to a pipe that nobody reads.
    assert!(Command::new("mkfifo").arg(folder.path("hit.jsonl")).status().unwrap().success());
    arguments.extend(["--wait-limit", "4"].map(str::to_owned));
    let done = launch(4, &[], &arguments).output().unwrap();
    assert_eq!(done.status.code(), Some(6), "{}", words(&done));
    let line = complaint(&done);
    assert!(
        line.contains("error: rank 0 on `") && line.contains("has not gone on: it is in step 0"),
        "{line}"
    );
}

#[test]
fn what_is_started_again_ends_with_the_same_bits() {
    let (folder, plan) = (Folder::new("again"), plan(false));
    let arguments = folder.training(plan, "threads", "6");
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    assert!(shardloom(&arguments).output().unwrap().status.success());
    let mut arguments = folder.training(plan, "again", "6");
    arguments.push("--continue".to_owned());
    let rank = some(4);
    let done = hit(launch(4, &["--restarts", "2"], &arguments), 3, &blow("-KILL", rank));
    assert!(done.status.success(), "{}", words(&done));
    assert!(words(&done).contains(&format!("launch: rank {rank} was ended by signal 9; start 1 of 2 again")));
    assert!(folder.bytes("again.safetensors") == folder.bytes("threads.safetensors"));
    assert_eq!(folder.losses("again"), folder.losses("threads"));
}

#[test]
fn where_there_is_no_room_the_last_checkpoint_stays() {
    let (folder, plan) = (Folder::new("room"), plan(false));
    let done = launch(4, &[], &folder.training(plan, "full", "2")).output().unwrap();
    assert!(done.status.success(), "{}", words(&done));
    let before = folder.bytes("full/step-000002/parameter.safetensors");
    let mut arguments = folder.training(plan, "full", "4");
    arguments.push("--continue".to_owned());
    // No file may be longer than a few blocks: as on a full disk, it can be begun and not be written.
    let mut limited = Command::new("sh");
    limited.args(["-c", "ulimit -f 40; exec \"$@\"", "sh", env!("CARGO_BIN_EXE_shardloom")]);
    let done = limited.args(["launch", "-n", "4"]).args(&arguments).output().unwrap();
    assert_eq!(done.status.code(), Some(7), "{}", words(&done));
    let line = complaint(&done);
    assert!(line.contains("cannot be written: File too large"), "{line}");
    assert_eq!(folder.newest("full"), "full/step-000002");
    assert!(folder.bytes("full/step-000002/parameter.safetensors") == before);
    let mut left = fs::read_dir(folder.path("full")).unwrap();
    assert!(!left.any(|it| it.unwrap().file_name().into_string().unwrap().starts_with(".step")));
    // With room it goes on.
    let done = launch(4, &[], &arguments).output().unwrap();
    assert!(done.status.success(), "{}", words(&done));
    assert_eq!(folder.newest("full"), "full/step-000004");
}

#[test]
fn no_rank_outlives_its_launcher() {
    for (name, code) in [("-TERM", Some(143)), ("-KILL", None)] {
        let folder = Folder::new(&format!("launcher{name}"));
        let launcher = launch(4, &[], &folder.training(plan(false), "hit", "100000"));
        let ranks = std::cell::RefCell::new(Vec::new());
        let done = hit(launcher, 1, &|launcher| {
            *ranks.borrow_mut() = children(launcher.id());
            signal(name, &launcher.id().to_string());
        });
        assert_eq!(done.status.code(), code, "{}", words(&done));
        assert!(!words(&done).contains("error: "), "{}", words(&done));
        let ranks = ranks.into_inner();
        assert_eq!(ranks.len(), 4);
        let program = env!("CARGO_BIN_EXE_shardloom");
        let lives =
            |id: &String| fs::read_link(format!("/proc/{id}/exe")).is_ok_and(|it| it == Path::new(program));
        let ended = (0..3000).any(|_| {
            thread::sleep(Duration::from_millis(20));
            !ranks.iter().any(lives)
        });
        assert!(ended, "some of {ranks:?} live");
    }
}
