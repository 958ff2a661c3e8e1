//! Mixtures of experts and their gradients.
//!
//! The tokens of each expert are listed first, and products are made of tiles of them: what an expert
//! computes is what its gate lets through. A token has a row for each expert that it may use, in which
//! what the expert makes of it stands; tokens take their rows together in the order of experts, and
//! experts sum over their tokens in order, so that nothing depends on which block is faster.

mod tensor; // experts of 16 bits, on tensor cores
mod weights; // gradients of weights, and what they are added to

use planner_ir::{DType, Real, Unary};

use super::functions::{derivative, unary};
use super::indexing::launch;
use super::launch::{Argument, Launch, Piece, Uncovered, Work};
use super::number::{computed, literal, stored, suffix};
use super::strides::{Arguments, signed};
use super::text::filled;
use weights::Gradient;

const LIST: &str = include_str!("templates/experts_list.cu");
const PRODUCT: &str = include_str!("templates/experts_product.cu");
const ROWS: &str = include_str!("templates/experts_rows.cu");
const TOKENS: &str = include_str!("templates/experts_tokens.cu");
const GATES: &str = include_str!("templates/experts_gates.cu");
const SUMS: &str = include_str!("templates/experts_sums.cu");

/// The threads of a block, its warps, and the rows and columns of a tile.
const THREADS: u64 = 256;
const WARPS: u64 = 8;
const TILE: u64 = 32;

/// The shared memory for what a block's threads chose (bytes).
const CHOSEN: u32 = 256 * 4;

/// The shared memory of two tiles, with rows longer than they have to be (elements).
const TILES: u32 = 2 * 32 * 33;

/// What all kernels are made from: operands x, gates, up, perhaps gate, down, and perhaps biases.
struct Experts {
    activation: Unary,
    /// What gated units are bounded by.
    limit: Option<Real>,
    dtype: DType,
    gated: bool,
    /// Where the last weights are, and the first biases if there are some.
    down: usize,
    biases: Option<usize>,
    tokens: u64,
    hidden: u64,
    inner: u64,
    experts: u64,
    /// How many experts a token uses at most.
    slots: u64,
    /// How many bytes of the room are given away.
    room: u64,
    /// Where the rows of experts are, and how many each has.
    lists: [Argument; 2],
}

impl Experts {
    fn new(
        activation: Unary,
        limit: Option<Real>,
        active: u64,
        operands: &[Piece],
    ) -> Result<Self, Uncovered> {
        let misfit = || Uncovered::Missing(format!("experts of {} operands", operands.len()));
        let gated = operands.len() > 4;
        let [x, gates, up] = operands.first_chunk::<3>().ok_or_else(misfit)?;
        let dtype = x.type_.dtype;
        let (&[tokens, hidden], &[_, experts], &[_, inner, _]) =
            (&*x.type_.shape, &*gates.type_.shape, &*up.type_.shape)
        else {
            return Err(misfit());
        };
        if !dtype.is_float() || operands.iter().any(|it| it.type_.dtype != dtype) {
            return Err(Uncovered::Missing(format!("experts of {dtype} and other elements")));
        }
        let slots = active.min(experts);
        let made = Self {
            activation,
            limit,
            dtype,
            gated,
            down: if gated { 4 } else { 3 },
            biases: (operands.len() == 7).then_some(5),
            tokens,
            hidden,
            inner,
            experts,
            slots,
            room: 0,
            lists: [Argument::Room(0); 2],
        };
        Ok(made)
    }

    /// The same with room for the rows of each expert.
    fn listed(mut self) -> Self {
        self.lists = [self.bytes(4 * self.experts * self.tokens), self.bytes(4 * self.experts)];
        self
    }

    /// So many bytes more of the room.
    fn bytes(&mut self, bytes: u64) -> Argument {
        let start = self.room;
        self.room += bytes.next_multiple_of(16);
        Argument::Room(start)
    }

    /// Room for all rows, of so many columns.
    fn rows_of(&mut self, columns: u64) -> Argument {
        self.bytes(self.tokens * self.slots * columns * self.wide().bytes())
    }

    /// The elements that are computed with.
    fn wide(&self) -> DType {
        if self.dtype == DType::F64 { DType::F64 } else { DType::F32 }
    }

    fn texts(&self) -> Vec<(&'static str, &'static str)> {
        let dtype = self.dtype;
        vec![("C", stored(dtype)), ("D", dtype.name()), ("T", computed(dtype)), ("S", suffix(dtype))]
    }

    fn filled(&self, template: &str, more: &[(&str, &str)]) -> String {
        let mut texts: Vec<(&str, &str)> = self.texts();
        texts.extend_from_slice(more);
        filled(template, &texts)
    }

    fn shared(&self) -> u32 {
        if self.dtype == DType::F64 { TILES * 8 } else { TILES * 4 }
    }

