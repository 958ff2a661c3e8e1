//! Rows on their way to a table and a ledger, part by part: what ends the program later leaves those that there
//! are.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use cost_models::machine::Machine;
use serde_json::{Value, json};

use super::goal::Judged;
use super::options::Part;
use super::row::Row;
use crate::bench::{Report, append};
use crate::failure::Failure;

/// What the rows of a part are held against.
const BESIDE: [(&str, &str); 7] = [
    (
        "kernels against processors",
        "the same operation on a processor, as a part of the largest number; all have to be right",
    ),
    (
        "prices of this GPU",
        "what the machine states that they start from; the numbers found explain the rates best, and price the \
         steps",
    ),
    ("rates", "the largest copy of this table, and the prices of the machine"),
    (
        "ranks on the GPU against one on a processor",
        "what one rank on a processor makes in three steps, outputs or losses and trained parameters, and what \
         lies beside a model; all have to be right",
    ),
    (
        "steps of training",
        "the price of the plan by the machine, and the same steps by PyTorch in a process of its own: at least as \
         fast as eager, and 0.95 of compiled or better",
    ),
    (
        "tokens one after another",
        "the bandwidth of the memory that the machine says, by the least that has to be read for a token: all \
         weights and the whole cache, once",
    ),
    (
        "faults that compute-sanitizer finds",
        "nothing: the parts equal and ranks, quick, under each of its tools",
    ),
];

/// What the rows of a part are held against.
fn beside(part: &str) -> &'static str {
    BESIDE.iter().find(|it| it.0 == part).map_or("", |it| it.1)
}

/// What was measured on, and by what.
pub(super) struct Place {
    /// What the driver calls the GPU.
    pub(super) gpu: String,
    /// That, its kind, and the versions of the driver's CUDA and of cuBLASLt.
    pub(super) identity: String,
    /// The version of the driver.
    pub(super) driver: String,
    /// That of the compiler of kernels.
    pub(super) compiler: String,
    /// What was asked.
    pub(super) command: String,
}

/// What there is so far.
pub(super) struct Kept {
    place: Place,
    judged: Judged,
    ledger: Option<PathBuf>,
    rows: Vec<Row>,
    lines: Vec<Value>,
}

impl Kept {
    /// Nothing yet; refused where the ledger cannot be written.
    pub(super) fn new(place: Place, judged: Judged, ledger: Option<&Path>) -> Result<Self, Failure> {
        let kept =
            Self { place, judged, ledger: ledger.map(Path::to_owned), rows: Vec::new(), lines: Vec::new() };
        kept.append(&[])?;
        Ok(kept)
    }

    /// Takes the rows of a part, or why it has none, and appends them to the ledger.
    pub(super) fn keep(
        &mut self,
        part: Part,
        rows: Result<Vec<Row>, Failure>,
        machine: &Machine,
    ) -> Result<(), Failure> {
        let rows = rows.unwrap_or_else(|error| {
            let whole = format!("the part `{}`", part.name());
            vec![Row::new("what could not be measured", whole).failed(error)]
        });
        let lines: Vec<Value> = rows.iter().map(|row| self.line(row, machine)).collect();
        self.append(&lines)?;
        self.rows.extend(rows);
        self.lines.extend(lines);
        Ok(())
    }

    /// What is said of everything; refused where something is not right.
    pub(super) fn report(self) -> Result<Report, Failure> {
        let bad: Vec<&str> = self.rows.iter().filter(|it| it.is_bad()).map(|it| it.what.as_str()).collect();
        let text = self.table();
        if bad.is_empty() {
            return Ok(Report { text, lines: self.lines });
        }
        Err(Failure::Input(format!("not right: {}\n{text}", bad.join("; "))))
    }

    fn append(&self, lines: &[Value]) -> Result<(), Failure> {
        self.ledger.as_ref().map_or(Ok(()), |path| append(path, lines))
    }

    fn line(&self, row: &Row, machine: &Machine) -> Value {
        let Place { gpu, identity, driver, compiler, command } = &self.place;
        let mut line = json!({
            "benchmark": "gpu",
            "gpu": gpu,
            "libraries": identity,
            "driver": driver,
            "nvrtc": compiler,
            "command": command,
            "prices": machine.name,
            "quick": self.judged == Judged::No,
        });
        if let (Some(line), Value::Object(row)) =
            (line.as_object_mut(), row.line(beside(row.part), self.judged))
        {
            line.extend(row);
        }
        line
    }

    fn table(&self) -> String {
        let Place { identity, driver, compiler, command, .. } = &self.place;
        let mut text = format!("{identity}, driver {driver}, NVRTC {compiler}\n{command}\n");
        if self.judged == Judged::No {
            text.push_str("everything is small: these times mean nothing\n");
        }
        let longest = self.rows.iter().map(|row| row.what.len()).max().unwrap_or(0);
        let mut part = "";
        for row in &self.rows {
            if row.part != part {
                part = row.part;
                // Writing to a string does not fail.
                let _ = writeln!(text, "\n{part}");
                if !beside(part).is_empty() {
                    let _ = writeln!(text, "  beside {}", beside(part));
                }
            }
            let figures: Vec<String> =
                row.figures.iter().map(|(name, shown, _)| format!("{name} {shown}")).collect();
            let verdict = row.verdict.map_or("", |it| it.shown());
            let _ = writeln!(text, "  {:<longest$}  {verdict:<6}  {}", row.what, figures.join(", "));
            for goal in &row.goals {
                let _ = writeln!(text, "  {:<longest$}  {:<6}  {}", "", "", goal.shown(self.judged));
            }
        }
        text
    }
}
