//! Numbers that look random and are the same each time.

/// A generator of numbers.
pub(super) struct Dice(u64);

impl Dice {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next of the sequence (SplitMix64).
    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below this one, which is not 0.
    pub(super) fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.next() % u64::try_from(end).unwrap()).unwrap()
    }

    /// Whether it is the one of so many times.
    pub(super) fn once_in(&mut self, times: usize) -> bool {
        self.below(times) == 0
    }

    /// One of some things.
    pub(super) fn of<'a, T>(&mut self, things: &'a [T]) -> &'a T {
        &things[self.below(things.len())]
    }

    /// A text with something in it changed: a number, a letter, a line.
    pub(super) fn changed(&mut self, text: &str) -> String {
        match self.below(4) {
            0 => self.with_another_number(text),
            1 => self.with_other_lines(text),
            2 => (*self.of(&["", "0", "-1", "é", "a b", "../x", "%0", "\n", "nan", "1e999"])).to_owned(),
            _ => {
                let mut letters: Vec<char> = text.chars().collect();
                let place = self.below(letters.len() + 1);
                let new = *self.of(&['0', '9', 'a', '-', ',', '[', ')', '%', ':', '"', ' ', '\u{7f}', 'é']);
                match self.below(3) {
                    0 => letters.insert(place, new),
                    1 if place < letters.len() => drop(letters.remove(place)),
                    _ if place < letters.len() => letters[place] = new,
                    _ => letters.push(new),
                }
                letters.into_iter().collect()
            }
        }
    }

    /// A text in which one of its numbers is another one.
    fn with_another_number(&mut self, text: &str) -> String {
        let starts: Vec<usize> = (0..text.len())
            .filter(|&at| {
                let is_digit = |it: usize| text.as_bytes().get(it).is_some_and(u8::is_ascii_digit);
                is_digit(at) && (at == 0 || !is_digit(at - 1))
            })
            .collect();
        if starts.is_empty() {
            return format!("{text}0");
        }
        let start = *self.of(&starts);
        let length = text[start..].bytes().take_while(u8::is_ascii_digit).count();
        let number = text[start..start + length].parse::<u64>().unwrap_or(7);
        let other = self.number(number);
        format!("{}{other}{}", &text[..start], &text[start + length..])
    }

    fn with_other_lines(&mut self, text: &str) -> String {
        let mut lines: Vec<&str> = text.lines().collect();
        if lines.is_empty() {
            return "x".to_owned();
        }
        let (one, other) = (self.below(lines.len()), self.below(lines.len()));
        match self.below(3) {
            0 => drop(lines.remove(one)),
            1 => lines.insert(one, lines[other]),
            _ => lines.swap(one, other),
        }
        lines.join("\n")
    }

    /// Another number than this one: near it, or one at which something ends.
    pub(super) fn number(&mut self, number: u64) -> u64 {
        const ENDS: [u64; 14] =
            [0, 1, 2, 3, 7, 16, 255, 1 << 16, (1 << 31) - 1, 1 << 32, 1 << 53, 1 << 62, 1 << 63, u64::MAX];
        match self.below(4) {
            0 => number.wrapping_add(1),
            1 => number.wrapping_sub(1),
            _ => *self.of(&ENDS),
        }
    }

    /// Bytes of which a few are others, or the end is missing.
    pub(super) fn bytes(&mut self, bytes: &[u8]) -> Vec<u8> {
        if bytes.is_empty() {
            return vec![0];
        }
        let mut other = bytes.to_vec();
        if self.once_in(8) {
            other.truncate(self.below(bytes.len() + 1));
            return other;
        }
        for _ in 0..=self.below(3) {
            let place = self.below(other.len());
            other[place] ^= 1 << self.below(8);
        }
        other
    }
}
