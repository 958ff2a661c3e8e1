//! The cases of the paper's artifact, as a file outside the repository has them.

use std::fs;

use cost_models::units::{BytesPerSecond, Seconds, exact as number};

use super::outside::outside;
use super::world::{pair, value};
use crate::{Choice, Network, Order, Policy, Side, Strategy, reshard, simulate};

/// Between nodes a gigabyte takes a second; inside nothing takes any time to speak of.
const NETWORK: Network =
    Network { between: BytesPerSecond(1e9), inside: BytesPerSecond(1e15), latency: Seconds(0.0) };

/// The rows of a file, by column; nothing where no data are outside.
fn rows(name: &str) -> Vec<Vec<(String, String)>> {
    let Some(path) = outside(&format!("reference/data/{name}")) else { return vec![] };
    let text = fs::read_to_string(path).unwrap();
    let mut lines = text.lines().map(fields);
    let head = lines.next().unwrap();
    lines.map(|line| head.iter().cloned().zip(line).collect()).collect()
}

/// The fields of a line; commas between quotes are theirs.
fn fields(line: &str) -> Vec<String> {
    let parts = line.split('"').enumerate();
    let marked: String = parts
        .map(|(place, part)| if place % 2 == 0 { part.replace(',', "\n") } else { part.to_owned() })
        .collect();
    marked.split('\n').map(str::to_owned).collect()
}

fn field<'a>(row: &'a [(String, String)], name: &str) -> &'a str {
    &row.iter().find(|it| it.0 == name).unwrap_or_else(|| panic!("no column {name}")).1
}

/// The numbers in a text.
fn numbers(text: &str) -> Vec<u64> {
    text.split(|it: char| !it.is_ascii_digit()).filter_map(|it| it.parse().ok()).collect()
}

/// The axes of each dimension of a text such as `('R', (0, 1), 'R')`.
fn axes(text: &str) -> Vec<Vec<usize>> {
    let inner = text.trim_start_matches('(').replace("'R'", "()");
    let inner = if text.starts_with("((") { format!("({inner}") } else { inner };
    let parts = inner.split('(').skip(1).map(|it| it.split(')').next().unwrap());
    parts.map(|it| numbers(it).into_iter().map(|axis| usize::try_from(axis).unwrap()).collect()).collect()
}

/// The sides of a case.
fn sides(row: &[(String, String)]) -> (Side, Side) {
    let mesh = |name: &str| numbers(field(row, name));
    let spec = |name: &str| axes(field(row, name));
    let (have, need) = (spec("src_spec"), spec("dst_spec"));
    let have: Vec<&[usize]> = have.iter().map(Vec::as_slice).collect();
    let need: Vec<&[usize]> = need.iter().map(Vec::as_slice).collect();
    pair(&mesh("src_mesh"), &have, &mesh("dst_mesh"), &need, 4)
}

fn close(found: f64, row: &[(String, String)], name: &str) {
    let said: f64 = field(row, name).parse().unwrap_or_else(|_| panic!("{name}"));
    assert!((found - said).abs() <= 1e-3 * said, "{} {name}: {found}, not {said}", field(row, "case"));
}

#[test]
fn the_cases_of_the_artifact_end_at_their_bounds() {
    let rows = rows("crossmesh_artifact_cases.csv");
    assert!(rows.is_empty() || rows.len() == 8);
    for row in &rows {
        let type_ = value(&numbers(field(row, "shape")));
        let (from, to) = sides(row);
        let bring = |strategy, order| {
            let policy = Policy { strategy: Choice::Only(strategy), order, most_chunks: 64 };
            let found = reshard(&type_, &from, &to, &NETWORK, &policy).unwrap();
            let timeline = simulate(&found.messages, &from, &to, &NETWORK);
            (found, timeline)
        };
        let gigabytes = |bytes: u64| number(bytes) / 1e9;

        let (found, timeline) = bring(Strategy::Broadcast, Order::Scheduled);
        assert_eq!(found.tasks.len().to_string(), field(row, "unit_tasks"));
        let bound = gigabytes(found.schedule.bound);
        let said: Vec<f64> = ["lower_bound_GB_per_host_in", "lower_bound_GB_per_src_host_out"]
            .map(|name| field(row, name).parse().unwrap())
            .to_vec();
        assert!((bound - said[0].max(said[1])).abs() < 1e-3, "{bound} {said:?}");
        assert!(timeline.end.0 <= 1.05 * bound, "{}: {}", field(row, "case"), timeline.end);
        assert!(found.schedule.meets_bound());
        close(gigabytes(found.schedule.end), row, "broadcast_makespan_GB_random_greedy");
        if !field(row, "broadcast_makespan_GB_dfs3s").is_empty() {
            close(gigabytes(found.schedule.end), row, "broadcast_makespan_GB_dfs3s");
        }

        let (naive, slower) = bring(Strategy::Broadcast, Order::Listed);
        close(gigabytes(naive.schedule.end), row, "broadcast_makespan_GB_naive");
        // Chunks of successive unit tasks follow each other closely, or end a little later.
        assert!(
            slower.end.0 >= timeline.end.0 - 1e-9 && slower.end.0 <= 1.05 * gigabytes(naive.schedule.end)
        );

        let (_, single) = bring(Strategy::SendReceive, Order::Scheduled);
        let most = |bytes: &std::collections::BTreeMap<u64, u64>| gigabytes(*bytes.values().max().unwrap());
        close(most(&single.entered), row, "sendrecv_max_GB_in_per_host");
        close(most(&single.left), row, "sendrecv_max_GB_out_per_host");
        assert!(single.end.0 >= most(&single.left) - 1e-9);
    }
}

#[test]
fn one_device_to_many_takes_the_derived_multiples() {
    let rows = rows("crossmesh_artifact_1_to_m.csv");
    assert!(rows.is_empty() || rows.len() == 7);
    for row in &rows {
        let count = |name: &str| field(row, name).parse::<u64>().unwrap();
        let type_ = value(&[count("tensor_elems")]);
        let (nodes, devices) = (count("dst_hosts"), count("dst_gpus_per_host"));
        let (from, to) = pair(&[1], &[&[]], &[nodes, devices], &[&[]], devices);
        let t = number(type_.bytes()) / NETWORK.between.0;
        let taken = |strategy| {
            let policy = Policy { strategy: Choice::Only(strategy), ..Policy::default() };
            let found = reshard(&type_, &from, &to, &NETWORK, &policy).unwrap();
            simulate(&found.messages, &from, &to, &NETWORK).end.0 / t
        };
        let columns = [
            (Strategy::SendReceive, "derived_interhost_time_over_t_sendrecv"),
            (Strategy::LocalGather, "derived_sendrecv_plus_local_allgather"),
            (Strategy::Broadcast, "derived_broadcast_K64"),
        ];
        for (strategy, column) in columns {
            let (found, said): (f64, f64) = (taken(strategy), field(row, column).parse().unwrap());
            assert!((found - said).abs() < 1e-3, "{nodes} x {devices} {column}: {found}, not {said}");
        }
        // A second passing over the links is all that gathering by all adds.
        let all = taken(Strategy::GlobalGather);
        let (least, most) = (1.0, 1.0 + number(nodes - 1) / number(nodes));
        assert!(all > least - 1e-6 && all < most + 1e-3, "{nodes} x {devices}: {all}");
    }
}
