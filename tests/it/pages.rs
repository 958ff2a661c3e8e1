//! Pages that cannot rot: commands are run and compared, lists are generated.
//!
//! A block that is marked `console` has commands, each after `$ `, and below each what it prints.
//! Commands are `shardloom` (through cargo or by name) with arguments, or `cat` with a file, and what they print may
//! be cut to size by `sed -n`, `grep` or `cut`. With `BLESS=1` pages are rewritten.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use rewrite::RuleText;

use crate::tidy::root;

/// The model that pages speak of by this name.
const LARGE: &str = "llama2_70b.onnx";

/// Where it is, packed, from the root.
const PACKED: &str = "tests/models/full/llama2_70b-fwd-bf16/model.onnx.gz";

/// Compares a page with what it should be, or rewrites it.
pub(crate) fn compare(path: &str, expected: &str) {
    let found = fs::read_to_string(root().join(path)).unwrap_or_default();
    if found == expected {
        return;
    }
    if std::env::var_os("BLESS").is_some() {
        fs::write(root().join(path), expected).unwrap();
        return;
    }
    let differs = |(found, expected): &(&str, &str)| found != expected;
    let first = found.lines().zip(expected.lines()).find(differs);
    panic!("{path} is not what it should be (BLESS=1 rewrites it): {first:?}");
}

/// Where the commands of a page are run.
struct Desk {
    /// The folder in which they leave their files.
    folder: PathBuf,
    /// What was printed, by command.
    printed: BTreeMap<String, String>,
}

