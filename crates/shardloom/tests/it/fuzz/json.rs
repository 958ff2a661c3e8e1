//! JSON in which a few values are others.

use serde_json::{Value, json};

use super::dice::Dice;

/// A document with a few values that are others.
pub(super) fn mutant(document: &Value, dice: &mut Dice) -> Value {
    let mut document = document.clone();
    for _ in 0..=dice.below(2) {
        let all = places(&document);
        let one = dice.of(&all).clone();
        let other = document.pointer(dice.of::<String>(&all)).cloned().unwrap_or_default();
        change(&mut document, &one, other, dice);
    }
    document
}

/// Pointers to every value but the document itself.
fn places(value: &Value) -> Vec<String> {
    let inner: Vec<(String, &Value)> = match value {
        Value::Array(all) => all.iter().enumerate().map(|(index, it)| (index.to_string(), it)).collect(),
        Value::Object(all) => {
            all.iter().map(|(name, it)| (name.replace('~', "~0").replace('/', "~1"), it)).collect()
        }
        _ => vec![],
    };
    let further = |(name, it): (String, &Value)| {
        let inside = places(it).into_iter().map(|rest| format!("/{name}{rest}")).collect::<Vec<_>>();
        [vec![format!("/{name}")], inside].concat()
    };
    inner.into_iter().flat_map(further).collect()
}

fn change(document: &mut Value, place: &str, other: Value, dice: &mut Dice) {
    if dice.once_in(4) {
        let (above, name) = place.rsplit_once('/').unwrap();
        match document.pointer_mut(above) {
            Some(Value::Array(all)) => {
                let index: usize = name.parse().unwrap();
                if dice.once_in(2) { drop(all.remove(index)) } else { all.insert(index, other) }
            }
            Some(Value::Object(all)) => drop(all.remove(name)),
            _ => {}
        }
        return;
    }
    let Some(value) = document.pointer_mut(place) else { return };
    *value = match value {
        _ if dice.once_in(6) => other,
        Value::String(text) => json!(dice.changed(text)),
        Value::Number(number) if number.is_u64() => json!(dice.number(number.as_u64().unwrap())),
        Value::Number(_) => {
            dice.of(&[json!(0.0), json!(-1.0), json!(1e308), json!(1e-308), json!(-0.0)]).clone()
        }
        Value::Bool(truth) => json!(!*truth),
        Value::Null => json!(1),
        Value::Array(_) => dice.of(&[json!([]), json!([[]]), json!({}), json!(0)]).clone(),
        Value::Object(_) => dice.of(&[json!({}), json!([]), json!(null), json!("x")]).clone(),
    };
}
