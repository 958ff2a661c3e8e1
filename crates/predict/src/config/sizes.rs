//! What is stated, with the sizes of a model that is named.

use toml::{Table, Value};

use super::{Config, ConfigError, not_toml, of};

/// More layers than any model has.
const MOST_LAYERS: usize = 10_000;

/// The key that names the file of a model.
pub(super) const MODEL: &str = "model_config";

/// What reads the sizes of a model, as keys, from the `config.json` of that name.
pub type Sizes<'a> = dyn Fn(&str) -> Result<Table, String> + 'a;

/// The configuration that `text` states, with the sizes of the model that it names, where it says no others.
pub fn read(text: &str, sizes: &Sizes<'_>) -> Result<Config, ConfigError> {
    let mut table: Table = text.parse().map_err(|error| not_toml(text, &error))?;
    if let Some(value) = table.remove(MODEL) {
        let found = value.to_string();
        let name = value.as_str().ok_or_else(|| ConfigError::Value {
            key: MODEL,
            found: found.clone(),
            expected: "the name of a file".to_owned(),
        })?;
        let mut sizes = sizes(name).map_err(|why| ConfigError::Model(found, why))?;
        // Of fewer layers the first, of more the last again.
        let layers =
            table.get("num_layers").and_then(Value::as_integer).and_then(|it| usize::try_from(it).ok());
        if let (Some(layers), Some(Value::Array(with))) = (layers, sizes.get_mut("moe_layer_freq"))
            && let Some(last) = with.last().cloned()
        {
            with.resize(layers.min(MOST_LAYERS), last);
        }
        for (key, size) in sizes {
            table.entry(key).or_insert(size);
        }
    }
    of(table)
}
