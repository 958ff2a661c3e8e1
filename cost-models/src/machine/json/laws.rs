//! Laws of operations in machine files.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::Fault;
use super::file::LawFile;
use super::number::{known, number};
use crate::operations::{Family, Law, Laws, Term};

/// The field that messages name.
const FIELD: &str = "device.operations";

pub(super) fn read(files: &BTreeMap<String, LawFile>) -> Result<Laws, Fault> {
    let laws = files.iter().map(|(name, file)| Ok((name.clone(), law(name, file)?)));
    Ok(Arc::new(laws.collect::<Result<_, Fault>>()?))
}

pub(super) fn write(laws: &Laws) -> BTreeMap<String, LawFile> {
    laws.iter().filter_map(|(name, law)| Some((name.clone(), written(Family::of(name)?, law)))).collect()
}

fn law(name: &str, file: &LawFile) -> Result<Law, Fault> {
    let wrong = |message: String| Fault::Together { field: FIELD, message: format!("`{name}`: {message}") };
    let family = Family::of(name).ok_or_else(|| {
        wrong("no such kernel; expected a kernel that is measured, and its types: `gemm bfloat16`".to_owned())
    })?;
    let sizes = family.sizes();
    if let Some(unknown) = file.ranges.keys().find(|it| !sizes.contains(&it.as_str())) {
        return Err(wrong(format!("`ranges` has `{unknown}`, expected sizes: {}", sizes.join(", "))));
    }
    let range = |size: &&str| {
        let range = file.ranges.get(*size).ok_or_else(|| wrong(format!("`ranges` has no `{size}`")))?;
        let [least, most] = *range;
        let message = || format!("range of `{size}` is {range:?}, expected a least and a largest number");
        if least <= most { Ok(*range) } else { Err(wrong(message())) }
    };
    let term =
        |text: &String| Term::parse(text, sizes).map_err(|error| wrong(format!("term `{text}`: {error}")));
    let rate = file.rate.as_ref().map(|rate| known(&format!("{FIELD}.{name}.rate"), rate));
    Ok(Law {
        start: known(&format!("{FIELD}.{name}.start"), &file.start)?,
        rate: rate.transpose()?,
        bandwidth: known(&format!("{FIELD}.{name}.bandwidth"), &file.bandwidth)?,
        ranges: sizes.iter().map(range).collect::<Result<_, _>>()?,
        terms: file.terms.iter().map(term).collect::<Result<_, _>>()?,
    })
}

fn written(family: Family, law: &Law) -> LawFile {
    let names = family.sizes();
    LawFile {
        start: number(&law.start),
        rate: law.rate.as_ref().map(number),
        bandwidth: number(&law.bandwidth),
        ranges: names.iter().map(|name| (*name).to_owned()).zip(law.ranges.iter().copied()).collect(),
        terms: law.terms.iter().map(|term| term.text(names)).collect(),
    }
}