    /// The pointer to rows that are read or written.
    fn pointer(&self, name: &str, is_const: &str, place: Argument, to: &mut Arguments) {
        to.pointer(&format!("{is_const}{} *{name}", computed(self.dtype)), place);
    }

    fn extents(&self, to: &mut Arguments, columns: u64) {
        for (name, number) in [
            ("tokens", self.tokens),
            ("experts", self.experts),
            ("hidden", self.hidden),
            ("inner", self.inner),
            ("slots", self.slots),
            ("columns", columns),
        ] {
            to.integer(name, signed(number));
        }
    }

    /// The rows of each expert's tokens.
    fn list(&self) -> Launch {
        let mut arguments = Arguments::default();
        arguments.pointer("gates", Argument::Operand(1));
        arguments.pointer("rows", self.lists[0]);
        arguments.pointer("counts", self.lists[1]);
        for (name, number) in [("tokens", self.tokens), ("experts", self.experts), ("slots", self.slots)] {
            arguments.integer(name, signed(number));
        }
        launch("experts_list", &self.filled(LIST, &[]), arguments, self.experts, CHOSEN)
    }

    /// A kernel that makes rows: what it is given and writes besides lists, its products and what it
    /// stores of them; of so many columns.
    fn rows(&self, given: impl FnOnce(&mut Arguments), [products, store]: [&str; 2], columns: u64) -> Launch {
        let mut arguments = Arguments::default();
        given(&mut arguments);
        arguments.pointer("const t_i32 *rows", self.lists[0]);
        arguments.pointer("const t_i32 *counts", self.lists[1]);
        self.extents(&mut arguments, columns);
        let (own, wide) = (self.dtype.name(), self.wide().name());
        // Of tokens, and of rows.
        let product =
            |x: &str, a: &str, loaded: &str| self.filled(PRODUCT, &[("X", x), ("A", a), ("L", loaded)]);
        let (tokens, lines) =
            (product("tokens", stored(self.dtype), own), product("rows", computed(self.dtype), wide));
        let parameters = arguments.text();
        let texts = [("PARAMETERS", parameters.as_str()), ("PRODUCTS", products), ("STORE", store)];
        let kernel = self.filled(ROWS, &texts);
        let used = |name: &str, text: String| if products.contains(name) { text } else { String::new() };
        let source = used("NAME_tokens", tokens) + &used("NAME_rows", lines) + &kernel;
        let blocks = self.experts * self.tokens.div_ceil(TILE) * columns.div_ceil(TILE);
        launch("experts_rows", &source, arguments, blocks, self.shared())
    }

    /// The statement of a product, of x or dy or rows, with an expert's weights.
    fn product(&self, made: &str, [of, weights]: [&str; 2], [summed, steps]: [&str; 2]) -> String {
        let (function, slots) = if matches!(of, "x" | "dy") { ("tokens", "slots") } else { ("rows", "1") };
        format!(
            "    $NAME_{function}({made}, left, right, rows, {slots}, first, count, {of}, \
             {weights} + expert * hidden * inner, columns, column, {summed}, {steps});\n"
        )
    }

    /// The statements of the products that units are made of.
    fn products(&self) -> String {
        let mut products = self.product("before", ["x", "up"], ["hidden", "hidden, 1"]);
        if self.gated {
            products += &self.product("factor", ["x", "gate"], ["hidden", "hidden, 1"]);
        }
        products
    }

    /// Declares what these are of, and what is added to them.
    fn declare_products(&self, to: &mut Arguments) {
        to.reads("up", self.dtype, Argument::Operand(2));
        if self.gated {
            to.reads("gate", self.dtype, Argument::Operand(3));
        }
        if let Some(first) = self.biases {
            to.reads("first_bias", self.dtype, Argument::Operand(first));
            to.reads("second_bias", self.dtype, Argument::Operand(first + 1));
        }
    }

    /// Statements that add to both products of column `n` what is added to them.
    fn added(&self) -> String {
        let one = |to: &str, bias: &str| {
            let (t, d) = (computed(self.dtype), self.dtype.name());
            format!("{{ {t} bias; t_load_{d}_1({bias} + expert * inner + n, &bias); {to}[r] += bias; }} ")
        };
        match self.biases {
            Some(_) => one("before", "first_bias") + &one("factor", "second_bias"),
            None => String::new(),
        }
    }

    /// Statements that bound both products, and add 1 to the second.
    fn limited(&self) -> String {
        let Some(Real(limit)) = self.limit else { return String::new() };
        let (s, [most, least]) = (suffix(self.dtype), [limit, -limit].map(|it| literal(self.dtype, it)));
        format!(
            "before[r] = t_min_{s}(before[r], {most}); \
             factor[r] = t_max_{s}(t_min_{s}(factor[r], {most}), {least}) + 1; "
        )
    }

