//! Mixtures of experts of 16 bits, on tensor cores.
//!
//! Rows are in the order of experts, those of one expert in the order of tokens: where they begin is known to the
//! device alone. A product is of 128 rows of an expert and 256 columns, or 128 columns of two weights, summed in
//! f32; rows between products are rounded once, to the 16 bits of the operands. Nothing depends on which block is
//! faster.

mod sums; // what is summed over rows

use planner_ir::{DType, Real};

use super::super::functions::{derivative, unary};
use super::super::indexing::launch;
use super::super::launch::{Argument, Launch, Uncovered, Work};
use super::super::number::{literal, stored};
use super::super::strides::{Arguments, signed};
use super::super::text::filled;
use super::{Experts, Gradient, WARPS};

const SLOTS: &str = include_str!("../templates/experts_slots.cu");
const ORDER: &str = include_str!("../templates/experts_order.cu");
const MULTIPLY: &str = include_str!("../templates/experts_multiply.cu");
const ROWS: &str = include_str!("../templates/experts_tensor.cu");

/// What extents are multiples of: how many elements a tensor core sums at once.
const LENGTH: u64 = 16;

/// The rows and columns of a product that a block makes, and the parts of its columns that warps have.
const ROW_TILE: u64 = 128;
const COLUMN_TILE: u64 = 256;
const PARTS: u64 = 4;

/// Four tiles of 32 numbers of all rows and columns, of two bytes each.
const TILES: u32 = 4 * 32 * (128 + 256) * 2;

/// How many rows there may be: their pieces of 8 elements are counted by 32 bits.
const MOST: u64 = 1 << 31;

/// How the weights of an expert lie.
#[derive(Clone, Copy)]
enum Lie {
    /// What is summed lies together.
    ByColumn,
    /// Columns lie together.
    ByLine,
}

/// What is multiplied with an expert's weights.
#[derive(Clone, Copy)]
enum Of {
    /// The tokens of its rows.
    Tokens,
    /// Its rows.
    Rows,
}

/// Where what is listed once lies.
struct Lists {
    /// For each slot of each token the expert, or -1.
    chosen: Argument,
    /// For each row its token.
    owners: Argument,
    /// For each slot of each token its row.
    places: Argument,
    /// For each row its gate.
    lets: Argument,
    /// For each expert how many rows it has, and the first.
    counts: Argument,
    starts: Argument,
    /// For each tile of rows the expert.
    tiles: Argument,
}

/// A product of rows with the weights of their experts, and what becomes of it.
#[derive(Default)]
struct Product {
    functions: Vec<String>,
    statements: String,
    arguments: Arguments,
    /// Numbers that it is given besides extents.
    numbers: Vec<(&'static str, u64)>,
    columns: u64,
    /// Whether each block makes products with two weights.
    twice: bool,
    begin: String,
    load: String,
    each: String,
    store: String,
    end: String,
}

impl Experts {
    /// Whether tensor cores make the products.
    pub(super) fn is_for_tensor_cores(&self) -> bool {
        let lines = self.tokens * self.slots.max(1) * self.hidden.max(self.inner) / 8;
        matches!(self.dtype, DType::BF16 | DType::F16)
            && [self.hidden, self.inner].iter().all(|it| it.is_multiple_of(LENGTH) && *it > 0)
            && lines < MOST
            && self.experts * self.hidden.max(self.inner) < MOST
    }

    /// Rows of all slots.
    fn lines(&self) -> u64 {
        self.tokens * self.slots
    }

    /// Tiles of rows, as many as experts need at most: each begins with one of its own.
    fn row_tiles(&self) -> u64 {
        self.lines() / ROW_TILE + self.experts
    }

    /// Room for rows of so many numbers of 16 bits.
    fn narrow_rows(&mut self, columns: u64) -> Argument {
        self.bytes(self.lines() * columns * self.dtype.bytes())
    }

    fn lists(&mut self) -> Lists {
        let of_rows = 4 * self.lines();
        let [chosen, owners, places, lets] = [(); 4].map(|()| self.bytes(of_rows));
        let [counts, starts] = [(); 2].map(|()| self.bytes(4 * self.experts));
        let tiles = self.bytes(4 * self.row_tiles());
        Lists { chosen, owners, places, lets, counts, starts, tiles }
    }

