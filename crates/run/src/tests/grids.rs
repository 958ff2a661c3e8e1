//! Linear operations on grids of three axes: Tesseract's, and a loop along each.

use planner_ir::{Contract, DType, Label, Mesh, Move, Op, Type, parse_layout, parse_partition};

use super::check;
use super::sketch::Sketch;

/// The three products of a linear operation: the operands and the result, in index notation.
const PHASES: [[&str; 3]; 3] = [["mk", "kn", "mn"], ["mn", "kn", "mk"], ["mk", "mn", "kn"]];

/// X: [m, k], W: [k, n] and Y: [m, n], and of each the layout at rest.
struct Linear<'a> {
    mesh: Mesh,
    extents: [u64; 3],
    rest: [&'a str; 3],
}

impl Linear<'_> {
    /// The number of bytes of X, W and Y in 32 bits.
    fn bytes(&self) -> [u64; 3] {
        let [m, k, n] = self.extents;
        [m * k, k * n, m * n].map(|elements| elements * DType::F32.bytes())
    }

    fn extent(&self, letter: char) -> u64 {
        self.extents["mkn".find(letter).unwrap()]
    }

    fn rest(&self, letters: &str) -> Vec<Vec<planner_ir::Digit>> {
        let at = PHASES[0].iter().position(|it| *it == letters).unwrap();
        parse_layout(&self.mesh, self.rest[at]).unwrap().dims
    }

    /// What all ranks together receive in a phase (bytes), held to the reference on numbers of which no
    /// two ranks have the same.
    fn received(&self, phase: usize, partition: &str) -> u64 {
        let names = PHASES[phase];
        let labels = |text: &str| text.bytes().map(|it| Label(it - b'a')).collect();
        let [left, right, result] = names.map(labels);
        let op = Op::Contract(Contract { left, right, result });
        let mut sketch = Sketch::new(&self.mesh);
        let operands = [names[0], names[1]].map(|name| {
            let shape: Vec<u64> = name.chars().map(|it| self.extent(it)).collect();
            sketch.input(name, Type::new(DType::F32, shape), self.rest(name))
        });
        let partition = parse_partition(&self.mesh, partition).unwrap();
        let made = sketch.node(op, &operands, partition)[0];
        let rest = self.rest(names[2]);
        // What is owed is scattered where it is at rest in more parts than it is made in.
        let parts = sketch.plan.layouts[made.0].dims[0].len();
        let digits = rest[0][parts..].to_vec();
        let mut scatter = (!digits.is_empty()).then_some(Move::ReduceScatter { dim: 0, digits });
        sketch.output("result", made, rest, &mut |_, _, _, _| scatter.take());
        check(&sketch.plan).received.iter().map(|it| it.1).sum()
    }
}

/// Tesseract [q, q, d], where [q, q, 1] is SUMMA and [1, 1, d] data parallelism: by the bytes for each
/// of p ranks
///
/// ```text
/// Y: (q − 1)(X + d W)/p     dX: (q − 1)(X + d W)/p     dW: (q − 1)(X + d W)/p + 2(d − 1) W/p
/// ```
#[test]
fn grids_of_tesseract_receive_what_its_formula_says_in_all_phases() {
    for [q, d] in [[1, 2], [1, 3], [1, 4], [2, 1], [3, 1], [4, 1], [2, 2], [2, 3], [3, 2], [4, 4]] {
        let mut axes: Vec<String> = if q == 1 { vec![] } else { vec![format!("r={q},c={q}")] };
        axes.extend((d > 1).then(|| format!("d={d}")));
        let (rows, columns) = match [q, d] {
            [1, _] => ("d", "-"),
            [_, 1] => ("r", "c"),
            _ => ("d.r", "c"),
        };
        let activation = format!("[{rows},{columns}]");
        let weight = if q == 1 { "[-,-]" } else { "[r,c]" };
        let linear = Linear {
            mesh: Mesh::parse(&axes.join(",")).unwrap(),
            extents: [q * d, 2 * q, 3 * q],
            rest: [&activation, weight, &activation],
        };
        // The first of k and n is streamed where it is summed, and where it is what is made.
        let partition = |loops: [&str; 3]| match q {
            1 => "[d,-,-]".to_owned(),
            _ => format!("{q} steps [{}] streams r,c", loops.join(",")),
        };
        let time = format!("(@t:{q})");
        let [x, w, _] = linear.bytes();
        let shared = (q - 1) * (x + d * w);
        assert_eq!(linear.received(0, &partition([rows, &time, "c"])), shared, "Y on [{q}, {q}, {d}]");
        assert_eq!(linear.received(1, &partition([rows, "c", &time])), shared, "dX on [{q}, {q}, {d}]");
        let with_depth = shared + 2 * (d - 1) * w;
        assert_eq!(linear.received(2, &partition([rows, &time, "c"])), with_depth, "dW on [{q}, {q}, {d}]");
    }
}

/// A loop along each of three axes of p, q and r ranks, each matrix at rest in as many parts as there
/// are ranks: two are gathered along the axis that does not split them, and the third is summed and
/// scattered. All ranks together receive in each phase
///
/// ```text
/// (r − 1) X + (p − 1) W + (q − 1) Y
/// ```
///
/// Source: Agarwal, Balle, Gustavson, Joshi and Palkar, "A three-dimensional approach to parallel matrix
/// multiplication", IBM Journal of Research and Development 39(5), 1995.
#[test]
fn three_loops_along_three_axes_gather_two_matrices_and_scatter_the_third() {
    for [p, q, r] in [[2, 2, 2], [3, 2, 2], [2, 3, 2], [2, 2, 3]] {
        let linear = Linear {
            mesh: Mesh::parse(&format!("a={p},b={q},c={r}")).unwrap(),
            extents: [p * q * r, 2 * p * q * r, 3 * p * q * r],
            rest: ["[a.c,b]", "[b.a,c]", "[a.b,c]"],
        };
        let [x, w, y] = linear.bytes();
        let all = (r - 1) * x + (p - 1) * w + (q - 1) * y;
        // Loops in the order in which operands have them first.
        assert_eq!(linear.received(0, "[a,b,c]"), all, "Y on {p}, {q}, {r}");
        assert_eq!(linear.received(1, "[a,c,b]"), all, "dX on {p}, {q}, {r}");
        assert_eq!(linear.received(2, "[a,b,c]"), all, "dW on {p}, {q}, {r}");
    }
}

/// The same with what is used and made at rest: nothing is gathered, and what is summed is all-reduced.
#[test]
fn three_loops_along_three_axes_reduce_what_is_not_scattered() {
    let linear = Linear {
        mesh: Mesh::parse("a=2,b=2,c=2").unwrap(),
        extents: [4, 8, 12],
        rest: ["[a,b]", "[b,c]", "[a,c]"],
    };
    let [x, w, y] = linear.bytes();
    assert_eq!(linear.received(0, "[a,b,c]"), 2 * y);
    assert_eq!(linear.received(1, "[a,c,b]"), 2 * x);
    assert_eq!(linear.received(2, "[a,b,c]"), 2 * w);
}
