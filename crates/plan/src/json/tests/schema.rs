//! Whether JSON is as `docs/plan.schema.json` says: the keywords that it uses, and no others.

use std::fs;
use std::path::PathBuf;

use serde_json::Value;

/// A file of the documents.
pub(super) fn document(name: &str) -> String {
    let path: PathBuf = [env!("CARGO_MANIFEST_DIR"), "..", "..", "docs", name].iter().collect();
    fs::read_to_string(path).unwrap()
}

/// A schema.
pub(super) struct Schema(Value);

impl Schema {
    pub(super) fn of_plans() -> Self {
        Self(serde_json::from_str(&document("plan.schema.json")).unwrap())
    }

    /// Why a value is not as the schema says.
    pub(super) fn check(&self, value: &Value) -> Result<(), String> {
        self.matches(&self.0, value, "")
    }

    fn matches(&self, schema: &Value, value: &Value, place: &str) -> Result<(), String> {
        for (keyword, says) in schema.as_object().unwrap() {
            if !self.obeys(keyword, says, schema, value, place)? {
                return Err(format!("{place}: {value} against `{keyword}`: {says}"));
            }
        }
        Ok(())
    }

    fn obeys(
        &self,
        keyword: &str,
        says: &Value,
        schema: &Value,
        value: &Value,
        place: &str,
    ) -> Result<bool, String> {
        let (object, array) = (value.as_object(), value.as_array());
        let length = value.as_str().map(|text| text.chars().count());
        let at_least =
            |it: Option<usize>| it.is_none_or(|it| u64::try_from(it).unwrap() >= says.as_u64().unwrap());
        let at_most =
            |it: Option<usize>| it.is_none_or(|it| u64::try_from(it).unwrap() <= says.as_u64().unwrap());
        Ok(match keyword {
            "$schema" | "title" | "description" | "$defs" => true,
            "$ref" => {
                let pointer = says.as_str().unwrap().strip_prefix('#').unwrap();
                self.matches(self.0.pointer(pointer).unwrap(), value, place)?;
                true
            }
            "type" => match says.as_str().unwrap() {
                "object" => object.is_some(),
                "array" => array.is_some(),
                "string" => value.is_string(),
                "boolean" => value.is_boolean(),
                "integer" => value.is_u64() || value.is_i64(),
                "number" => value.is_number(),
                other => panic!("type {other}"),
            },
            "const" => value == says,
            "minimum" => value.as_f64().is_none_or(|it| it >= says.as_f64().unwrap()),
            "minLength" => at_least(length),
            "maxLength" => at_most(length),
            "minProperties" => at_least(object.map(serde_json::Map::len)),
            "maxProperties" => at_most(object.map(serde_json::Map::len)),
            "required" => object.is_none_or(|object| {
                says.as_array().unwrap().iter().all(|name| object.contains_key(name.as_str().unwrap()))
            }),
            "additionalProperties" => {
                assert_eq!(says, &Value::Bool(false));
                let known = schema["properties"].as_object().unwrap();
                object.is_none_or(|object| object.keys().all(|name| known.contains_key(name)))
            }
            "properties" => {
                for (name, value) in object.into_iter().flatten() {
                    if let Some(schema) = says.get(name) {
                        self.matches(schema, value, &format!("{place}/{name}"))?;
                    }
                }
                true
            }
            "items" => {
                for (index, value) in array.into_iter().flatten().enumerate() {
                    self.matches(says, value, &format!("{place}/{index}"))?;
                }
                true
            }
            "oneOf" => {
                let fits = |schema: &&Value| self.matches(schema, value, place).is_ok();
                says.as_array().unwrap().iter().filter(fits).count() == 1
            }
            other => panic!("keyword {other}"),
        })
    }
}
