//! Environments, and what they say.

use crate::arguments::ClusterArguments;
use crate::contract::Launched;
use crate::hosts::hosts;
use crate::nodes::Node;
use crate::token::token;

/// What an environment says of a process: rank, size, place; or why it makes no sense.
fn said(environment: &str) -> Result<Option<Launched>, String> {
    Launched::of(&|name| variable(environment, name)).map_err(|error| {
        assert_eq!(error.code(), 2);
        error.to_string()
    })
}

fn variable(environment: &str, name: &str) -> Option<String> {
    let mut all = environment.split_whitespace().filter_map(|it| it.split_once('='));
    all.find(|it| it.0 == name).map(|it| it.1.to_owned())
}

fn rank_and_size(environment: &str) -> Option<(u64, u64)> {
    said(environment).unwrap().map(|it| (it.rank, it.size))
}

fn place(environment: &str) -> Option<String> {
    said(environment).unwrap().unwrap().place.map(|(host, port)| format!("{host}:{port}"))
}

const TORCH: &str = "RANK=3 WORLD_SIZE=4 MASTER_ADDR=a MASTER_PORT=5";

#[test]
fn every_launcher_says_rank_and_size() {
    assert_eq!(said(""), Ok(None));
    let all = [
        "SHARDLOOM_RANK=3 SHARDLOOM_SIZE=4 SHARDLOOM_ADDRESS=a SHARDLOOM_PORT=5",
        TORCH,
        "OMPI_COMM_WORLD_RANK=3 OMPI_COMM_WORLD_SIZE=4",
        "PMI_RANK=3 PMI_SIZE=4",
        "SLURM_STEP_NODELIST=a SLURM_PROCID=3 SLURM_NTASKS=4 SLURM_JOB_ID=1",
        "SLURM_STEP_NODELIST=a SLURM_PROCID=3 SLURM_NTASKS=9 SLURM_STEP_NUM_TASKS=4",
    ];
    for environment in all {
        assert_eq!(rank_and_size(environment), Some((3, 4)), "{environment}");
        // Those that agree are no contradiction, and Slurm starts launchers.
        let both = format!("{environment} PMI_RANK=3 PMI_SIZE=4");
        assert_eq!(rank_and_size(&both), Some((3, 4)), "{both}");
        let inside = format!("{environment} SLURM_STEP_NODELIST=b SLURM_PROCID=0 SLURM_STEP_NUM_TASKS=2");
        if !environment.contains("SLURM") {
            assert_eq!(rank_and_size(&inside), Some((3, 4)), "{inside}");
        }
        // One process is no rank among several.
        let alone = environment.replace("=3", "=0").replace("=4", "=1");
        assert_eq!(said(&alone), Ok(None), "{alone}");
    }
}

