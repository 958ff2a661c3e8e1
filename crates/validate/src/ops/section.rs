//! Laws as part of a machine file's text.
//!
//! The rest of the text stays as it is: files are written by hand, a line for each number.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use cost_models::known::{Known, Quantity};
use cost_models::machine::json;
use cost_models::operations::{Family, Law};

/// How the section begins, and what ends it and the device's.
const BEGIN: &str = ",\n    \"operations\": {";
const END: &str = "\n    }\n  }";
const DEVICE_END: &str = "\n  },\n  \"node\"";

/// The widest line of terms.
const WIDTH: usize = 110;

/// The text of a machine file with these laws in place of those that it has of the same names; others stay.
///
/// Why it cannot be is that the text is no machine file, or one that is not laid out as those that come with the
/// program.
pub fn with_laws(name: &str, text: &str, laws: &[(String, Law)]) -> Result<String, String> {
    let machine = json::read(name, text).map_err(|error| error.to_string())?;
    let mut all: BTreeMap<String, Law> = (*machine.device.operations).clone();
    all.extend(laws.iter().cloned());
    let strange = || format!("machine file `{name}` is not laid out as those that come with the program");
    let bare = match text.find(BEGIN) {
        None => text.to_owned(),
        Some(begin) => {
            let end = begin + text[begin..].find(END).ok_or_else(strange)?;
            format!("{}{}", &text[..begin], &text[end + "\n    }".len()..])
        }
    };
    let place = bare.find(DEVICE_END).ok_or_else(strange)?;
    let made = format!("{}{}{}", &bare[..place], section(&all), &bare[place..]);
    let read = json::read(name, &made).map_err(|error| error.to_string())?;
    if *read.device.operations == all { Ok(made) } else { Err(strange()) }
}

fn section(laws: &BTreeMap<String, Law>) -> String {
    let laws: Vec<String> = laws.iter().filter_map(|(name, law)| one(name, law)).collect();
    format!("{BEGIN}\n{}\n    }}", laws.join(",\n"))
}

fn one(name: &str, law: &Law) -> Option<String> {
    let sizes = Family::of(name)?.sizes();
    let mut text = format!("      \"{name}\": {{\n");
    let rate = law.rate.as_ref().map(|rate| number("rate", rate)).unwrap_or_default();
    text.push_str(&number("start", &law.start));
    text.push_str(&rate);
    text.push_str(&number("bandwidth", &law.bandwidth));
    let ranges =
        sizes.iter().zip(&law.ranges).map(|(size, [least, most])| format!("\"{size}\": [{least}, {most}]"));
    let terms = law.terms.iter().map(|term| format!("\"{}\"", term.text(sizes)));
    // Writing to a string does not fail.
    let _ = writeln!(text, "        \"ranges\": {{\n{}\n        }},", lines(ranges));
    let _ = write!(text, "        \"terms\": [\n{}\n        ]\n      }}", lines(terms));
    Some(text)
}

fn number<T: Quantity>(field: &str, known: &Known<T>) -> String {
    let (value, unit, source) = (known.value.number(), T::UNIT, known.source());
    format!(
        "        \"{field}\": {{ \"value\": {value:e}, \"unit\": \"{unit}\", \"source\": \"{source}\" }},\n"
    )
}

/// Texts one after another, with commas between them, on lines that are not too wide.
fn lines(texts: impl Iterator<Item = String>) -> String {
    let mut all: Vec<String> = Vec::new();
    for text in texts {
        match all.last_mut().filter(|line| line.len() + text.len() < WIDTH) {
            Some(line) => *line = format!("{line}, {text}"),
            None => all.push(format!("          {text}")),
        }
    }
    all.join(",\n")
}
