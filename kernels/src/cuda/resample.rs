//! Resampling: each element of its neighbours, weighted, along all dimensions at once.

use std::fmt::Write as _;

use planner_ir::{DType, Interpolation, Resize};

use super::indexing::launch;
use super::launch::{Argument, Piece, Uncovered, Work};
use super::number::{computed, converted, literal};
use super::strides::{Arguments, own_strides, signed};
use super::text::filled;

const TEMPLATE: &str = include_str!("templates/resample.cu");

/// The threads of a block.
const THREADS: u64 = 256;

/// The value resampled to the shape of y: `q = (i + 1/2) / scale - 1/2` or `i / scale` along each
/// dimension, between its first and last element; there the nearest one, or two with weights.
pub(super) fn resize(resize: &Resize, x: &Piece, y: &Piece) -> Result<Work, Uncovered> {
    let (from, to, dtype) = (&x.type_.shape, &y.type_.shape, y.type_.dtype);
    if resize.scales.len() != from.len() || to.len() != from.len() {
        return Err(Uncovered::Missing(format!("{} resampled to {}", x.type_, y.type_)));
    }
    let count = y.type_.elements();
    if count == 0 || x.type_.elements() == 0 {
        return Ok(Work::default());
    }
    let mut arguments = Arguments::default();
    arguments.reads("x", x.type_.dtype, Argument::Operand(0));
    arguments.writes("y", dtype, Argument::Result(0));
    arguments.integer("count", signed(count));
    let (mut places, mut weights, mut linear) = (String::new(), String::new(), 0);
    let wide = if dtype.is_float() { computed(dtype) } else { "double" };
    for (dim, step) in own_strides(from).into_iter().enumerate().rev() {
        let (whole, held) = (x.span(dim), y.span(dim));
        for (name, number) in [
            ("e", signed(to[dim])),
            ("start", signed(held.start)),
            ("first", signed(whole.start)),
            ("last", signed(whole.extent) - 1),
            ("step", step),
        ] {
            arguments.integer(&format!("{name}{dim}"), number);
        }
        let scale = resize.scales[dim].0;
        let index = format!("(double)(start{dim} + i{dim})");
        let position = match resize.half_pixel {
            true => format!("({index} + 0.5) / {} - 0.5", literal(DType::F64, scale)),
            false => format!("{index} / {}", literal(DType::F64, scale)),
        };
        let nearest = match resize.interpolation {
            Interpolation::NearestFloor | Interpolation::Linear => format!("t_floor_d(q{dim})"),
            Interpolation::NearestPreferFloor => format!("t_ceil_d(q{dim} - 0.5)"),
        };
        // Writing to a string does not fail.
        let _ = writeln!(
            places,
            "    const t_i64 i{dim} = left % e{dim}; left /= e{dim};\n    \
             double q{dim} = {position};\n    \
             q{dim} = q{dim} < 0.0 ? 0.0 : q{dim} > (double)last{dim} ? (double)last{dim} : q{dim};\n    \
             place += ((t_i64){nearest} - first{dim}) * step{dim};"
        );
        // Along a dimension whose extent stays, nothing lies between elements.
        #[expect(clippy::float_cmp, reason = "a scale of exactly 1 changes nothing")]
        let stays = scale == 1.0;
        if resize.interpolation == Interpolation::Linear && !stays {
            let _ = writeln!(places, "    const double w{dim} = q{dim} - t_floor_d(q{dim});");
            let _ = writeln!(
                weights,
                "        weight *= ({wide})(corner >> {linear} & 1 ? w{dim} : 1.0 - w{dim});\n        \
                 from += (corner >> {linear} & 1) * step{dim};"
            );
            linear += 1;
        }
    }
    let made = if dtype.is_float() { "sum".to_owned() } else { converted(DType::F64, dtype, "sum") };
    let source = filled(
        TEMPLATE,
        &[
            ("PARAMETERS", &arguments.text()),
            ("PLACES", &places),
            ("WEIGHTS", &weights),
            ("CORNERS", &(1_u64 << linear).to_string()),
            ("W", wide),
            ("T", computed(dtype)),
            ("D", dtype.name()),
            ("MADE", &made),
        ],
    );
    let launch = launch("resample", &source, arguments, count.div_ceil(THREADS), 0);
    Ok(Work { launches: vec![launch], room: 0 })
}
