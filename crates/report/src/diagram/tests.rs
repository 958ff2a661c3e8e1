//! Tests of diagrams, and of the pictures of the page on space and time.

use std::fs;
use std::path::PathBuf;

use expect_test::expect;
use planner_ir::{DType, Mesh, Op, Type, parse_op, parse_partition};

use super::{Diagram, diagram};

/// A product of matrices.
const PRODUCT: &str = "contract \"mk,kn->mn\"";
/// Attention in which a query sees what comes before it.
const CAUSAL: &str = "attention scale=1.0 causal=true softcap=0.0 window=none";

/// The diagram of a product's partition.
fn drawn(mesh: &str, partition: &str) -> Diagram {
    drawn_of(PRODUCT, mesh, partition)
}

/// The diagram of an operation's partition, on operands of two rows for each device: attention's
/// are queries, keys and values of one head.
fn drawn_of(op: &str, mesh: &str, partition: &str) -> Diagram {
    let mesh = Mesh::parse(mesh).unwrap();
    let rows = mesh.devices() * 2;
    let shapes: Vec<Vec<u64>> =
        if op == PRODUCT { vec![vec![rows, rows]; 2] } else { vec![vec![1, 1, rows, 2]; 3] };
    let op: Op = parse_op(op).unwrap();
    let operands: Vec<Type> = shapes.into_iter().map(|shape| Type::new(DType::F32, shape)).collect();
    let results = op.infer(&operands).unwrap();
    let partition = parse_partition(&mesh, partition).unwrap();
    let loops = op.loops(&operands, &results);
    assert_eq!(partition.check(&mesh, &loops), Ok(()));
    let drawn = diagram(&mesh, &op, (&operands, &results), &partition);
    // What is seen to come is what moves.
    let drawn = drawn.unwrap();
    for (place, thing) in drawn.things.iter().enumerate() {
        let messages = drawn.cells.iter().flatten().flat_map(|cell| &cell.messages);
        let count = u64::try_from(messages.filter(|it| it.thing == place).count()).unwrap();
        assert_eq!(thing.received, count * thing.bytes / thing.blocks);
        assert_eq!(thing.moves, thing.received > 0);
    }
    drawn
}

