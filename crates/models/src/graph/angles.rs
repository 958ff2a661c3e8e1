//! Cosines and sines of positions, and heads rotated by them.

use super::{Angles, Graph, signed, single};
use crate::decoder::{Frequencies, Pairing, Table};
use crate::onnx::{Attribute, Element};
use crate::rotary::real;

impl Graph<'_, '_> {
    /// The cosines and sines of all positions by a table of angles.
    pub(super) fn angles(&mut self, table: &Table) -> Angles {
        let rotated = table.frequencies.rotated();
        self.writer.within("model.rotary_emb");
        let frequencies = self.frequencies(&table.frequencies);
        let positions = self.positions.clone();
        let positions = self.cast(&positions, Element::F32);
        let positions = self.unsqueezed(&positions, &[2]);
        let angles = self.op("Mul", &[&positions, &frequencies]);
        let angles = match table.pairing {
            Pairing::Halves => self.with_axis("Concat", &[&angles, &angles], -1),
            Pairing::Neighbours => {
                let single = self.unsqueezed(&angles, &[3]);
                let both = self.with_axis("Concat", &[&single, &single], 3);
                self.reshaped(&both, &[0, 0, signed(rotated)])
            }
        };
        let mut of = |op: &str| {
            let made = self.op(op, &[&angles]);
            let made = match table.factor {
                factor if (factor - 1.0).abs() < f64::EPSILON => made,
                factor => {
                    let factor = self.number_of(Element::F32, factor);
                    self.op("Mul", &[&made, &factor])
                }
            };
            let made = self.narrowed(&made);
            self.unsqueezed(&made, &[1])
        };
        Angles { cosines: of("Cos"), sines: of("Sin"), rotated }
    }

    /// The angles at position 1: `[pairs]`.
    fn frequencies(&mut self, frequencies: &Frequencies) -> String {
        match frequencies {
            Frequencies::Fixed(all) => self.table(all),
            Frequencies::ByLength { length, short, long } => {
                let [short, long] = [self.table(short), self.table(long)];
                let found = self.longest();
                let length = self.integer(signed(*length));
                let is_long = self.op("Greater", &[&found, &length]);
                self.op("Where", &[&is_long, &long, &short])
            }
            Frequencies::Growing { base, factor, length, size } => {
                // base ((factor n / length) - (factor - 1))^(size / (size - 2)), to the power -2 i / size.
                let found = self.longest();
                let shortest = self.integer(signed(*length));
                let found = self.op("Max", &[&found, &shortest]);
                let found = self.cast(&found, Element::F32);
                let (size, length) = (real(*size), real(*length));
                let [slope, less, power, base] = [factor / length, factor - 1.0, size / (size - 2.0), *base]
                    .map(|it| self.number_of(Element::F32, it));
                let grown = self.op("Mul", &[&found, &slope]);
                let grown = self.op("Sub", &[&grown, &less]);
                let grown = self.op("Pow", &[&grown, &power]);
                let base = self.op("Mul", &[&grown, &base]);
                let powers: Vec<f64> =
                    (0..frequencies.rotated() / 2).map(|it| -2.0 * real(it) / size).collect();
                let powers = self.table(&powers);
                self.op("Pow", &[&base, &powers])
            }
        }
    }

    /// How many places the longest sequence has.
    fn longest(&mut self) -> String {
        let positions = self.positions.clone();
        let last = self.writer.node("ReduceMax", &[&positions], &[("keepdims", Attribute::Integer(0))]);
        let one = self.integer(1);
        self.op("Add", &[&last, &one])
    }

    /// Numbers of 32 bits, whatever the model has.
    fn table(&mut self, numbers: &[f64]) -> String {
        let numbers: Vec<f32> = numbers.iter().copied().map(single).collect();
        let count = u64::try_from(numbers.len()).unwrap_or(0);
        self.tables += 1;
        let name = format!("model.rotary_emb.inv_freq.{}", self.tables);
        self.writer.floats_of(Element::F32, &name, &[count], &numbers)
    }

    /// Heads `[batch, heads, sequence, size]` whose first elements are rotated.
    pub(super) fn rotated(&mut self, x: &str, size: u64, angles: &Angles, pairing: Pairing) -> String {
        if angles.rotated == size {
            return self.turned(x, size, angles, pairing);
        }
        let [first, rest] = self.split(x, 3, [angles.rotated, size - angles.rotated]);
        let first = self.turned(&first, angles.rotated, angles, pairing);
        self.with_axis("Concat", &[&first, &rest], 3)
    }

    /// `x cos + turn(x) sin`, where a turn swaps the elements of each pair and negates the second one.
    fn turned(&mut self, x: &str, size: u64, angles: &Angles, pairing: Pairing) -> String {
        let turned = match pairing {
            Pairing::Halves => {
                let [first, second] = self.split(x, 3, [size / 2, size / 2]);
                let second = self.op("Neg", &[&second]);
                self.with_axis("Concat", &[&second, &first], 3)
            }
            Pairing::Neighbours => {
                let mut every_second = |start: i64| {
                    let end = self.integers(&[i64::MAX]);
                    let [start, axis, step] = [start, 3, 2].map(|it| self.integers(&[it]));
                    self.op("Slice", &[x, &start, &end, &axis, &step])
                };
                let (even, odd) = (every_second(0), every_second(1));
                let odd = self.op("Neg", &[&odd]);
                let [odd, even] = [odd, even].map(|it| self.unsqueezed(&it, &[4]));
                let both = self.with_axis("Concat", &[&odd, &even], 4);
                self.reshaped(&both, &[0, 0, 0, signed(size)])
            }
        };
        let along = self.op("Mul", &[x, &angles.cosines]);
        let across = self.op("Mul", &[&turned, &angles.sines]);
        self.op("Add", &[&along, &across])
    }
}