    /// A kernel of a template and its arguments.
    fn kernel(
        &self,
        family: &str,
        template: &str,
        arguments: Arguments,
        texts: &[(&str, &str)],
        [blocks, shared]: [u64; 2],
    ) -> Launch {
        let parameters = arguments.text();
        let mut all = vec![("PARAMETERS", parameters.as_str()), ("D", self.dtype.name())];
        all.extend_from_slice(texts);
        launch(family, &filled(template, &all), arguments, blocks, u32::try_from(shared).unwrap_or(u32::MAX))
    }

    /// The launches that list rows.
    fn listing(&self, lists: &Lists) -> [Launch; 2] {
        let mut arguments = Arguments::default();
        arguments.reads("gates", self.dtype, Argument::Operand(1));
        arguments.pointer("t_i32 *chosen", lists.chosen);
        for (name, number) in [("tokens", self.tokens), ("experts", self.experts), ("slots", self.slots)] {
            arguments.integer(name, signed(number));
        }
        let blocks = self.tokens.div_ceil(WARPS);
        let slots = self.kernel("experts_slots", SLOTS, arguments, &[], [blocks, 0]);
        let mut arguments = Arguments::default();
        arguments.reads("gates", self.dtype, Argument::Operand(1));
        for (declared, place) in [
            ("const t_i32 *chosen", lists.chosen),
            ("t_i32 *owners", lists.owners),
            ("t_i32 *places", lists.places),
            ("float *lets", lists.lets),
            ("t_i32 *counts", lists.counts),
            ("t_i32 *starts", lists.starts),
            ("t_i32 *tiles", lists.tiles),
        ] {
            arguments.pointer(declared, place);
        }
        for (name, number) in [
            ("rows", self.lines()),
            ("experts", self.experts),
            ("slots", self.slots),
            ("tile_count", self.row_tiles()),
        ] {
            arguments.integer(name, signed(number));
        }
        [slots, self.kernel("experts_order", ORDER, arguments, &[], [self.experts, 8 * WARPS])]
    }

    /// The declaration of rows that are read or written.
    fn narrow(&self, name: &str, is_const: &str, place: Argument, to: &mut Arguments) {
        to.pointer(&format!("{is_const}{} *{name}", stored(self.dtype)), place);
    }

    /// Statements that load what is added to both products of columns `n` and `n + 1`.
    fn added_pairs(&self) -> String {
        let one = |name: &str| {
            let d = self.dtype.name();
            format!(
                "                float {name}_added[2];\n                \
                 t_load_{d}_2({name}_bias + expert * columns + n, {name}_added);\n"
            )
        };
        if self.biases.is_some() { one("first") + &one("second") } else { String::new() }
    }

    /// Statements that take both products of a unit, with what is added to them.
    fn taken_units(&self) -> String {
        let added =
            |name: &str| if self.biases.is_some() { format!(" + {name}_added[i]") } else { String::new() };
        let mut text = format!("float before = made[m][c][2 * r + i]{}; ", added("first"));
        if self.gated {
            text += &format!("float factor = made[m][c + 4][2 * r + i]{}; ", added("second"));
        }
        text
    }

    /// The bounds of both products in C.
    fn bounds(&self) -> Option<[String; 2]> {
        self.limit.map(|Real(limit)| [limit, -limit].map(|it| literal(self.dtype, it)))
    }

    /// Statements that bound both products, and add 1 to the second.
    fn bounded_units(&self) -> String {
        let Some([most, least]) = self.bounds() else { return String::new() };
        let factor = format!("factor = t_max_f(t_min_f(factor, {most}), {least}) + 1; ");
        format!("before = t_min_f(before, {most}); ") + if self.gated { &factor } else { "" }
    }

    /// The products that units are made of.
    fn units(&self) -> Product {
        let mut made = Product { columns: self.inner, twice: self.gated, ..Product::default() };
        made.arguments.reads("x", self.dtype, Argument::Operand(0));
        self.declare_products(&mut made.arguments);
        let weights = if self.gated { ["up", "gate"] } else { ["up", "up"] };
        self.multiplied(&mut made, (Of::Tokens, "x"), (Lie::ByColumn, weights), "hidden");
        made.load = self.added_pairs();
        made
    }