#[test]
fn what_contradicts_itself_or_is_half_there_is_refused() {
    let cases = [
        (
            "RANK=1 WORLD_SIZE=4 MASTER_ADDR=a MASTER_PORT=5 OMPI_COMM_WORLD_RANK=2 OMPI_COMM_WORLD_SIZE=4",
            "the environment contradicts itself: by torchrun (`RANK`) this process is rank 1 of 4, by Open MPI \
             (`OMPI_COMM_WORLD_RANK`) it is rank 2 of 4",
        ),
        (
            "RANK=1",
            "`RANK` is set and `WORLD_SIZE` is not: torchrun sets both; unset the one, or set the other",
        ),
        (
            "PMI_SIZE=1",
            "`PMI_SIZE` is set and `PMI_RANK` is not: a launcher that speaks PMI sets both; unset the one, or set \
             the other",
        ),
        ("RANK=x WORLD_SIZE=2", "`RANK` is `x`, expected a number"),
        ("RANK=0 WORLD_SIZE=-2", "`WORLD_SIZE` is `-2`, expected a number"),
        ("RANK=2 WORLD_SIZE=2", "`RANK` is 2, and there are 2 processes by torchrun: expected less"),
        (
            "RANK=1 WORLD_SIZE=2",
            "`RANK` is set and `MASTER_ADDR` is not: the ranks do not know where rank 0 is",
        ),
        ("RANK=1 WORLD_SIZE=2 MASTER_ADDR=a", "`MASTER_ADDR` is set and `MASTER_PORT` is not: set both"),
        ("RANK=1 WORLD_SIZE=2 MASTER_PORT=1", "`MASTER_PORT` is set and `MASTER_ADDR` is not: set both"),
        (
            "RANK=1 WORLD_SIZE=2 MASTER_ADDR=a MASTER_PORT=70000",
            "`MASTER_PORT` is `70000`, expected a port, from 1 to 65535",
        ),
        (
            "SLURM_STEP_NODELIST=a[ SLURM_PROCID=0 SLURM_STEP_NUM_TASKS=2",
            "`SLURM_STEP_NODELIST` is `a[`, expected a list of hosts",
        ),
        (
            "SHARDLOOM_RANK=0 SHARDLOOM_SIZE=18446744073709551615 SHARDLOOM_ADDRESS=a SHARDLOOM_PORT=5",
            "by shardloom launch there are 18446744073709551615 processes, expected at most 4096: each has two \
             threads and a connection for each other one",
        ),
        (
            "OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=4097",
            "by Open MPI there are 4097 processes, expected at most 4096: each has two threads and a connection \
             for each other one",
        ),
        (
            "RANK=0 WORLD_SIZE=2 MASTER_ADDR=a MASTER_PORT=5 TORCHELASTIC_RESTART_COUNT=often",
            "`TORCHELASTIC_RESTART_COUNT` is `often`, expected a number",
        ),
    ];
    for (environment, expected) in cases {
        assert_eq!(said(environment), Err(expected.to_owned()), "{environment}");
    }
}

#[test]
fn the_first_rank_is_where_the_launcher_says() {
    assert_eq!(place(TORCH).unwrap(), "a:5");
    assert_eq!(place(&format!("{TORCH} TORCHELASTIC_USE_AGENT_STORE=True")).unwrap(), "a:6");
    assert_eq!(place(&format!("{TORCH} TORCHELASTIC_USE_AGENT_STORE=False")).unwrap(), "a:5");
    let last = TORCH.replace("PORT=5", "PORT=65535 TORCHELASTIC_USE_AGENT_STORE=True");
    assert_eq!(place(&last).unwrap(), "a:65534");
    // By hand under any of them.
    let by_hand = "SHARDLOOM_ADDRESS=b SHARDLOOM_PORT=6";
    for environment in [TORCH, "PMI_RANK=0 PMI_SIZE=2", "OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=2"] {
        assert_eq!(place(&format!("{environment} {by_hand}")).unwrap(), "b:6");
    }
    assert_eq!(place("PMI_RANK=0 PMI_SIZE=2"), None);
    let open = "OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=2 PMIX_NAMESPACE=77 OMPI_COMM_WORLD_LOCAL_SIZE";
    assert!(place(&format!("{open}=2")).unwrap().starts_with("127.0.0.1:6"));
    assert_eq!(place(&format!("{open}=1")), None);
    let slurm = |job: u64, step: u64| {
        let numbers = format!("SLURM_JOB_ID={job} SLURM_STEP_ID={step}");
        place(&format!("SLURM_STEP_NODELIST=n[07-09],m SLURM_PROCID=1 SLURM_STEP_NUM_TASKS=2 {numbers}"))
            .unwrap()
    };
    assert_eq!([slurm(0, 0), slurm(4095, 0), slurm(4096, 1)], ["n07:61440", "n07:65535", "n07:61441"]);
}

/// As whom a process joins others over TCP: where rank 0 listens; or why it does not.
fn joins(environment: &str, interface: Option<&str>) -> Result<String, String> {
    let variable = |name: &str| variable(environment, name);
    let arguments = ClusterArguments {
        interface: interface.map(|it| it.parse().unwrap()),
        wait_limit: None,
        lost_after: None,
        join_limit: None,
        transport: None,
        flight: None,
    };
    let joining = Launched::of(&variable).unwrap().unwrap().joining(&arguments, &variable);
    joining.map(|it| format!("{}:{}", it.address, it.port)).map_err(|error| {
        assert_eq!(error.code(), 2);
        error.to_string()
    })
}

