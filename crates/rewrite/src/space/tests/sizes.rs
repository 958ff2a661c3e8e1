//! How large the e-graphs of transformers' blocks are, with time steps and without.

use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;

use super::*;

/// A block as GPT-2 has it: norms and products with biases, causal attention, GELU.
fn gpt(batch: u64, sequence: u64, hidden: u64, heads: u64) -> (Graph, [ValueId; 2]) {
    let size = hidden / heads;
    let mut it = Draft(Graph::default());
    let x = it.input(&[batch, sequence, hidden]);
    let add = Op::Binary(Binary::Add);
    let norm = |it: &mut Draft, x: ValueId| {
        let [scale, bias] = [0, 0].map(|_| it.weight(&[hidden]));
        it.op(Op::LayerNorm { dims: 1, epsilon: Real(1e-5) }, &[x, scale, bias])
    };
    let h = norm(&mut it, x);
    let [q, k, v] = [0, 0, 0].map(|_| {
        let (w, bias) = (it.weight(&[hidden, heads, size]), it.weight(&[1, heads, 1, size]));
        let made = it.contract("abk", "khd", "ahbd", &[h, w]);
        it.op(add.clone(), &[made, bias])
    });
    let attention = Attention {
        scale: Real(0.1),
        causal: true,
        softcap: Real(0.0),
        window: None,
        blind: Blind::Zero,
        sinks: false,
        statistics: false,
    };
    let a = it.op(Op::Attention(attention), &[q, k, v]);
    let (w, bias) = (it.weight(&[heads, size, hidden]), it.weight(&[hidden]));
    let o = it.contract("ahbd", "hdk", "abk", &[a, w]);
    let o = it.op(add.clone(), &[o, bias]);
    let x1 = it.op(add.clone(), &[x, o]);
    let h = norm(&mut it, x1);
    let (up, bias) = (it.weight(&[hidden, 4 * hidden]), it.weight(&[4 * hidden]));
    let u = it.contract("abk", "kn", "abn", &[h, up]);
    let u = it.op(add.clone(), &[u, bias]);
    let u = it.op(Op::Unary(Unary::Gelu), &[u]);
    let (down, bias) = (it.weight(&[4 * hidden, hidden]), it.weight(&[hidden]));
    let d = it.contract("abk", "kn", "abn", &[u, down]);
    let d = it.op(add.clone(), &[d, bias]);
    let y = it.op(add, &[x1, d]);
    it.0.outputs.push(planner_ir::Output { name: "y".to_owned(), value: y });
    (it.0, [x, y])
}

/// The head of the table on the page.
const HEAD: &str = "| block | mesh | nodes | classes | choices |\n|---|---|---|---|---|\n";

/// The page on space and time says what rules in time add; with `BLESS=1` it is rewritten.
#[test]
fn the_page_on_space_and_time_says_what_time_adds() {
    let gpt = gpt(8, 1024, 768, 12);
    // The sizes of Llama 2 with 70 billion parameters.
    let llama = block(8, 1024, 8192, 64, 8, 28672);
    let mut rows = String::new();
    for (name, (graph, ends)) in [("GPT-2", &gpt), ("Llama 2 70B", &llama)] {
        for sizes in [&[2][..], &[4], &[2, 2], &[2, 4]] {
            let counts = [Steps::One, Steps::Offered].map(|steps| {
                let offer = Offer { steps, ..Offer::default() };
                let space = space(graph, &Mesh::of_sizes(sizes), ends, offer).expect("is sound");
                assert!(space.statistics.saturated);
                let choices: usize = space.choices.iter().map(|it| it.len()).sum();
                [space.statistics.nodes, space.statistics.classes, choices]
            });
            let mesh = sizes.iter().map(u64::to_string).collect::<Vec<_>>().join("x");
            write!(rows, "| {name} | {mesh} ").unwrap();
            for (one, timed) in counts[0].into_iter().zip(counts[1]) {
                write!(rows, "| {one} → {timed} ").unwrap();
            }
            rows += "|\n";
        }
    }
    let path: PathBuf =
        [env!("CARGO_MANIFEST_DIR"), "..", "..", "docs", "space-and-time.md"].iter().collect();
    let page = fs::read_to_string(&path).unwrap();
    let (before, rest) = page.split_once(HEAD).expect("the page has the table");
    let rows_before: usize =
        rest.split_inclusive('\n').take_while(|line| line.starts_with('|')).map(str::len).sum();
    let after = &rest[rows_before..];
    let expected = format!("{before}{HEAD}{rows}{after}");
    if std::env::var_os("BLESS").is_some() {
        fs::write(&path, &expected).unwrap();
        return;
    }
    assert!(page == expected, "the page is not what it should be (BLESS=1 rewrites it):\n{rows}");
}

/// Products of one value by as many weights.
fn products(many: usize) -> Graph {
    let mut it = Draft(Graph::default());
    let x = it.input(&[64, 64]);
    for _ in 0..many {
        let w = it.weight(&[64, 64]);
        it.contract("mk", "kn", "mn", &[x, w]);
    }
    it.0
}

#[test]
fn what_is_too_large_is_known_before_it_is_built() {
    let (mesh, offer) = (Mesh::of_sizes(&[2, 2]), Offer::default());
    let (graph, ends) = gpt(8, 1024, 768, 12);
    for (graph, ends) in [(graph, &ends[..]), (products(20), &[])] {
        let least = least_terms(&graph, &mut Facts::new(&graph, &mesh, ends, offer, Alike::default()));
        let nodes = space(&graph, &mesh, ends, offer).unwrap().statistics.nodes;
        assert!(least <= nodes && nodes < 2 * least, "{least} of {nodes}");
    }
    let mut known = Alike::default();
    let refused = saturated(&products(20_000), &mesh, &[], offer, &mut known);
    assert_eq!(refused.err(), Some(SpaceError::Limit(NODE_LIMIT)));
    // What was found out of how one of them is split is handed on.
    let one = known.partitions.ranks().len();
    assert!(one > 10 && one < 10_000, "{one}");
}