#[test]
fn rotated_weights() {
    expect![[r#"
        3 steps [a,-,(a-@t:3)] on a=3
          X  [a,-]  stays
          W  [-,a]  rotates, the next from a-1; all receive 2 W
          Y  [a,-]  stays, a block is made at each step

        rank   step 0   step 1                 step 2
           0   m0 n0    m0 n2  W[-,2] from 2   m0 n1  W[-,1] from 2
           1   m1 n1    m1 n0  W[-,0] from 0   m1 n2  W[-,2] from 0
           2   m2 n2    m2 n1  W[-,1] from 1   m2 n0  W[-,0] from 1
    "#]]
    .assert_eq(&drawn("3", "3 steps [a,-,(a-@t:3)]").to_string());
}

#[test]
fn sums_that_travel_and_sums_that_are_streamed() {
    expect![[r#"
        2 steps [(a+@t+1:2),a,-] on a=2
          X  [-,a]  stays, a block is taken at each step
          W  [a,-]  stays
          Y  [a,-]  rotates, the next from a+1; all receive 1 Y

        rank   step 0   step 1
           0   m1 k0    m0 k0  Y[0,-] from 1
           1   m0 k1    m1 k1  Y[1,-] from 0
    "#]]
    .assert_eq(&drawn("2", "2 steps [(a+@t+1:2),a,-]").to_string());
    expect![[r#"
        2 steps [a,b,(@t:2)] streams a,b on a=2,b=2
          X  [a,b]  stays
          W  [b,a]  is broadcast along a; all receive 1 W
          Y  [a,b]  is reduced along b; all receive 1 Y

        rank   step 0                                 step 1
           0   m0 k0 n0                               m0 k0 n1  W[0,1] from 2  Y[0,1] to 1
           1   m0 k1 n0  Y[0,0] to 0                  m0 k1 n1  W[1,1] from 3
           2   m1 k0 n0  W[0,0] from 0                m1 k0 n1  Y[1,1] to 3
           3   m1 k1 n0  W[1,0] from 1  Y[1,0] to 2   m1 k1 n1
    "#]]
    .assert_eq(&drawn("2x2", "2 steps [a,b,(@t:2)] streams a,b").to_string());
}

#[test]
fn halves_that_go_both_ways() {
    expect![[r#"
        3 steps both ways [a,-,(a-@t:3)] on a=3
          X  [a,-]  stays
          W  [-,a]  rotates, half of the next from a-1, half from a+1; all receive 2 W
          Y  [a,-]  stays, a block is made at each step

        rank   step 0 forth   step 0 back   step 1 forth           step 1 back            step 2 forth           step 2 back
           0   m0 n0          m0 n1         m0 n4  W[-,4] from 2   m0 n3  W[-,3] from 1   m0 n2  W[-,2] from 2   m0 n5  W[-,5] from 1
           1   m1 n2          m1 n3         m1 n0  W[-,0] from 0   m1 n5  W[-,5] from 2   m1 n4  W[-,4] from 0   m1 n1  W[-,1] from 2
           2   m2 n4          m2 n5         m2 n2  W[-,2] from 1   m2 n1  W[-,1] from 0   m2 n0  W[-,0] from 1   m2 n3  W[-,3] from 0
    "#]].assert_eq(&drawn("3", "3 steps both ways [a,-,(a-@t:3)]").to_string());
}

#[test]
fn a_diagram_of_too_many_cells_is_not_drawn() {
    let (mesh, op) = (Mesh::of_sizes(&[8_192]), parse_op("gelu").unwrap());
    let line = Type::new(DType::F32, [8_192]);
    let partition = parse_partition(&mesh, "[a]").unwrap();
    assert_eq!(
        diagram(&mesh, &op, (std::slice::from_ref(&line), std::slice::from_ref(&line)), &partition),
        None
    );
}

#[test]
fn pictures_have_a_cell_for_each_rank_and_step_and_an_arrow_for_each_message() {
    for (_, op, mesh, partition) in PICTURES {
        let drawn = drawn_of(op, mesh, partition);
        let text = drawn.svg();
        let count = |part: &str| text.matches(part).count();
        let cells = drawn.cells.iter().flatten().count();
        let messages: usize = drawn.cells.iter().flatten().map(|cell| cell.messages.len()).sum();
        assert_eq!(count("stroke=\"#555555\""), cells, "{partition}");
        assert_eq!(count("marker-end"), messages, "{partition}");
        let open = count("<rect ") + count("<path ");
        assert_eq!(open, count("/>"), "{partition}");
        assert_eq!(count("<text "), count("</text>"), "{partition}");
    }
}

/// The pictures of the page: file, operation, mesh, partition.
const PICTURES: &[(&str, &str, &str, &str)] = &[
    ("column", PRODUCT, "3", "[-,-,a]"),
    ("row", PRODUCT, "3", "[-,a,-]"),
    ("rotated", PRODUCT, "3", "3 steps [a,-,(a-@t:3)]"),
    ("ring-gather", PRODUCT, "3", "3 steps [(a+@t:3),-,a]"),
    ("ring-scatter", PRODUCT, "3", "3 steps [(a+@t+1:3),a,-]"),
    ("both-ways", PRODUCT, "3", "3 steps both ways [a,-,(a-@t:3)]"),
    ("in-place", PRODUCT, "3", "3 steps in place [a,(a-@t:3),-]"),
    ("square", PRODUCT, "2x2", "2 steps [a,(a+b+@t:2),b]"),
    ("summa", PRODUCT, "2x2", "2 steps [a,(@t:2),b] streams a,b"),
    ("tesseract", PRODUCT, "r=2,c=2,d=2", "2 steps [d.r,(@t:2),c] streams r,c"),
    ("two-and-a-half", PRODUCT, "r=2,c=2,d=2", "2 steps [r,d.(r+c+@t:2),c]"),
    ("three-d", PRODUCT, "a=2,b=2,c=2", "[a,b,c]"),
    ("ring-attention", CAUSAL, "3", "3 steps [a,(a+@t:3),-,-]"),
    ("striped-attention", CAUSAL, "3", "3 steps [*2.a,*2.(a+@t:3),-,-]"),
];

fn document(name: &str) -> PathBuf {
    [env!("CARGO_MANIFEST_DIR"), "..", "..", "docs", name].iter().collect()
}

/// Compares a file of the documents, or rewrites it.
fn compare(name: &str, expected: &str) {
    if std::env::var_os("BLESS").is_some() {
        fs::write(document(name), expected).unwrap();
    }
    let found = fs::read_to_string(document(name)).unwrap_or_default();
    assert!(found == expected, "docs/{name} is not what it should be (BLESS=1 rewrites it)");
}

/// The page has below each picture what is printed of its partition.
#[test]
fn the_page_on_space_and_time_shows_what_is_so() {
    let page = fs::read_to_string(document("space-and-time.md")).unwrap();
    let mut renewed = String::new();
    let mut parts = page.split("![");
    renewed += parts.next().unwrap();
    for (part, (name, op, mesh, partition)) in parts.zip(PICTURES) {
        let drawn = drawn_of(op, mesh, partition);
        compare(&format!("images/space-time-{name}.svg"), &drawn.svg());
        assert!(part.contains(&format!("(images/space-time-{name}.svg)")), "{name}: {part}");
        let (before, rest) = part.split_once("```text\n").unwrap();
        let (_, after) = rest.split_once("```\n").unwrap();
        let shown: Vec<String> = drawn
            .to_string()
            .lines()
            .take_while(|line| !line.is_empty())
            .map(|line| format!("{line}\n"))
            .collect();
        renewed += &format!("![{before}```text\n{}```\n{after}", shown.concat());
    }
    assert_eq!(page.matches("![").count(), PICTURES.len());
    compare("space-and-time.md", &renewed);
}
