//! Sources from templates, their names and hashes.

use sha2::{Digest, Sha256};

/// What a name stands for while a source has none.
pub(super) const NAME: &str = "$NAME";

/// A template with a text for each of its places, which are written `$PLACE`.
///
/// # Panics
/// If a place but that of the name has no text: templates and what fills them are one piece of code.
pub(super) fn filled(template: &str, texts: &[(&str, &str)]) -> String {
    let mut parts = template.split('$');
    let mut source = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let end =
            part.find(|it: char| !it.is_ascii_uppercase() && !it.is_ascii_digit()).unwrap_or(part.len());
        let (place, rest) = part.split_at(end);
        match texts.iter().find(|(it, _)| *it == place) {
            Some((_, text)) => source.push_str(text),
            None => {
                assert!(place == &NAME[1..], "no text for `{place}` of a template");
                source.push_str(NAME);
            }
        }
        source.push_str(rest);
    }
    source
}

/// The name of a source of that family: what follows the family is a hash of the source.
pub(super) fn name(family: &str, source: &str) -> String {
    format!("{family}_{}", &hash(source)[..16])
}

/// The hash of a text, in hexadecimal digits.
pub(super) fn hash(text: &str) -> String {
    Sha256::digest(text.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect()
}
