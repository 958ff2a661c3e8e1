//! What is summed over rows of experts: what tokens get of theirs, and the gradients of gates, weights and biases.

use super::super::super::launch::{Argument, Launch};
use super::super::super::number::stored;
use super::super::super::strides::{Arguments, signed};
use super::super::{Experts, Gradient, THREADS, WARPS};
use super::{COLUMN_TILE, Lists, ROW_TILE, TILES};

const JOINED: &str = include_str!("../../templates/experts_joined.cu");
const SLOPES: &str = include_str!("../../templates/experts_slopes.cu");
const WEIGHTS: &str = include_str!("../../templates/experts_tensor_weights.cu");
const COLUMNS: &str = include_str!("../../templates/experts_columns.cu");

/// The sums that 64 columns have in a block (bytes).
const SUMS: u32 = 2 * 4 * 256;

impl Experts {
    /// What tokens get of their rows, by their gates or as it is.
    pub(super) fn joined(&self, made: Argument, weight: &str, lists: &Lists) -> Launch {
        let mut arguments = Arguments::default();
        self.narrow("made", "const ", made, &mut arguments);
        arguments.pointer("const t_i32 *chosen", lists.chosen);
        arguments.pointer("const t_i32 *places", lists.places);
        if !weight.is_empty() {
            arguments.pointer("const float *lets", lists.lets);
        }
        arguments.writes("y", self.dtype, Argument::Result(0));
        let count = self.tokens * self.hidden / 8;
        for (name, number) in [("count", count), ("hidden", self.hidden), ("slots", self.slots)] {
            arguments.integer(name, signed(number));
        }
        let blocks = count.div_ceil(THREADS);
        self.kernel("experts_tokens", JOINED, arguments, &[("WEIGHT", weight)], [blocks, 0])
    }

    /// The gradients of gates, of the parts that blocks left.
    pub(super) fn slopes(&self, sums: Argument, parts: u64, lists: &Lists) -> Launch {
        let mut arguments = Arguments::default();
        arguments.pointer("const float *sums", sums);
        arguments.pointer("const t_i32 *chosen", lists.chosen);
        arguments.pointer("const t_i32 *places", lists.places);
        arguments.writes("y", self.dtype, Argument::Result(1));
        for (name, number) in
            [("tokens", self.tokens), ("experts", self.experts), ("slots", self.slots), ("parts", parts)]
        {
            arguments.integer(name, signed(number));
        }
        self.kernel("experts_gates", SLOPES, arguments, &[], [self.tokens.div_ceil(WARPS), 0])
    }

    /// The gradients of up and gate weights, in one launch if both are added or none is.
    pub(super) fn first_weights(
        &self,
        [above, beside]: [Argument; 2],
        made: &[Gradient],
        lists: &Lists,
    ) -> Vec<Launch> {
        let up = ("above", above, "up", &made[2]);
        if !self.gated {
            return vec![self.one_launch(&[up], lists)];
        }
        let gate = ("beside", beside, "gate", &made[3]);
        match up.3.is_as(gate.3) {
            true => vec![self.one_launch(&[up, gate], lists)],
            false => [up, gate].map(|it| self.one_launch(&[it], lists)).to_vec(),
        }
    }

    /// The gradients of one weight or of two, each of rows of its own with x.
    fn one_launch(&self, all: &[(&str, Argument, &str, &Gradient)], lists: &Lists) -> Launch {
        let mut arguments = Arguments::default();
        for (rows, place, ..) in all {
            self.narrow(rows, "const ", *place, &mut arguments);
        }
        arguments.reads("x", self.dtype, Argument::Operand(0));
        for (_, _, name, made) in all {
            made.declare(name, &mut arguments);
        }
        let made = all[0].3;
        let (expert, rows, y) = match all {
            [(rows, _, name, _), (other, _, second, _)] => {
                ("outer / 2", format!("(outer % 2 ? {other} : {rows})"), [*name, *second])
            }
            _ => ("outer", all[0].0.to_owned(), [all[0].2; 2]),
        };
        let which = format!("const t_u16 *a = {rows} + start * m_extent, *b = x; ") + &pointers(made, y);
        let store = stored_pairs(made);
        let texts = [
            ("SHARE", "4"),
            ("ACROSS", "32"),
            ("LEFT", "first + line"),
            ("RIGHT", "rows[j]"),
            ("MTILE", "block / n_tiles"),
            ("NTILE", "block % n_tiles"),
            ("EXPERT", expert),
            ("WHICH", &which),
            ("STORE", &store),
        ];
        let count = if all.len() > 1 { 2 } else { 1 };
        self.weights_launch(arguments, &texts, [self.inner, self.hidden], count, lists)
    }

