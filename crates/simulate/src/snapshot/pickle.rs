//! Values as Python pickles them, by protocol 2, without references: what the viewer's own reader knows.

use serde_json::Value;

/// A value of JSON whose numbers are whole, as a pickle.
pub(super) fn pickled(value: &Value) -> Vec<u8> {
    let mut bytes = vec![0x80, 2];
    put(value, &mut bytes);
    bytes.push(b'.');
    bytes
}

fn put(value: &Value, bytes: &mut Vec<u8>) {
    match value {
        Value::Null => bytes.push(b'N'),
        Value::Bool(is) => bytes.push(if *is { 0x88 } else { 0x89 }),
        Value::Number(number) => whole(number.as_u64().unwrap_or(0), bytes),
        Value::String(text) => {
            bytes.push(b'X');
            bytes.extend(u32::try_from(text.len()).unwrap_or(u32::MAX).to_le_bytes());
            bytes.extend(text.as_bytes());
        }
        Value::Array(items) => {
            bytes.extend(b"](");
            items.iter().for_each(|it| put(it, bytes));
            bytes.push(b'e');
        }
        Value::Object(fields) => {
            bytes.extend(b"}(");
            for (name, value) in fields {
                put(&Value::String(name.clone()), bytes);
                put(value, bytes);
            }
            bytes.push(b'u');
        }
    }
}

fn whole(number: u64, bytes: &mut Vec<u8>) {
    match (u8::try_from(number), i32::try_from(number)) {
        (Ok(small), _) => bytes.extend([b'K', small]),
        (_, Ok(number)) => {
            bytes.push(b'J');
            bytes.extend(number.to_le_bytes());
        }
        _ => {
            // As many bytes as it needs, with one for its sign.
            let all = number.to_le_bytes();
            let length = 8 - usize::try_from(number.leading_zeros() / 8).unwrap_or(0);
            let mut of = all[..length].to_vec();
            if of.last().is_some_and(|it| *it > 127) {
                of.push(0);
            }
            bytes.extend([0x8a, u8::try_from(of.len()).unwrap_or(9)]);
            bytes.extend(of);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::pickled;

    #[test]
    fn numbers_are_as_long_as_they_need() {
        let of = |number: u64| pickled(&json!(number))[2..].to_vec();
        assert_eq!(of(7), b"K\x07.");
        assert_eq!(of(1 << 16), b"J\x00\x00\x01\x00.");
        assert_eq!(of(0x8000_0000), b"\x8a\x05\x00\x00\x00\x80\x00.");
        assert_eq!(of(0x7f00_0000_0000), b"\x8a\x06\x00\x00\x00\x00\x00\x7f.");
        assert_eq!(
            pickled(&json!({ "a": [null, "b"] })),
            b"\x80\x02}(X\x01\x00\x00\x00a](NX\x01\x00\x00\x00beu."
        );
    }
}