impl Desk {
    fn new(page: &str) -> Self {
        let name = page.replace(['/', '.'], "-");
        let path = std::env::temp_dir().join(format!("shardloom-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Self { folder: path, printed: BTreeMap::new() }
    }

    /// An argument as a page has it, with its file where it is.
    fn place(&self, word: &str) -> String {
        let endings = [".json", ".npz", ".onnx", ".safetensors", ".svg", ".toml", ".txt", ".sh", ".py", "/"];
        let file = endings.iter().any(|ending| word.ends_with(ending));
        let folder = if word.starts_with("tests/") { root() } else { self.folder.clone() };
        if file { folder.join(word).to_str().unwrap().to_owned() } else { word.to_owned() }
    }

    /// What a command prints, cut as the page cuts it.
    fn shown(&mut self, command: &str) -> String {
        let mut parts = command.split(" | ");
        let call = parts.next().unwrap_or_default();
        if !self.printed.contains_key(call) {
            self.printed.insert(call.to_owned(), self.output(call));
        }
        let shown = parts.fold(self.printed[call].clone(), |text, tool| lines_by(tool, &text));
        assert!(!shown.is_empty(), "{command} prints nothing");
        shown
    }

    /// A text in which files are called as the page calls them.
    fn called(&self, text: String) -> String {
        let folders = [&root(), &self.folder].map(|it| format!("{}/", it.display()));
        folders.iter().fold(text, |text, folder| text.replace(folder, ""))
    }

    /// What a call prints, with files called as the page calls them.
    fn output(&self, call: &str) -> String {
        if let Some(file) = call.strip_prefix("cat ") {
            return fs::read_to_string(self.place(file)).unwrap();
        }
        let words = call.strip_prefix("cargo run --release -p shardloom -- ");
        let words = words.or(call.strip_prefix("shardloom ")).unwrap_or_else(|| panic!("not ours: {call}"));
        // What stands between quotes is one argument.
        let parts = words.split('\'').enumerate();
        let words = parts.flat_map(|(place, part)| match place % 2 {
            0 => part.split_whitespace().collect::<Vec<_>>(),
            _ => vec![part],
        });
        let arguments = words.map(|word| self.place(word));
        let arguments = ["shardloom".to_owned()].into_iter().chain(arguments);
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let code = shardloom::main_with(arguments, &mut out, &mut err);
        out.extend(err);
        let text = self.called(String::from_utf8(out).unwrap());
        // What a page shows refused is a wrong argument, which is named, or else what a file says.
        let expected = match text.strip_prefix("error: ") {
            Some(refused) if refused.starts_with("`--") => 1,
            Some(_) => 2,
            None => 0,
        };
        assert_eq!(code, expected, "{call}: {text}");
        text
    }
}

impl Drop for Desk {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// The lines that a tool of the shell lets through: `sed -n 2,5p`, `sed -n '/^from/,/^$/p'`,
/// `grep WORD` or `cut -c-80`.
fn lines_by(tool: &str, text: &str) -> String {
    let (name, rest) = tool.split_once(' ').unwrap_or((tool, ""));
    let cut: Box<dyn Fn(&str) -> String> = match (name, rest.strip_prefix("-c-")) {
        ("cut", Some(columns)) => {
            let columns: usize = columns.parse().unwrap();
            Box::new(move |line| line.chars().take(columns).collect())
        }
        _ => Box::new(str::to_owned),
    };
    let lines: Vec<&str> = match (name, rest.strip_prefix("-n ")) {
        ("cut", _) => text.lines().collect(),
        ("grep", _) => text.lines().filter(|line| line.contains(rest)).collect(),
        ("sed", Some(range)) => section(range.trim_matches('\'').trim_end_matches('p'), text),
        _ => panic!("unknown tool: {tool}"),
    };
    lines.into_iter().map(|line| cut(line).trim_end().to_owned() + "\n").collect()
}

/// The lines of a range of sed: from a number to a number, or from a beginning to an empty line.
fn section<'a>(range: &str, text: &'a str) -> Vec<&'a str> {
    if let Some(start) = range.strip_prefix("/^").and_then(|it| it.strip_suffix("/,/^$/")) {
        let from = text.lines().skip_while(|line| !line.starts_with(start));
        return from.take_while(|line| !line.is_empty()).collect();
    }
    let (first, last) = range.split_once(',').unwrap();
    let (first, last): (usize, usize) = (first.parse().unwrap(), last.parse().unwrap());
    text.lines().skip(first - 1).take(last + 1 - first).collect()
}

/// A line without what differs from run to run: times that were measured, and the last bits of
/// sums, which depend on how wide the processor's vectors are.
fn settled(line: &str) -> &str {
    if let Some(loss) = line.find("  loss ").filter(|_| line.starts_with("step ")) {
        // The number of the step, and the loss to one place.
        return line.get(..loss + "  loss 1.2".len()).unwrap_or(line);
    }
    let varies = line.starts_with("measured ") || line.starts_with("expected ");
    if varies { line.split(|it: char| it.is_ascii_digit()).next().unwrap_or_default() } else { line }
}

/// What a block prints below a command: as it is if it says the same, else as it should be.
fn renewed(said: &str, prints: &str) -> String {
    let settle =
        |text: &str| text.lines().map(|line| settled(line.trim_end()).to_owned()).collect::<Vec<_>>();
    if settle(said) == settle(prints) { said.to_owned() } else { prints.to_owned() }
}

/// Runs the commands of a page, and compares what they print and draw with what it has.
fn holds(page: &str) {
    let text = fs::read_to_string(root().join(page)).unwrap();
    let mut desk = Desk::new(page);
    compare(page, &rerun(page, &text, &mut desk));
    for entry in fs::read_dir(&desk.folder).unwrap() {
        let picture = entry.unwrap().file_name().into_string().unwrap();
        if picture.ends_with(".svg") {
            assert!(text.contains(&format!("images/{picture})")), "{page} does not show {picture}");
            let drawn = fs::read_to_string(desk.folder.join(&picture)).unwrap();
            compare(&format!("docs/images/{picture}"), &desk.called(drawn));
        }
    }
}

/// A page with what its commands print.
fn rerun(page: &str, text: &str, desk: &mut Desk) -> String {
    if text.contains(LARGE) {
        unpack(&desk.folder.join(LARGE));
    }
    let mut renewed_text = String::new();
    let mut blocks = text.split("```console\n");
    renewed_text.push_str(blocks.next().unwrap_or_default());
    for block in blocks {
        let (commands, rest) = block.split_once("```\n").unwrap_or_else(|| panic!("{page}: an open block"));
        renewed_text.push_str("```console\n");
        for part in commands.split("$ ").skip(1) {
            let (command, said) = part.split_once('\n').unwrap_or((part, ""));
            let prints = renewed(said, &desk.shown(command));
            write!(renewed_text, "$ {command}\n{prints}").unwrap();
        }
        write!(renewed_text, "```\n{rest}").unwrap();
    }
    renewed_text
}

/// Unpacks the large model.
fn unpack(to: &Path) {
    let packed = fs::read(root().join(PACKED)).unwrap();
    let mut bytes = Vec::new();
    flate2::read::GzDecoder::new(&packed[..]).read_to_end(&mut bytes).unwrap();
    fs::write(to, bytes).unwrap();
}

#[test]
fn commands_of_the_readme_print_what_it_says() {
    holds("README.md");
}

#[test]
fn commands_of_the_tour_print_what_it_says() {
    holds("docs/tour.md");
}

#[test]
fn commands_of_the_page_on_resharding_print_what_it_says() {
    holds("docs/resharding.md");
}

#[test]
fn commands_of_the_page_on_pipelines_print_and_draw_what_it_has() {
    holds("docs/pipelines.md");
    let desk = Desk::new("pictures");
    for (name, stages) in [("1f1b", "4"), ("interleaved", "8"), ("zb-h1", "4")] {
        let picture = desk.folder.join(format!("{name}.svg")).to_str().unwrap().to_owned();
        desk.output(&format!(
            "shardloom schedule {name} --stages {stages} --micro-batches 8 --message 0.25 --svg {picture}"
        ));
        compare(&format!("docs/images/pipeline-{name}.svg"), &fs::read_to_string(picture).unwrap());
    }
}

#[test]
fn the_journey_to_megatron_is_what_happens() {
    holds("docs/journeys/megatron.md");
}

#[test]
fn the_journey_to_torchtitan_is_what_happens() {
    holds("docs/journeys/torchtitan.md");
}

#[test]
fn the_journey_to_vllm_is_what_happens() {
    holds("docs/journeys/vllm.md");
}

#[test]
fn the_journey_to_a_paper_is_what_happens() {
    holds("docs/journeys/paper.md");
}

/// What agents are told to read is there: each command is run, and its JSON has the keys that its row names.
#[test]
fn keys_that_agents_are_told_of_are_there() {
    let desk = Desk::new("SKILL.md");
    let text = fs::read_to_string(root().join("SKILL.md")).unwrap();
    let mut rows = 0;
    for row in text.lines().filter(|line| line.starts_with("| `shardloom ")) {
        let words: Vec<&str> = row.split('`').skip(1).step_by(2).collect();
        let (command, keys) = words.split_first().unwrap();
        let said: serde_json::Value = serde_json::from_str(&desk.output(command)).unwrap();
        assert!(!keys.is_empty(), "{row}");
        for key in keys {
            assert!(said.get(key).is_some(), "{command} has no `{key}`");
        }
        rows += 1;
    }
    assert_eq!(rows, 8);
}

/// The raising rules as rows of a table.
fn raising(rules: &[RuleText]) -> String {
    let mut rows = String::new();
    for rule in rules {
        let list = |names: &[&str]| names.join("; ").replace('|', "\\|");
        let pattern = rule.pattern.split_whitespace().collect::<Vec<_>>().join(" ").replace('|', "\\|");
        writeln!(rows, "| {} | `{pattern}` | {} | {} |", rule.name, list(&rule.conditions), list(&rule.uses))
            .unwrap();
    }
    rows
}

#[test]
fn the_page_of_rules_lists_them_all() {
    let rules = rewrite::raise_rules();
    let page = format!(
        "\
# Rules

This page is generated from the rules themselves by `tests/it/pages.rs`.

## Partitioning

Five families, derived from operations' loops; only the last names operations. A term denotes what each device holds: `held(v, L)` is the value v in the layout L, and `work(op, P)` what an operation does in the partition P.

| family | rule | provided that |
|---|---|---|
| partition | `work(op, P)(x..) makes y in layout(P)` => `work(op, P + [loop split by axis])(x'..) makes y in layout(P')` | the loop may be split, or the operation is linear in operands that owe the axis's sum; the axis comes after all that P uses; blocks are equal |
| partition in time | `work(op, P)(x..)` => `work(op, P + [loops split by one axis or two, a loop turned by t])(x'..)` | the operation is a product or a look-up; blocks move between devices; P has one step; rings on meshes of up to two axes, squares along two axes of one size; 16 steps at most |
| skew | `held(v, L)` => `work(op, P)(x..)` with P what L makes of op's loops | L is skewed, op touches each element of v once |
| moves | `held(v, L)` => `held(v, L') = move(held(v, L))` | the move is a slice, all-gather, all-reduce, reduce-scatter or all-to-all over free, held or owed axes of innermost digits, or a permutation that makes a skewed layout plain or a plain one skewed; v is held in L' by something |
| addition | `work(add, Q)(s, work(cast, R)(work(product, P)(a, b)))` = `work(product, P)(a, b, s)` | s is a sum over micro-batches; nothing moves in between; P makes of the loops of the product with an addend the layouts that Q has for s and for the sum; P has one step |

The code is `crates/rewrite/src/space/rules.rs`, `crates/rewrite/src/space/temporal.rs` and `crates/rewrite/src/added.rs`. The last family is counted by the search in place of being terms: [0068](decisions/0068-products-add-to-sums.md).

## Raising

{} rules, in the order in which they are tried. Each is directed: where the pattern is found and the conditions hold, what the rule builds is equal. Conditions for truth are needed for the two sides to be equal, which is tested on numbers with and without each of them; conditions for use keep out what nobody needs.

When attention has been found, what its mask says of later keys becomes its own attribute. For each value of the program it is known between which numbers its elements lie, whatever the inputs are, by how far a column is from its row (`crates/rewrite/src/raise/form.rs`): so it does not matter of which type or size it is, nor of which ranges, comparisons, triangles and choices a mask is made. Attention is made causal if its mask hides every later key, and is given a window if it hides every key further back; what is left of the mask is what it says of other keys, such as padding, and nothing if it says nothing of them. A mask that hides keys by a number that is merely very low says something else of a query all of whose keys it hides: that one sees all keys equally, later ones too. Where each query is known to see its own key there is none; else attention says that such queries get the mean of the values ([0023](decisions/0023-masks-are-functions-of-places.md)). `import` and `plan` say which keys attention sees, and warn where a mask hides all later keys and attention does not, where it shows some later keys, and where attention was not found.

Before anything is named, elements that are taken from places which are known become movement (`crates/rewrite/src/raise/placed.rs`): padding that is gathered by batch and key is the padding in another shape.

A sequence of states that an exporter wrote out token by token is one selective scan, where every token does the same to its own slices of values of all tokens (`crates/rewrite/src/raise/carried.rs`). Keys and queries of a recurrence that were repeated for each head are taken as they were before.

| rule | pattern | for truth | for use |
|---|---|---|---|
{}",
        rules.len(),
        raising(&rules)
    );
    compare("docs/rules.md", &page);
}