#[test]
fn ranks_of_one_host_meet_there() {
    let (here, slurm) = (format!("{TORCH} LOCAL_WORLD_SIZE=4"), "SLURM_PROCID=1 SLURM_STEP_NUM_TASKS=2");
    assert_eq!(joins(&here, None).unwrap(), "127.0.0.1:5");
    assert_eq!(joins(&format!("SLURM_STEP_NODELIST=n7 {slurm}"), None).unwrap(), "127.0.0.1:61440");
    // What is said by hand, or by a network, is said.
    let token = "SHARDLOOM_TOKEN=0123456789abcdef";
    let by_hand = format!("{here} {token} SHARDLOOM_ADDRESS=b SHARDLOOM_PORT=6");
    assert_eq!(joins(&by_hand, None).unwrap(), "b:6");
    assert_eq!(joins(&format!("{here} {token}"), Some("10.0.0.0/8")).unwrap(), "a:5");
    assert_eq!(joins(&format!("{TORCH} {token} LOCAL_WORLD_SIZE=2"), None).unwrap(), "a:5");
}

#[test]
fn where_other_hosts_reach_ranks_there_has_to_be_a_token() {
    let on = |address: &str| TORCH.replace("ADDR=a", &format!("ADDR={address}"));
    let token = "SHARDLOOM_TOKEN=0123456789abcdef";
    for address in ["127.0.0.1", "127.1.2.3", "::1", "localhost"] {
        assert_eq!(joins(&on(address), None).unwrap(), format!("{address}:5"));
    }
    for address in ["a", "10.0.0.5", "0.0.0.0", "::"] {
        let expected = format!(
            "`SHARDLOOM_TOKEN` is not set, and ranks meet at {address}:5, where other hosts may reach them: make a \
             token for this job, such as by `openssl rand -hex 32`, and hand the same one to all of its ranks"
        );
        assert_eq!(joins(&on(address), None), Err(expected));
        assert_eq!(joins(&format!("{} {token}", on(address)), None).unwrap(), format!("{address}:5"));
    }
    // An address of loopback on another network is none.
    assert!(joins(&on("127.0.0.1"), Some("10.0.0.0/8")).is_err());
    assert!(joins(&on("127.0.0.1"), Some("127.0.0.0/8")).is_ok());
}

#[test]
fn starts_are_counted() {
    let attempt = |more: &str| said(&format!("{TORCH} {more}")).unwrap().unwrap().attempt;
    assert_eq!(attempt(""), 0);
    assert_eq!(attempt("TORCHELASTIC_RESTART_COUNT=2"), 2);
}

#[test]
fn lists_of_hosts_are_as_slurm_writes_them() {
    let all = |list: &str| hosts(list).map(|it| it.join(" "));
    let cases = [
        ("a", "a"),
        ("a,b-1.c", "a b-1.c"),
        ("node[01-03,7]", "node01 node02 node03 node7"),
        ("x,node[8-10]y,z", "x node8y node9y node10y z"),
        ("r[1-2]n[0,5]", "r1n0 r1n5 r2n0 r2n5"),
        ("n[098-101]", "n098 n099 n100 n101"),
    ];
    for (list, expected) in cases {
        assert_eq!(all(list).as_deref(), Some(expected), "{list}");
    }
    for wrong in
        ["", ",", "a,", "a[", "a]", "a[]", "a[1", "a[1-]", "a[2-1]", "a[x]", "a[[1]]", "a[1-99999999]"]
    {
        assert_eq!(all(wrong), None, "{wrong}");
    }
    assert_eq!(all("a[0-999]b[0-999]"), None);
    assert_eq!(all(&format!("a[{}1]", "0".repeat(70_000))), None);
    assert_eq!(all(&"a[0]".repeat(30_000)), None);
    arbtest::arbtest(|u| {
        let letters = b"a0,19[]-";
        let count = u.int_in_range(0..=12)?;
        let list = (0..count).map(|_| u.choose(letters).map(|it| char::from(*it)));
        // Whatever it is, it is an answer.
        let _ = hosts(&list.collect::<Result<String, _>>()?);
        Ok(())
    })
    .budget_ms(200);
}

