//! The kinds of networks between nodes, and which part of an adapter's rate each reaches.

use std::sync::LazyLock;

use serde::Deserialize;

use crate::known::Known;
use crate::machine::json::{Fault, Number, number};
use crate::units::Ratio;

/// The shipped kinds, each with the words that its name may have.
static FABRICS: LazyLock<Vec<Fabric>> = LazyLock::new(|| {
    read(include_str!("../../fabrics/fabrics.json")).expect("a test reads the shipped kinds of networks")
});

struct Fabric {
    names: Vec<String>,
    share: Known<Ratio>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FabricsFile {
    format: u32,
    fabrics: Vec<FabricFile>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FabricFile {
    names: Vec<String>,
    share: Number,
}

/// The version of the form of the file.
const FORMAT: u32 = 1;

/// The part of the rate of its adapters that the network called so reaches with large messages;
/// `None` if no kind of network is named.
#[must_use]
pub fn share(network: &str) -> Option<Known<Ratio>> {
    let network = network.to_lowercase();
    let named = |fabric: &&Fabric| fabric.names.iter().any(|name| network.contains(name.as_str()));
    FABRICS.iter().find(named).map(|fabric| fabric.share.clone())
}

fn read(text: &str) -> Result<Vec<Fabric>, Fault> {
    let file: FabricsFile = serde_json::from_str(text).map_err(Fault::Json)?;
    if file.format != FORMAT {
        return Err(Fault::Format(file.format));
    }
    let fabric = |file: FabricFile| {
        let field = file.names.first().map_or("fabrics", String::as_str);
        let share = number(&format!("{field}.share"), &file.share)?;
        Ok(Fabric { names: file.names, share })
    };
    file.fabrics.into_iter().map(fabric).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks_are_known_by_their_names() {
        let share = |name: &str| share(name).map(|share| share.value);
        assert_eq!(share("Omni-Path (Jean Zay)"), Some(Ratio(0.28)));
        assert_eq!(share("1x100GbE"), Some(Ratio(0.8)));
        assert_eq!(share("8x200Gb/s HDR IB"), Some(Ratio(1.0)));
        assert_eq!(share("4x200Gb/s"), None);
    }

    #[test]
    fn a_network_without_a_source_is_refused() {
        let file =
            |share: &str| format!(r#"{{"format": 1, "fabrics": [{{"names": ["x"], "share": {share}}}]}}"#);
        let refused = |share: &str| read(&file(share)).err().map(|fault| fault.to_string()).unwrap();
        let expected =
            "`x.share.source` is nothing, expected where the number was read or how it was measured";
        assert_eq!(refused(r#"{"value": 0.5, "unit": "1"}"#), expected);
        assert!(refused(r#"{"value": 1.5, "unit": "1", "source": "s"}"#).contains("1e-4 to 1"));
    }
}