    /// The gradient of down weights, of units by their gates.
    pub(super) fn last_weights(&self, units: Argument, made: &Gradient, lists: &Lists) -> Launch {
        let mut arguments = Arguments::default();
        arguments.reads("dy", self.dtype, Argument::Operand(self.dy()));
        self.narrow("units", "const ", units, &mut arguments);
        made.declare("down", &mut arguments);
        let which =
            "const t_u16 *a = dy, *b = units + start * n_extent; ".to_owned() + &pointers(made, ["down"; 2]);
        let store = stored_pairs(made);
        let texts = [
            ("SHARE", "2"),
            ("ACROSS", "16"),
            ("LEFT", "rows[j]"),
            ("RIGHT", "first + line"),
            ("MTILE", "block % m_tiles"),
            ("NTILE", "block / m_tiles"),
            ("EXPERT", "outer"),
            ("WHICH", &which),
            ("STORE", &store),
        ];
        self.weights_launch(arguments, &texts, [self.hidden, self.inner], 1, lists)
    }

    fn weights_launch(
        &self,
        mut arguments: Arguments,
        texts: &[(&str, &str)],
        [m, n]: [u64; 2],
        count: u64,
        lists: &Lists,
    ) -> Launch {
        for (name, place) in [("owners", lists.owners), ("counts", lists.counts), ("starts", lists.starts)] {
            arguments.pointer(&format!("const t_i32 *{name}"), place);
        }
        arguments.integer("m_extent", signed(m));
        arguments.integer("n_extent", signed(n));
        let blocks = count * self.experts * m.div_ceil(ROW_TILE) * n.div_ceil(COLUMN_TILE);
        self.kernel("experts_tensor_weights", WEIGHTS, arguments, texts, [blocks, TILES.into()])
    }

    /// The sums of both gradients over an expert's rows.
    pub(super) fn columns(&self, [above, beside]: [Argument; 2], first: usize, lists: &Lists) -> Launch {
        let mut arguments = Arguments::default();
        self.narrow("first", "const ", above, &mut arguments);
        self.narrow("second", "const ", beside, &mut arguments);
        for (name, place) in [("counts", lists.counts), ("starts", lists.starts)] {
            arguments.pointer(&format!("const t_i32 *{name}"), place);
        }
        arguments.writes("first_y", self.dtype, Argument::Result(first));
        arguments.writes("second_y", self.dtype, Argument::Result(first + 1));
        arguments.integer("inner", signed(self.inner));
        let blocks = 2 * self.experts * self.inner.div_ceil(64);
        self.kernel("experts_sums", COLUMNS, arguments, &[], [blocks, SUMS.into()])
    }
}

/// The declarations of where gradients are written, and of what they are added to: of two, those of a block's.
fn pointers(made: &Gradient, [name, other]: [&str; 2]) -> String {
    let type_ = stored(made.dtype);
    let which = |more: &str| match name == other {
        true => format!("{name}{more}"),
        false => format!("outer % 2 ? {other}{more} : {name}{more}"),
    };
    let mut text = format!("{type_} *y = {};", which(""));
    if made.adds() {
        text += &format!(" const {type_} *y_sum = {};", which("_sum"));
    }
    text
}

/// The statement that stores two neighbours.
fn stored_pairs(made: &Gradient) -> String {
    let f = made.dtype.name();
    let (at, pair) = ("(expert * m_extent + line) * n_extent + n", "made[m][c] + 2 * r");
    if !made.adds() {
        return format!("t_store_{f}_2(y + {at}, {pair});");
    }
    format!(
        "{{ const t_i64 at = {at}; float so_far[2]; t_load_{f}_2(y_sum + at, so_far); \
         made[m][c][2 * r] += so_far[0]; made[m][c][2 * r + 1] += so_far[1]; t_store_{f}_2(y + at, {pair}); }}"
    )
}
