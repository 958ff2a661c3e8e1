//! The gradients of weights of experts, each perhaps added to something.

use planner_ir::DType;

use super::super::indexing::launch;
use super::super::launch::{Argument, Launch, Piece, Uncovered};
use super::super::number::computed;
use super::super::strides::{Arguments, signed};
use super::{Experts, TILE};

const WEIGHTS: &str = include_str!("../templates/experts_weights.cu");

/// A result: its elements, and the operand that it is added to, if it is to one.
#[derive(Clone, Copy, Debug)]
pub(super) struct Gradient {
    result: usize,
    pub(super) dtype: DType,
    addend: Option<usize>,
    /// The last two extents of weights.
    extents: [u64; 2],
}

impl Gradient {
    /// All results, of which these are added to operands.
    pub(super) fn of(
        addends: &[(usize, usize)],
        operands: &[Piece],
        results: &[Piece],
    ) -> Result<Vec<Self>, Uncovered> {
        let one = |(result, y): (usize, &Piece)| {
            let addend = addends.iter().find(|it| it.1 == result).map(|it| it.0);
            let dtype = y.type_.dtype;
            if let Some(other) = addend.map(|it| operands[it].type_.dtype).filter(|it| *it != dtype) {
                let message = format!("a gradient of experts of {dtype} that is added to {other}");
                return Err(Uncovered::Missing(message));
            }
            let extents = y.type_.shape.last_chunk::<2>().copied().unwrap_or([0; 2]);
            Ok(Self { result, dtype, addend, extents })
        };
        results.iter().enumerate().map(one).collect()
    }

    /// Whether one kernel can make both.
    pub(super) fn is_as(&self, other: &Self) -> bool {
        self.dtype == other.dtype && self.addend.is_some() == other.addend.is_some()
    }

    /// Whether it is added to something.
    pub(super) fn adds(&self) -> bool {
        self.addend.is_some()
    }

    /// The pointers to it, of that name, and to what it is added to, of that name and `_sum`.
    pub(super) fn declare(&self, name: &str, to: &mut Arguments) {
        to.writes(name, self.dtype, Argument::Result(self.result));
        if let Some(addend) = self.addend {
            to.reads(&format!("{name}_sum"), self.dtype, Argument::Operand(addend));
        }
    }

    /// The statement that stores a number, which is made in these elements.
    fn stored(&self, made: DType) -> String {
        let (f, t) = (self.dtype.name(), computed(made));
        let at = "(expert * m_extent + m) * n_extent + n";
        match self.addend {
            None => format!("t_store_{f}_1(y + {at}, made + r);"),
            Some(_) => format!(
                "{{ const t_i64 at = {at}; {t} so_far; t_load_{f}_1(y_sum + at, &so_far); made[r] += so_far; \
                 t_store_{f}_1(y + at, made + r); }}"
            ),
        }
    }
}

impl Experts {
    /// Whether results are of 16 bits but for those of weights, which may be in f32.
    pub(super) fn is_narrow(&self, results: &[Piece]) -> bool {
        let fits = |(result, y): (usize, &Piece)| {
            let is_weight = (2..=self.down).contains(&result);
            y.type_.dtype == self.dtype || is_weight && y.type_.dtype == DType::F32
        };
        results.iter().enumerate().all(fits)
    }

    /// The sum over each expert's tokens of products of what stands at them, or in their rows; what
    /// is dy's goes by the gate.
    pub(super) fn weights(&self, [left, right]: [(Argument, bool); 2], y: &Gradient) -> Launch {
        let mut arguments = Arguments::default();
        let mut declare = |name: &str, (place, of_tokens): (Argument, bool)| {
            match of_tokens {
                true => arguments.reads(name, self.dtype, place),
                false => self.pointer(name, "const ", place, &mut arguments),
            }
            let dtype = if of_tokens { self.dtype } else { self.wide() };
            (dtype.name(), if of_tokens { "token" } else { "row" })
        };
        let ((l, left_at), (r, right_at)) = (declare("a", left), declare("b", right));
        arguments.pointer("const t_i32 *rows", self.lists[0]);
        arguments.pointer("const t_i32 *counts", self.lists[1]);
        let scale = if left.1 {
            arguments.reads("gates", self.dtype, Argument::Operand(1));
            format!(
                "                {t} gate; t_load_{}_1(gates + token * experts + expert, &gate); x *= gate;\n",
                self.dtype.name(),
                t = computed(self.dtype)
            )
        } else {
            String::new()
        };
        y.declare("y", &mut arguments);
        let [m, n] = y.extents;
        for (name, number) in [
            ("tokens", self.tokens),
            ("experts", self.experts),
            ("slots", self.slots),
            ("m_extent", m),
            ("n_extent", n),
        ] {
            arguments.integer(name, signed(number));
        }
        let parameters = arguments.text();
        let store = y.stored(self.dtype);
        let texts = [
            ("PARAMETERS", parameters.as_str()),
            ("L", l),
            ("R", r),
            ("LEFT", left_at),
            ("RIGHT", right_at),
            ("SCALE", &scale),
            ("STORE", &store),
        ];
        let blocks = self.experts * m.div_ceil(TILE) * n.div_ceil(TILE);
        launch("experts_weights", &self.filled(WEIGHTS, &texts), arguments, blocks, self.shared())
    }
}
