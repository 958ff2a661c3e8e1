//! Rows on their way to a table and a ledger, part by part: what ends the program later leaves those that there
//! are.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use cost_models::machine::Machine;
use files::Failure;
use serde_json::{Value, json};

use super::goal::Judged;
use super::options::Part;
use super::row::{Row, Section};
use crate::{Report, append};

/// Where parts are that have no rows.
const UNMEASURED: Section = Section { name: "what could not be measured", beside: "" };

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
            vec![Row::new(&UNMEASURED, whole).failed(error)]
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
        if let (Some(line), Value::Object(row)) = (line.as_object_mut(), row.line(self.judged)) {
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
        let mut section = "";
        for row in &self.rows {
            let Section { name, beside } = row.section;
            if *name != section {
                section = name;
                // Writing to a string does not fail.
                let _ = writeln!(text, "\n{section}");
                if !beside.is_empty() {
                    let _ = writeln!(text, "  beside {beside}");
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