    /// Adds a product of what is at rows with weights, summed over so many.
    fn multiplied(
        &self,
        to: &mut Product,
        (of, rows): (Of, &str),
        (lie, weights): (Lie, [&str; 2]),
        summed: &str,
    ) {
        let (x, owners, row, [start, list]) = match of {
            Of::Tokens => {
                ("tokens", "const t_i32 *owners, ", "there ? owners[row] : 0", ["", "owners + top, "])
            }
            Of::Rows => ("rows", "", "there ? row : 0", [" + top * $SUMMED", ""]),
        };
        let [place, copy, right] = match lie {
            Lie::ByColumn => [PLACE_BY_COLUMN, COPY_BY_COLUMN, RIGHT_BY_COLUMN],
            Lie::ByLine => [PLACE_BY_LINE, COPY_BY_LINE, RIGHT_BY_LINE],
        };
        let texts = [
            ("X", x),
            ("D", self.dtype.name()),
            ("OWNERS", owners),
            ("ROW", row),
            ("PLACE", place),
            ("COPY", copy),
            ("RIGHT", right),
        ];
        let function = filled(MULTIPLY, &texts);
        if !to.functions.contains(&function) {
            to.functions.push(function);
        }
        if !to.statements.is_empty() {
            to.statements += "    t_barrier();\n";
        }
        // Where the columns of the block begin, and 128 more of them.
        let apart = match lie {
            Lie::ByColumn => summed,
            Lie::ByLine => "1",
        };
        let [first, second] =
            weights.map(|it| format!("{it} + (t_i64)expert * hidden * inner + column * {apart}"));
        let (second, width) = match to.twice {
            true => (second, "(int)(columns - column)"),
            false => (
                format!("{second} + (columns - column > 128 ? 128 * {apart} : 0)"),
                "(int)(columns - column) - 128",
            ),
        };
        to.statements += &format!(
            "    $NAME_{x}(made, {rows}{}, {list}height, {first}, {second}, (int)(columns - column), {width}, \
             {summed}, columns);\n",
            start.replace("$SUMMED", summed)
        );
    }

    /// The launch of a product.
    fn product_launch(&self, mut made: Product, lists: &Lists) -> Launch {
        for (name, place) in [
            ("owners", lists.owners),
            ("counts", lists.counts),
            ("starts", lists.starts),
            ("tiles", lists.tiles),
        ] {
            made.arguments.pointer(&format!("const t_i32 *{name}"), place);
        }
        let wide = made.wide();
        let column_tiles = made.columns.div_ceil(wide);
        let extents = [
            ("hidden", self.hidden),
            ("inner", self.inner),
            ("columns", made.columns),
            ("column_tiles", column_tiles),
        ];
        for (name, number) in extents.into_iter().chain(made.numbers) {
            made.arguments.integer(name, signed(number));
        }
        let (units, at) = match made.twice {
            true => ("4", "warp % 4 * 32 + c * 8"),
            false => ("8", "c / 4 * 128 + warp % 4 * 32 + c % 4 * 8"),
        };
        let wide = wide.to_string();
        let texts: Vec<(&str, &str)> = vec![
            ("WIDE", &wide),
            ("PRODUCTS", &made.statements),
            ("UNITS", units),
            ("AT", at),
            ("BEGIN", &made.begin),
            ("LOAD", &made.load),
            ("EACH", &made.each),
            ("STORE", &made.store),
            ("END", &made.end),
        ];
        let template = made.functions.concat() + ROWS;
        let blocks = self.row_tiles() * column_tiles;
        self.kernel("experts_tensor", &template, made.arguments, &texts, [blocks, TILES.into()])
    }

    /// A statement that stores two neighbours of a row.
    fn stored_pair(&self, to: &str, from: &str) -> String {
        format!(
            "                *(t_u32 *)({to} + at) = t_pack_{}({from}[0], {from}[1]);\n",
            self.dtype.name()
        )
    }

    /// Makes of a product what it is, rounded.
    fn kept(&self, made: &mut Product, to: &str, place: Argument) {
        self.narrow(to, "", place, &mut made.arguments);
        made.load += "                float out[2];\n";
        made.each += "out[i] = made[m][c][2 * r + i];";
        made.store += &self.stored_pair(to, "out");
    }