    /// What becomes of both products before they are units.
    fn bounded(&self) -> String {
        self.added() + &self.limited()
    }

    /// The sums of the rows of each expert's tokens.
    fn sums(&self, made: Argument, y: &Piece, result: usize) -> Launch {
        let mut arguments = Arguments::default();
        self.pointer("made", "const ", made, &mut arguments);
        arguments.pointer("const t_i32 *rows", self.lists[0]);
        arguments.pointer("const t_i32 *counts", self.lists[1]);
        arguments.writes("y", y.type_.dtype, Argument::Result(result));
        let count = self.experts * self.inner;
        for (name, number) in [("count", count), ("tokens", self.tokens), ("inner", self.inner)] {
            arguments.integer(name, signed(number));
        }
        let parameters = arguments.text();
        let texts = [("PARAMETERS", parameters.as_str()), ("F", y.type_.dtype.name())];
        launch("experts_sums", &self.filled(SUMS, &texts), arguments, count.div_ceil(THREADS), 0)
    }

    /// What tokens get of their rows, each times its gate or as it is.
    fn taken(&self, made: Argument, weight: &str, y: &Piece, result: usize) -> Launch {
        let mut arguments = Arguments::default();
        arguments.reads("gates", self.dtype, Argument::Operand(1));
        self.pointer("made", "const ", made, &mut arguments);
        arguments.writes("y", y.type_.dtype, Argument::Result(result));
        let count = self.tokens * self.hidden;
        for (name, number) in
            [("count", count), ("experts", self.experts), ("hidden", self.hidden), ("slots", self.slots)]
        {
            arguments.integer(name, signed(number));
        }
        let parameters = arguments.text();
        let texts = [("PARAMETERS", parameters.as_str()), ("WEIGHT", weight), ("F", y.type_.dtype.name())];
        launch("experts_tokens", &self.filled(TOKENS, &texts), arguments, count.div_ceil(THREADS), 0)
    }

    /// The declaration of what products are made in.
    fn clear(&self, names: &[&str]) -> String {
        let type_ = computed(self.dtype);
        names.iter().map(|name| format!("    {type_} {name}[4] = {{0, 0, 0, 0}};\n")).collect()
    }
}

/// `y[t] = sum_e gates[t,e] * (activation(x[t] up[e]) * (x[t] gate[e])) down[e]`.
pub(super) fn experts(
    activation: Unary,
    limit: Option<Real>,
    active: u64,
    operands: &[Piece],
    y: &Piece,
) -> Result<Work, Uncovered> {
    let run = Experts::new(activation, limit, active, operands)?;
    if y.type_.elements() == 0 {
        return Ok(Work::default());
    }
    if run.is_for_tensor_cores() {
        return tensor::experts(run);
    }
    let mut run = run.listed();
    let (units, outs) = (run.rows_of(run.inner), run.rows_of(run.hidden));
    let products = run.clear(&["before", "factor"]) + &run.products();
    let active = unary(activation, run.dtype, "before[r]")?;
    let factor = if run.gated { " * factor[r]" } else { "" };
    let given = |to: &mut Arguments| {
        to.reads("x", run.dtype, Argument::Operand(0));
        run.declare_products(to);
        run.pointer("units", "", units, to);
    };
    let store = format!("{}units[at] = ({active}){factor};", run.bounded());
    let first = run.rows(given, [&products, &store], run.inner);
    let products = run.clear(&["out"]) + &run.product("out", ["units", "down"], ["inner", "inner, 1"]);
    let given = |to: &mut Arguments| {
        run.pointer("units", "const ", units, to);
        to.reads("down", run.dtype, Argument::Operand(run.down));
        run.pointer("outs", "", outs, to);
    };
    let second = run.rows(given, [&products, "outs[at] = out[r];"], run.hidden);
    let mut launches = vec![run.list(), first, second, run.taken(outs, "gate * ", y, 0)];
    launches.retain(|launch| launch.blocks > 0);
    Ok(Work { launches, room: run.room })
}

