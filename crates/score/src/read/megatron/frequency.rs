//! Which layers have experts.

use super::super::given::{Given, wrong};
use super::super::{Read, ReadError};

const NAME: &str = "moe_layer_freq";
/// More layers than any model has.
const MOST: usize = 10_000;
/// More parentheses within one another than anybody writes.
const DEEPEST: usize = 20;

/// Reads `--moe-layer-freq`: `n`, so that every `n`-th layer has experts, from the first; or as Python writes
/// lists, with a 1 for each layer that has some and a 0 for each other: `([0]*3+[1]*58)`.
///
/// Source: Megatron-LM, `megatron/training/arguments.py`, `moe_freq_type`, and
/// `megatron/core/models/gpt/gpt_layer_specs.py`, `get_gpt_decoder_block_spec`.
pub(super) fn read(read: &mut Read, given: &mut Given) -> Result<(), ReadError> {
    if given.word(NAME)?.is_none() {
        return Ok(());
    }
    // A list of Bridge's has a word for each layer.
    let words = given.words(NAME);
    let text = if let [one] = &words[..] { one.clone() } else { format!("[{}]", words.join(",")) };
    let layers = read.known("num_layers").and_then(|it| usize::try_from(it).ok());
    let expected = || {
        let layers = layers.map_or(String::new(), |it| format!(" of the {it}"));
        wrong(
            NAME,
            &text,
            &format!("a number from 1, or a list of a 1 or a 0 for each{layers} layers, with a 1"),
        )
    };
    let all = match (text.trim().parse::<usize>(), layers) {
        (Ok(every), Some(layers)) if every > 0 => (0..layers).map(|it| it % every == 0).collect(),
        (Ok(1), None) => vec![true],
        (Ok(_), _) => return Err(expected()),
        (Err(_), layers) => {
            let list = List { left: text.as_bytes(), inside: 0 }.whole().ok_or_else(expected)?;
            if layers.is_some_and(|it| it != list.len()) || !list.contains(&true) {
                return Err(expected());
            }
            list
        }
    };
    read.experts_in(&all)
}

/// A list as Python writes it: lists in brackets, repeated by `*` and put one after another by `+`.
struct List<'a> {
    left: &'a [u8],
    /// In how many parentheses.
    inside: usize,
}

impl List<'_> {
    fn whole(mut self) -> Option<Vec<bool>> {
        let all = self.sum()?;
        (self.next().is_none() && all.len() <= MOST).then_some(all)
    }

    /// The next sign.
    fn next(&mut self) -> Option<u8> {
        self.left = self.left.trim_ascii_start();
        self.left.first().copied()
    }

    /// Goes on after a sign, if it is the next one.
    fn takes(&mut self, sign: u8) -> bool {
        let is = self.next() == Some(sign);
        if is {
            self.left = &self.left[1..];
        }
        is
    }

    fn sum(&mut self) -> Option<Vec<bool>> {
        let mut all = self.product()?;
        while self.takes(b'+') {
            all.extend(self.product()?);
            if all.len() > MOST {
                return None;
            }
        }
        Some(all)
    }

    fn product(&mut self) -> Option<Vec<bool>> {
        let mut all = self.one()?;
        while self.takes(b'*') {
            let times = self.number()?;
            if all.len().checked_mul(times)? > MOST {
                return None;
            }
            all = all.repeat(times);
        }
        Some(all)
    }

    fn one(&mut self) -> Option<Vec<bool>> {
        if self.takes(b'(') {
            self.inside += 1;
            let all = if self.inside > DEEPEST { None } else { self.sum() }?;
            self.inside -= 1;
            return self.takes(b')').then_some(all);
        }
        let mut all = Vec::new();
        if !self.takes(b'[') {
            return None;
        }
        while !self.takes(b']') {
            all.push(match self.number()? {
                0 => false,
                1 => true,
                _ => return None,
            });
            if !self.takes(b',') && self.next() != Some(b']') {
                return None;
            }
        }
        Some(all)
    }

    fn number(&mut self) -> Option<usize> {
        self.next()?;
        let digits = self.left.iter().take_while(|it| it.is_ascii_digit()).count();
        let (number, left) = self.left.split_at(digits);
        self.left = left;
        std::str::from_utf8(number).ok()?.parse().ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(text: &str) -> Option<Vec<u8>> {
        List { left: text.as_bytes(), inside: 0 }.whole().map(|all| all.into_iter().map(u8::from).collect())
    }

    #[test]
    fn lists_are_read_as_python_writes_them() {
        assert_eq!(list("([0]*3+[1]*2)"), Some(vec![0, 0, 0, 1, 1]));
        assert_eq!(list("[0, 1]*2 + [1,]"), Some(vec![0, 1, 0, 1, 1]));
        assert_eq!(list("(([1]+[0])*2)*2"), Some(vec![1, 0, 1, 0, 1, 0, 1, 0]));
        assert_eq!(list("[]"), Some(vec![]));
        for wrong in
            ["", "[2]", "[1", "[1]]", "([1]", "[1 0]", "[1]*", "3*[1]", "[1]*99999", "[1]*9999+[1]*9999"]
        {
            assert_eq!(list(wrong), None, "{wrong}");
        }
    }
}
