//! A machine file while its numbers are sought: fields that are set, with where they come from.

use cost_models::machine::{Machine, json};
use files::Failure;
use serde_json::Value;

/// A machine file.
#[derive(Clone, Debug)]
pub struct Draft {
    file: Value,
}

impl Draft {
    /// The file of a machine under another name.
    pub fn of(machine: &Machine, name: &str) -> Result<Self, Failure> {
        let text = json::write(machine);
        let mut file: Value =
            serde_json::from_str(&text).map_err(|error| Failure::internal("calibrate", error))?;
        file["name"] = Value::from(name);
        Ok(Self { file })
    }

    /// The number of a field, such as `device.launch`.
    pub fn number(&self, field: &str) -> f64 {
        self.file.pointer(&place(field)).and_then(|it| it["value"].as_f64()).unwrap_or(f64::NAN)
    }

    /// The same file with another number in a field.
    pub fn set(&mut self, field: &str, number: impl Into<Value>) {
        if let Some(it) = self.file.pointer_mut(&place(field)) {
            it["value"] = number.into();
        }
    }

    /// Says where the number of a field comes from.
    pub fn cite(&mut self, field: &str, source: &str) {
        if let Some(it) = self.file.pointer_mut(&place(field)) {
            it["source"] = Value::from(source);
        }
    }

    /// The machine, one device of it.
    pub fn machine(&self) -> Result<Machine, Failure> {
        let refused = |error: &dyn std::fmt::Display| Failure::Input(format!("cannot measure: {error}"));
        let machine = json::read("measured", &self.file.to_string()).map_err(|error| refused(&error))?;
        machine.with_devices(1).map_err(|error| refused(&error))
    }
}

fn place(field: &str) -> String {
    format!("/{}", field.replace('.', "/"))
}