    /// The hidden units again, by their gates, over what comes back to them; the gradients of what the activation
    /// is of and of the factors; and parts of those of gates.
    fn towards_units(
        &self,
        [units, above, beside]: [Argument; 3],
        sums: Argument,
        lists: &Lists,
    ) -> Result<(Product, u64), Uncovered> {
        let mut made = self.units();
        let parts = self.inner.div_ceil(made.wide()) * PARTS;
        self.narrow("units", "", units, &mut made.arguments);
        self.narrow("above", "", above, &mut made.arguments);
        if self.gated {
            self.narrow("beside", "", beside, &mut made.arguments);
        }
        made.arguments.pointer("const float *lets", lists.lets);
        made.arguments.pointer("float *sums", sums);
        made.numbers.push(("parts", parts));
        let active = unary(self.activation, self.dtype, "before")?;
        let slope = derivative(self.activation, self.dtype, "before")?;
        made.begin =
            "            const float let = there ? lets[row] : 0;\n            float sum = 0;\n".to_owned();
        made.load += &format!(
            "                float come[2], unit[2], one[2]{};\n                t_load_{}_2(units + at, come);\n",
            if self.gated { ", other[2]" } else { "" },
            self.dtype.name()
        );
        made.each = self.taken_units();
        if let Some([most, least]) = self.bounds() {
            made.each += &format!("const int over = before > {most}; ");
            if self.gated {
                made.each += &format!("const int beyond = factor > {most} || factor < {least}; ");
            }
        }
        let [by_factor, factor] = if self.gated { [" * factor", "factor * "] } else { ["", ""] };
        made.each += &format!(
            "{}const float active = {active}, gradient = come[i] * let; unit[i] = active{by_factor}; \
             sum += unit[i] * come[i]; unit[i] *= let; one[i] = gradient * {factor}({slope}); ",
            self.bounded_units()
        );
        if self.gated {
            made.each += "other[i] = active * gradient; ";
        }
        if self.limit.is_some() {
            made.each += if self.gated {
                "if (over) one[i] = 0; if (beyond) other[i] = 0; "
            } else {
                "if (over) one[i] = 0; "
            };
        }
        made.store = self.stored_pair("units", "unit") + &self.stored_pair("above", "one");
        if self.gated {
            made.store += &self.stored_pair("beside", "other");
        }
        made.end = format!(
            "            sum += t_shuffle_f(sum, 1);\n            sum += t_shuffle_f(sum, 2);\n            \
             if (there && lane % 4 == 0) sums[row * parts + column / {} * {PARTS} + warp % 4] = sum;\n",
            made.wide()
        );
        Ok((made, parts))
    }

