//! Instructions in loops of kernels: none divides numbers of 64 bits, for that is a hundred instructions each.
//!
//! A loop is what comes back to itself: the blocks of a kernel's PTX from which control may get to them again.

use std::collections::BTreeMap;

use crate::corpus::expect_none;

/// What divides numbers of 64 bits.
const DIVISIONS: [&str; 4] = ["div.u64", "div.s64", "rem.u64", "rem.s64"];

/// Instructions that follow each other, and the labels of those that may come next.
#[derive(Default)]
struct Block<'a> {
    instructions: Vec<&'a str>,
    next: Vec<usize>,
}

/// The blocks of a kernel's text.
fn blocks(text: &str) -> Vec<Block<'_>> {
    let mut blocks = vec![Block::default()];
    let (mut labels, mut jumps) = (BTreeMap::new(), Vec::new());
    let lines = text.lines().map(|it| it.split("//").next().unwrap_or_default().trim());
    for line in lines.filter(|it| !it.is_empty() && !it.starts_with('.')) {
        let last = blocks.len() - 1;
        if let Some(label) = line.strip_suffix(':') {
            blocks[last].next.push(last + 1);
            labels.insert(label, last + 1);
            blocks.push(Block::default());
            continue;
        }
        blocks[last].instructions.push(line);
        let (guarded, instruction) = match line.strip_prefix('@').and_then(|it| it.split_once(' ')) {
            Some((_, rest)) => (true, rest.trim()),
            None => (false, line),
        };
        let ends = instruction.starts_with("bra") || instruction.starts_with("ret");
        if ends {
            if let Some(label) = instruction.strip_prefix("bra").and_then(|it| it.split_whitespace().last()) {
                jumps.push((last, label.trim_end_matches(';')));
            }
            if guarded {
                blocks[last].next.push(last + 1);
            }
            // What follows a jump is reached from it alone if the jump has a guard.
            blocks.push(Block::default());
        }
        assert!(!instruction.starts_with("brx"), "a jump by a table, which nothing here follows: {line}");
    }
    for (from, label) in jumps {
        blocks[from].next.push(labels[label]);
    }
    let count = blocks.len();
    blocks.iter_mut().for_each(|it| it.next.retain(|&next| next < count));
    blocks
}

/// Whether control may get from a block to itself.
fn comes_back(blocks: &[Block<'_>], start: usize) -> bool {
    let (mut seen, mut open) = (vec![false; blocks.len()], blocks[start].next.clone());
    while let Some(block) = open.pop() {
        if block == start {
            return true;
        }
        if !std::mem::replace(&mut seen[block], true) {
            open.extend(&blocks[block].next);
        }
    }
    false
}

/// The kernels of a program that divide numbers of 64 bits in a loop, with how often they do.
pub(crate) fn divisions(ptx: &str) -> BTreeMap<String, usize> {
    let mut found = BTreeMap::new();
    for text in ptx.split(".visible .entry ").skip(1) {
        let name = text.split('(').next().unwrap_or_default();
        let body = text.split_once('{').map_or("", |it| it.1);
        let body = body.split("\n}").next().unwrap_or_default();
        if !DIVISIONS.iter().any(|it| body.contains(it)) {
            continue;
        }
        let blocks = blocks(body);
        let divides = |it: &str| DIVISIONS.iter().any(|division| it.contains(division));
        let count = |at: usize| blocks[at].instructions.iter().filter(|it| divides(it)).count();
        let all = (0..blocks.len()).map(|at| (at, count(at)));
        let count: usize =
            all.filter(|&(at, count)| count > 0 && comes_back(&blocks, at)).map(|it| it.1).sum();
        if count > 0 {
            found.insert(name.to_owned(), count);
        }
    }
    found
}

/// A kernel that divides: before a loop, or in it, where it lies behind the rest of the loop.
fn dividing(before: &str, within: &str) -> String {
    format!(
        ".version 8.0
.visible .entry kernel(
	.param .u64 kernel_param_0
)
{{
	.reg .pred %p<3>;
	{before}
	bra.uni \t$L__BB0_1;
$L__BB0_3:
	{within}
	bra.uni \t$L__BB0_2;
$L__BB0_1:
	@%p1 bra \t$L__BB0_4;
	@%p2 bra \t$L__BB0_3;
$L__BB0_2:
	add.s64 \t%rd1, %rd1, 1;
	bra.uni \t$L__BB0_1;
$L__BB0_4:
	ret;
}}
"
    )
}

#[test]
fn divisions_of_64_bits_are_found_in_loops_alone() {
    let mut faults = Vec::new();
    for division in DIVISIONS {
        let line = format!("{division} \t%rd1, %rd2, %rd3;");
        if !divisions(&dividing(&line, "add.s64 \t%rd2, %rd1, 1;")).is_empty() {
            faults.push(format!("{division} before a loop is in it"));
        }
        if divisions(&dividing("", &line)) != BTreeMap::from([("kernel".to_owned(), 1)]) {
            faults.push(format!("{division} in a loop is not found"));
        }
    }
    if !divisions(&dividing("", "div.u32 \t%r1, %r2, %r3;")).is_empty() {
        faults.push("a division of 32 bits is one of 64".to_owned());
    }
    expect_none(&faults);
}