/// The gradients towards x, gates, up, perhaps gate, down, and perhaps biases; operands the same, and dy, and then
/// what results are added to, each with the number of the result.
pub(super) fn experts_gradient(
    (activation, limit, active): (Unary, Option<Real>, u64),
    addends: &[(usize, usize)],
    operands: &[Piece],
    results: &[Piece],
) -> Result<Work, Uncovered> {
    let dy = operands.len().saturating_sub(addends.len() + 1);
    if results.len() != dy {
        return Err(Uncovered::Missing(format!("{} gradients of experts", results.len())));
    }
    let run = Experts::new(activation, limit, active, &operands[..dy])?;
    let made = Gradient::of(addends, operands, results)?;
    if run.is_for_tensor_cores() && run.is_narrow(results) {
        return tensor::gradient(run, &made);
    }
    let mut run = run.listed();
    let [units, back, above, beside] = [(); 4].map(|()| run.rows_of(run.inner));
    let moved = run.rows_of(run.hidden);
    let (gated, down) = (run.gated, run.down);
    let first = run.backward([units, back, above, beside], dy)?;
    let mut products = run.clear(&["out"]);
    if gated {
        products += &run.product("out", ["beside", "gate"], ["inner", "1, hidden"]);
    }
    products += &run.product("out", ["above", "up"], ["inner", "1, hidden"]);
    let given = |to: &mut Arguments| {
        run.pointer("above", "const ", above, to);
        to.reads("up", run.dtype, Argument::Operand(2));
        if gated {
            run.pointer("beside", "const ", beside, to);
            to.reads("gate", run.dtype, Argument::Operand(3));
        }
        run.pointer("moved", "", moved, to);
    };
    let second = run.rows(given, [&products, "moved[at] = out[r];"], run.hidden);
    let mut launches = vec![run.list(), first, second];
    launches.push(run.taken(moved, "", &results[0], 0));
    launches.push(run.gates([units, back], &results[1]));
    launches.push(run.weights([(above, false), (Argument::Operand(0), true)], &made[2]));
    if gated {
        launches.push(run.weights([(beside, false), (Argument::Operand(0), true)], &made[3]));
    }
    launches.push(run.weights([(Argument::Operand(dy), true), (units, false)], &made[down]));
    for (made, result) in [above, beside].into_iter().zip(run.biases.map_or(0..0, |first| first..first + 2)) {
        launches.push(run.sums(made, &results[result], result));
    }
    launches.retain(|launch| launch.blocks > 0);
    Ok(Work { launches, room: run.room })
}

impl Experts {
    /// The hidden units again, what of dy comes back to them without the gate, and with it the
    /// gradients of what the activation is of and of the factors.
    fn backward(&self, [units, back, above, beside]: [Argument; 4], dy: usize) -> Result<Launch, Uncovered> {
        let mut products = self.clear(&["before", "factor", "come"]) + &self.products();
        products += &self.product("come", ["dy", "down"], ["hidden", "1, inner"]);
        let active = unary(self.activation, self.dtype, "before[r]")?;
        let slope = derivative(self.activation, self.dtype, "before[r]")?;
        let t = computed(self.dtype);
        let (factor, others) = match self.gated {
            true => ("factor[r]", "beside[at] = active * gradient;"),
            false => ("1", ""),
        };
        let [within, ends] = match self.limit {
            Some(Real(limit)) => {
                let [most, least] = [limit, -limit].map(|it| literal(self.dtype, it));
                [
                    format!(
                        "const int over = before[r] > {most}, beyond = factor[r] > {most} || factor[r] < {least}; "
                    ),
                    " if (over) above[at] = 0; if (beyond) beside[at] = 0;".to_owned(),
                ]
            }
            None => [const { String::new() }; 2],
        };
        let store = format!(
            "{t} let; t_load_{}_1(gates + row / slots * experts + expert, &let); {}{within}{}\
             const {t} active = {active}, gradient = come[r] * let; \
             units[at] = active * {factor}; back[at] = come[r]; above[at] = gradient * {factor} * ({slope}); \
             {others}{ends}",
            self.dtype.name(),
            self.added(),
            self.limited(),
        );
        let given = |to: &mut Arguments| {
            for (name, operand) in [("x", 0), ("gates", 1), ("down", self.down), ("dy", dy)] {
                to.reads(name, self.dtype, Argument::Operand(operand));
            }
            self.declare_products(to);
            for (name, place) in [("units", units), ("back", back), ("above", above), ("beside", beside)] {
                self.pointer(name, "", place, to);
            }
        };
        Ok(self.rows(given, [&products, &store], self.inner))
    }

    fn gates(&self, [units, back]: [Argument; 2], y: &Piece) -> Launch {
        let mut arguments = Arguments::default();
        arguments.reads("gates", self.dtype, Argument::Operand(1));
        self.pointer("units", "const ", units, &mut arguments);
        self.pointer("back", "const ", back, &mut arguments);
        arguments.writes("y", y.type_.dtype, Argument::Result(1));
        let count = self.tokens * self.experts;
        for (name, number) in
            [("count", count), ("experts", self.experts), ("inner", self.inner), ("slots", self.slots)]
        {
            arguments.integer(name, signed(number));
        }
        let parameters = arguments.text();
        let texts = [("PARAMETERS", parameters.as_str()), ("F", y.type_.dtype.name())];
        launch("experts_gates", &self.filled(GATES, &texts), arguments, count.div_ceil(WARPS), 0)
    }
}