    /// Which operand the gradient of the result is.
    fn dy(&self) -> usize {
        self.biases.map_or(self.down + 1, |first| first + 2)
    }
}

impl Product {
    /// How many columns of a weight a block has.
    fn wide(&self) -> u64 {
        if self.twice { COLUMN_TILE / 2 } else { COLUMN_TILE }
    }
}

/// The result, of operands as they are declared.
pub(super) fn experts(mut run: Experts) -> Result<Work, Uncovered> {
    let lists = run.lists();
    let (units, outs) = (run.narrow_rows(run.inner), run.narrow_rows(run.hidden));
    let mut first = run.units();
    run.narrow("units", "", units, &mut first.arguments);
    let active = unary(run.activation, run.dtype, "before")?;
    let factor = if run.gated { " * factor" } else { "" };
    first.load += "                float out[2];\n";
    first.each = format!("{}{}out[i] = ({active}){factor};", run.taken_units(), run.bounded_units());
    first.store = run.stored_pair("units", "out");
    let mut second = Product { columns: run.hidden, ..Product::default() };
    run.narrow("units", "const ", units, &mut second.arguments);
    second.arguments.reads("down", run.dtype, Argument::Operand(run.down));
    run.multiplied(&mut second, (Of::Rows, "units"), (Lie::ByColumn, ["down"; 2]), "inner");
    run.kept(&mut second, "outs", outs);
    let mut launches = run.listing(&lists).to_vec();
    launches.push(run.product_launch(first, &lists));
    launches.push(run.product_launch(second, &lists));
    launches.push(run.joined(outs, "lets[row] * ", &lists));
    launches.retain(|launch| launch.blocks > 0);
    Ok(Work { launches, room: run.room })
}

/// The gradients towards all operands, which dy follows.
pub(super) fn gradient(mut run: Experts, made: &[Gradient]) -> Result<Work, Uncovered> {
    let lists = run.lists();
    let [units, above] = [(); 2].map(|()| run.narrow_rows(run.inner));
    let beside = if run.gated { run.narrow_rows(run.inner) } else { above };
    let moved = run.narrow_rows(run.hidden);
    // What comes back to units, which lies where they will.
    let mut come = Product { columns: run.inner, ..Product::default() };
    come.arguments.reads("dy", run.dtype, Argument::Operand(run.dy()));
    come.arguments.reads("down", run.dtype, Argument::Operand(run.down));
    run.multiplied(&mut come, (Of::Tokens, "dy"), (Lie::ByLine, ["down"; 2]), "hidden");
    run.kept(&mut come, "come", units);
    let parts = run.inner.div_ceil(run.units().wide()) * PARTS;
    let sums = run.bytes(4 * run.lines() * parts);
    let (towards, parts) = run.towards_units([units, above, beside], sums, &lists)?;
    let mut back = Product { columns: run.hidden, ..Product::default() };
    let mut given = vec![("above", "up", above, 2)];
    given.extend(run.gated.then_some(("beside", "gate", beside, 3)));
    for (rows, weights, place, operand) in given {
        run.narrow(rows, "const ", place, &mut back.arguments);
        back.arguments.reads(weights, run.dtype, Argument::Operand(operand));
        run.multiplied(&mut back, (Of::Rows, rows), (Lie::ByLine, [weights; 2]), "inner");
    }
    run.kept(&mut back, "moved", moved);
    let mut launches = run.listing(&lists).to_vec();
    launches.extend([come, towards, back].map(|it| run.product_launch(it, &lists)));
    launches.push(run.joined(moved, "", &lists));
    launches.push(run.slopes(sums, parts, &lists));
    launches.extend(run.first_weights([above, beside], made, &lists));
    launches.push(run.last_weights(units, &made[run.down], &lists));
    launches.extend(run.biases.map(|first| run.columns([above, beside], first, &lists)));
    launches.retain(|launch| launch.blocks > 0);
    Ok(Work { launches, room: run.room })
}

/// Where the weights begin that a thread copies, and whether they are there.
const PLACE_BY_COLUMN: &str = "        const int n = t_thread() / 4 + j % 2 * 64;
        b_there[j] = n < (j < 2 ? first_width : second_width);
        b_from[j] = (j < 2 ? first_weights : second_weights) + (b_there[j] ? n : 0) * summed + t_thread() % 4 * 8;
";
const PLACE_BY_LINE: &str = "        const int chunk = t_thread() % 32, n = chunk % 16 * 8;
        b_there[j] = n < (chunk < 16 ? first_width : second_width);
        b_from[j] = (chunk < 16 ? first_weights : second_weights) + (b_there[j] ? n : 0) + (t_thread() / 32 + j * 8) * apart;
";

/// Copies of them.
const COPY_BY_COLUMN: &str =
    "        t_copy_async(to + (row + j * 64) * 32 + (chunk ^ row / 2 % 4) * 8, b[j] + (there ? start : 0), there && b_there[j]);
";
const COPY_BY_LINE: &str =
    "        const int line = t_thread() / 32 + j * 8, is = b_there[j] && start + line < summed;
        t_copy_async(to + line * 256 + (t_thread() % 32 ^ line % 8) * 8, b[j] + (is ? start : 0) * apart, is);
";

/// Parts of them as tensor cores take them.
const RIGHT_BY_COLUMN: &str =
    "                const int n = c / 4 * 128 + warp % 4 * 32 + c % 4 * 8 + lane / 16 * 8 + lane % 8, chunk = half * 2 + lane / 8 % 2;
                t_load_matrices(right, b_tile + n * 32 + (chunk ^ lane / 2 % 4) * 8);
";
const RIGHT_BY_LINE: &str =
    "                const int line = half * 16 + lane % 16, chunk = c / 4 * 16 + warp % 4 * 4 + c % 4 + lane / 16;
                t_load_matrices_turned(right, b_tile + line * 256 + (chunk ^ lane % 8) * 8);
";