#[test]
fn hosts_are_told_which_they_are() {
    let node =
        |environment: &str| Node::of(&|name| variable(environment, name)).map_err(|error| error.to_string());
    let alone = Node { nodes: 1, node: 0, place: None, ranks: None };
    for environment in ["", "SHARDLOOM_NODES=1", "JOB_COMPLETION_INDEX=3", "PET_NNODES=1 PET_NODE_RANK=0"] {
        assert_eq!(node(environment).unwrap(), alone, "{environment}");
    }
    let place = Some(("a".to_owned(), 5));
    let by_hand = "SHARDLOOM_NODES=4 SHARDLOOM_NODE=2 SHARDLOOM_ADDRESS=a SHARDLOOM_PORT=5";
    assert_eq!(node(by_hand).unwrap(), Node { nodes: 4, node: 2, place: place.clone(), ranks: None });
    let index = by_hand.replace("SHARDLOOM_NODE=", "JOB_COMPLETION_INDEX=");
    assert_eq!(node(&index), node(by_hand));
    let trainer = "PET_NNODES=2 PET_NODE_RANK=1 PET_MASTER_ADDR=a PET_MASTER_PORT=5 PET_NPROC_PER_NODE=8";
    assert_eq!(node(trainer).unwrap(), Node { nodes: 2, node: 1, place, ranks: Some(8) });
    assert_eq!(node(&trainer.replace("=8", "=auto")).unwrap().ranks, None);
    let refused = |environment: &str, expected: &str| assert_eq!(node(environment).unwrap_err(), expected);
    let end = "is not: which host this is has to be known";
    refused("SHARDLOOM_NODES=2", &format!("`SHARDLOOM_NODES` is set and `SHARDLOOM_NODE` {end}"));
    refused("PET_NNODES=2 PET_NODE_RANK=0", &format!("`PET_NNODES` is set and `PET_MASTER_ADDR` {end}"));
    refused(
        &by_hand.replace("NODE=2", "NODE=4"),
        "`SHARDLOOM_NODE` is 4, and there are 4 hosts: expected less",
    );
}

#[test]
fn tokens_are_the_same_for_a_job_and_for_no_other() {
    let launched = |environment: &str| said(environment).unwrap().unwrap();
    let key = |environment: &str, more: &str| {
        let all = format!("{environment} {more}");
        token(&launched(environment), &|name| variable(&all, name)).map_err(|error| error.to_string())
    };
    let other = TORCH.replace("=3", "=0");
    let secret = "SHARDLOOM_TOKEN=0123456789abcdef";
    let of = |environment: &str, more: &str| key(environment, more).map(|it| (it.key, it.is_secret)).unwrap();
    assert_eq!(of(TORCH, ""), of(&other, ""));
    assert_eq!(of(TORCH, secret), of(&other, secret));
    assert!(of(TORCH, secret).1 && !of(TORCH, "").1);
    let job = format!("{TORCH} TORCHELASTIC_RUN_ID=7");
    let all = [of(TORCH, ""), of(&job, ""), of(TORCH, secret), of(&TORCH.replace("PORT=5", "PORT=6"), "")];
    for (number, one) in all.iter().enumerate() {
        assert!(!all[..number].contains(one));
    }
    assert!(key(TORCH, "SHARDLOOM_TOKEN=short").err().unwrap().contains("has 5 characters, expected 16"));
    let both = key(TORCH, &format!("{secret} SHARDLOOM_TOKEN_FILE=a"));
    assert_eq!(both.err().unwrap(), "`SHARDLOOM_TOKEN` and `SHARDLOOM_TOKEN_FILE` are set: set one");
    let missing = key(TORCH, "SHARDLOOM_TOKEN_FILE=/no/such/file").err().unwrap();
    assert!(
        missing.starts_with("`SHARDLOOM_TOKEN_FILE` is `/no/such/file`, which cannot be read"),
        "{missing}"
    );
}
