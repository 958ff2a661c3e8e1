//! Exchanges beside computing: orders of programs whose plans say what operations and moves take.

use plan::{Assignment, Hidden, Plan};
use planner_ir::{Mesh, Op, Partition, Phase, Reduction, Unary};

use super::regression::{Parallel, Regression};
use super::sketch::Sketch;
use super::{f32, product, split, two_layers};
use crate::{Action, Origin, Program, Stream, footprint, least, lower, memory, verify};

/// Numbers from 0 to 6, the same for the same seed.
fn numbers(seed: u32) -> impl FnMut() -> f64 {
    let mut state = seed;
    move || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        f64::from((state >> 16) % 7)
    }
}

/// The plan with prices: of operations and of moves.
fn priced(plan: &Plan, mut of_operation: impl FnMut() -> f64, mut of_move: impl FnMut() -> f64) -> Plan {
    let mut plan = plan.clone();
    for assignment in &mut plan.assignments {
        if let Assignment::Computed { seconds, .. } = assignment {
            *seconds = of_operation();
        }
    }
    plan.transfers.iter_mut().for_each(|it| it.seconds.fill_with(&mut of_move));
    plan
}

/// The instructions of a program as text, without what orders them, sorted; exchanges that are one each by
/// itself.
fn sorted(program: &Program) -> Vec<String> {
    let mut all = Vec::new();
    for it in &program.instructions {
        let mut add =
            |action: &Action, origin: Origin| all.push(format!("{:?} {action:?} {origin}", it.stream));
        match &it.action {
            Action::Collective(collective) => {
                let origins = [it.origin].into_iter().chain(collective.further.iter().map(|it| it.origin));
                origins
                    .zip(collective.each())
                    .for_each(|(origin, one)| add(&Action::Collective(one), origin));
            }
            action => add(action, it.origin),
        }
    }
    all.sort();
    all
}

fn places(program: &Program) -> Vec<String> {
    let of = |it: &crate::Instruction| format!("{:?} {:?}", it.origin, it.action.writes());
    program.instructions.iter().map(of).collect()
}

/// By any prices a program has the same instructions as without, is right, and holds no more.
#[test]
fn by_any_prices_programs_are_right_and_hold_no_more() {
    let (mut moved, mut bundled) = (0, 0);
    for parallel in Parallel::ALL {
        for devices in [4, 8] {
            let extents = [8, 16, 8, 16];
            let plan = Regression { extents, ..Regression::new(parallel, devices, 2) }.sketch().plan;
            let before = lower(&plan).unwrap();
            for seed in 0..20 {
                let plan = priced(&plan, numbers(seed), numbers(seed + 77));
                let programs = lower(&plan).unwrap();
                assert_eq!(verify(&programs), Ok(()), "{parallel:?} {seed}\n{}", programs[0]);
                for (program, before) in programs.iter().zip(&before) {
                    assert!(program.arena <= before.arena, "{parallel:?} {seed}\n{program}");
                    assert_eq!(program.resident, before.resident);
                    assert_eq!(sorted(program), sorted(before), "{parallel:?} {seed}");
                    assert_eq!(places(program), places(&programs[0]), "{parallel:?} {seed}");
                    moved += usize::from(places(program) != places(before));
                    bundled += usize::from(program.instructions.len() < before.instructions.len());
                }
                let held: u64 = memory(&plan).unwrap().iter().map(|it| it.bytes).sum();
                assert_eq!(held, programs[0].resident + programs[0].arena);
                assert_eq!(held, footprint(&plan).unwrap());
                // What programs hold as they are built says whether they fit, whatever their order.
                assert_eq!(least(&plan).unwrap().bytes(), before[0].resident + before[0].arena);
            }
        }
    }
    assert!(moved > 500, "{moved} programs are in another order");
    assert!(bundled > 100, "{bundled} programs have exchanges that are one");
}

/// The plan with exchanges beside computing that it counts on, and so much memory (bytes).
fn roomy(plan: Plan, capacity: u64) -> Plan {
    Plan { hidden: Hidden { forward: 1.0, backward: 1.0 }, capacity, ..plan }
}

/// Where a plan counts on exchanges beside computing, they may go ahead as far as there is memory: programs are
/// right, and hold no more than the plan may.
#[test]
fn exchanges_go_ahead_as_far_as_there_is_memory() {
    let (mut larger, mut moved) = (0, 0);
    for parallel in Parallel::ALL {
        let extents = [8, 16, 8, 16];
        let plan = Regression { extents, ..Regression::new(parallel, 4, 2) }.sketch().plan;
        for seed in 0..20 {
            let plan = priced(&plan, numbers(seed), numbers(seed + 77));
            let narrow = lower(&plan).unwrap();
            let held = narrow[0].resident + narrow[0].arena;
            for more in [0, 64, 256, 4096] {
                let plan = roomy(plan.clone(), held + more);
                let programs = lower(&plan).unwrap();
                assert_eq!(verify(&programs), Ok(()), "{parallel:?} {seed}\n{}", programs[0]);
                for (program, narrow) in programs.iter().zip(&narrow) {
                    assert_eq!(program.resident, narrow.resident);
                    // What a program without other orders takes is taken in any case.
                    let built = lower(&priced(&plan, || 0.0, || 0.0)).unwrap()[0].arena;
                    assert!(program.arena <= built.max(narrow.arena + more), "{parallel:?} {seed} {more}");
                    assert_eq!(sorted(program), sorted(narrow), "{parallel:?} {seed} {more}");
                    larger += usize::from(program.arena > built);
                    moved += usize::from(places(program) != places(narrow));
                }
                assert_eq!(footprint(&plan).unwrap(), programs[0].resident + programs[0].arena);
                // What is held as programs are built is the same however much memory there is.
                let built = lower(&priced(&plan, || 0.0, || 0.0)).unwrap();
                assert_eq!(least(&plan).unwrap().bytes(), built[0].resident + built[0].arena);
            }
        }
    }
    assert!(larger > 50 && moved > 100, "{larger} programs hold more, {moved} are in another order");
}

/// Products one after another, whose weights of these extents lie split and are gathered.
fn gathered(widths: &[u64]) -> Sketch {
    let mesh = Mesh::of_sizes(&[2]);
    let mut sketch = Sketch::new(&mesh);
    let rows = sketch.axis(0);
    let mut x = sketch.input("x", f32(&[8, widths[0]]), vec![vec![rows], vec![]]);
    for (layer, pair) in widths.windows(2).enumerate() {
        let rows = sketch.axis(0);
        let weight = sketch.weight(&format!("w{layer}"), f32(pair), vec![vec![rows], vec![]]);
        let by_rows = split(&sketch, 3, &[(0, 0)]);
        x = sketch.node(product(), &[x, weight], by_rows)[0];
    }
    let rows = sketch.axis(0);
    sketch.output("y", x, vec![vec![rows], vec![]], &mut |_, _, _, _| None);
    sketch
}

/// What a rank does, shortly: a gather or a product by its number.
fn shown(program: &Program) -> String {
    let (mut gathers, mut products) = (0, 0);
    let mut one = |action: &Action| {
        let (letter, number) = match action {
            Action::Collective(_) => ("g", &mut gathers),
            _ => ("p", &mut products),
        };
        *number += 1;
        format!("{letter}{number}")
    };
    program.instructions.iter().map(|it| one(&it.action)).collect::<Vec<_>>().join(" ")
}

/// Gathers go ahead as far as there is room: where the first weights are held there is none for a second
/// one, later there is.
#[test]
fn gathers_go_ahead_within_what_is_held() {
    let plan = gathered(&[16, 64, 16, 16, 16, 16, 16]).plan;
    let before = lower(&plan).unwrap();
    assert_eq!(shown(&before[0]), "g1 p1 g2 p2 g3 p3 g4 p4 g5 p5 g6 p6");
    let programs = lower(&priced(&plan, || 4.0, || 2.0)).unwrap();
    verify(&programs).unwrap();
    assert_eq!(shown(&programs[0]), "g1 p1 g2 p2 g3 g4 g5 p3 g6 p4 p5 p6");
    assert!(programs[0].arena <= before[0].arena);
    // Where all are as large, there is never room.
    let plan = gathered(&[16; 5]).plan;
    let plan = priced(&plan, || 4.0, || 2.0);
    let programs = lower(&plan).unwrap();
    assert_eq!(shown(&programs[0]), "g1 p1 g2 p2 g3 p3 g4 p4");
    // Unless there is more memory than that, and the plan counts on it.
    let held = programs[0].resident + programs[0].arena;
    let ahead = |capacity| shown(&lower(&roomy(plan.clone(), capacity)).unwrap()[0]);
    assert_eq!(ahead(held), "g1 p1 g2 p2 g3 p3 g4 p4");
    assert_eq!(ahead(held + 1024), "g1 g2 p1 g3 p2 g4 p3 p4");
    assert_eq!(
        shown(&lower(&Plan { capacity: held + 1024, ..plan.clone() }).unwrap()[0]),
        shown(&programs[0])
    );
}

/// What is made of a weight before it is gathered is issued with the gather: that is as early as of a weight at rest, where
/// there is room.
#[test]
fn conversions_go_ahead_with_gathers() {
    let mesh = Mesh::of_sizes(&[2]);
    let mut sketch = Sketch::new(&mesh);
    let rows = sketch.axis(0);
    let mut x = sketch.input("x", f32(&[8, 16]), vec![vec![rows], vec![]]);
    // The first product waits for nothing.
    let whole = sketch.weight("v", f32(&[16, 16]), vec![vec![], vec![]]);
    let by_rows = split(&sketch, 3, &[(0, 0)]);
    x = sketch.node(product(), &[x, whole], by_rows)[0];
    for layer in 0..4 {
        let rows = sketch.axis(0);
        let weight = sketch.weight(&format!("w{layer}"), f32(&[16, 16]), vec![vec![rows], vec![]]);
        let by_rows = split(&sketch, 2, &[(0, 0)]);
        let converted = sketch.node(Op::Unary(Unary::Neg), &[weight], by_rows)[0];
        let by_rows = split(&sketch, 3, &[(0, 0)]);
        x = sketch.node(product(), &[x, converted], by_rows)[0];
    }
    let rows = sketch.axis(0);
    sketch.output("y", x, vec![vec![rows], vec![]], &mut |_, _, _, _| None);
    let mut converts = true;
    let conversion_or_product = || {
        converts = !converts;
        if converts { 0.1 } else { 4.0 }
    };
    let plan = priced(&sketch.plan, conversion_or_product, || 2.0);
    let shown = |program: &Program| {
        let letter = |action: &Action| match action {
            Action::Collective(_) => "g",
            Action::Compute(it) if matches!(*it.op, Op::Unary(_)) => "c",
            _ => "p",
        };
        program.instructions.iter().map(|it| letter(&it.action)).collect::<Vec<_>>().join("")
    };
    let programs = lower(&plan).unwrap();
    verify(&programs).unwrap();
    let held = programs[0].resident + programs[0].arena;
    let ahead = lower(&roomy(plan, held + 2048)).unwrap();
    verify(&ahead).unwrap();
    assert_eq!([&programs[0], &ahead[0]].map(shown), ["cgpcpgpcgpcgp", "cgcgpcgpcgppp"]);
    assert_eq!(shown(&ahead[0]), shown(&ahead[1]));
}

/// What computing waits for has a stream of its own, and is not behind what runs beside computing; and what waits
/// for it goes before what waits longer.
#[test]
fn what_is_waited_for_comes_before_what_runs_beside() {
    let mesh = Mesh::of_sizes(&[2]);
    let mut sketch = Sketch::new(&mesh);
    let rows = sketch.axis(0);
    let [x, y] = ["x", "y"].map(|it| sketch.input(it, f32(&[8, 16]), vec![vec![rows.clone()], vec![]]));
    let weight = sketch.weight("w", f32(&[16, 16]), vec![vec![rows.clone()], vec![]]);
    let whole = sketch.weight("v", f32(&[16, 16]), vec![vec![], vec![]]);
    // The first reads a weight that is gathered, the second an activation.
    let by_rows = split(&sketch, 3, &[(0, 0)]);
    let first = sketch.node(product(), &[x, weight], by_rows)[0];
    let by_columns = split(&sketch, 3, &[(2, 0)]);
    let second = sketch.node(product(), &[y, whole], by_columns)[0];
    sketch.output("a", first, vec![vec![rows.clone()], vec![]], &mut |_, _, _, _| None);
    sketch.output("b", second, vec![vec![], vec![rows.clone()]], &mut |_, _, _, _| None);
    let plan = sketch.plan;
    let priced = |of_weight: f64, of_activation: f64| {
        let mut plan = priced(&plan, || 1.0, || 0.0);
        for transfer in &mut plan.transfers {
            let of = if transfer.value == weight { of_weight } else { of_activation };
            transfer.seconds.fill(of);
        }
        let programs = lower(&roomy(plan, 1 << 20)).unwrap();
        verify(&programs).unwrap();
        programs
    };
    let programs = priced(10.0, 1.0);
    let done = |program: &Program| -> Vec<String> {
        let name = |it: &crate::Instruction| match it.origin {
            Origin::Node(node) => format!("p{}", node.0),
            _ => it.stream.name().to_owned(),
        };
        program.instructions.iter().filter(|it| !matches!(it.action, Action::Copy(_))).map(name).collect()
    };
    assert_eq!(done(&programs[0]), ["communication", "beside", "p1", "p0"]);
    assert_eq!(done(&priced(1.0, 10.0)[0]), ["communication", "beside", "p0", "p1"]);
    // One communicator is of what runs beside computing.
    let beside = programs[0].beside();
    assert_eq!((programs[0].communicators.len(), beside.len()), (2, 1));

    // A collective that is on both streams is found.
    let mut broken = programs.clone();
    let exchange = |it: &crate::Instruction| it.stream == Stream::Beside;
    let at = broken[1].instructions.iter().position(exchange).unwrap();
    broken[1].instructions[at].stream = Stream::Contrary;
    let found = verify(&broken).unwrap_err();
    assert!(found.0.iter().any(|it| it.rule == "stream" && it.place.rank == 1), "{found}");
}

/// A plan that does not say what anything takes has programs in the order in which they are built.
#[test]
fn without_prices_nothing_is_moved() {
    let plan = two_layers(2).plan;
    let free = priced(&plan, || 0.0, || 0.0);
    assert_eq!(lower(&plan).unwrap(), lower(&free).unwrap());
    let wrong = priced(&plan, || f64::NAN, || -1.0);
    assert_eq!(lower(&plan).unwrap(), lower(&wrong).unwrap());
}

/// Numbers that are summed over devices, each by itself, after something large.
fn sums(count: usize) -> Sketch {
    let mesh = Mesh::of_sizes(&[4]);
    let mut sketch = Sketch::new(&mesh);
    sketch.phase = Phase::Update;
    let large = f32(&[4096]);
    let x = sketch.input("large", large.clone(), vec![vec![]]);
    let one = std::slice::from_ref(&large);
    let loops = Op::Unary(Unary::Neg).loops(one, one);
    let turned = sketch.node(Op::Unary(Unary::Neg), &[x], Partition::replicated(&loops))[0];
    let op = Op::Reduce { reduction: Reduction::Sum, dims: vec![0] };
    let loops = op.loops(&[large], &[f32(&[1])]);
    let sum = sketch.node(op, &[turned], Partition::replicated(&loops))[0];
    sketch.output("sum", sum, vec![vec![]], &mut |_, _, _, _| None);
    for number in 0..count {
        let rows = sketch.axis(0);
        let x = sketch.input(&format!("x{number}"), f32(&[8]), vec![vec![rows]]);
        let op = Op::Reduce { reduction: Reduction::Sum, dims: vec![0] };
        let loops = op.loops(&[f32(&[8])], &[f32(&[1])]);
        let mut partition = Partition::replicated(&loops);
        partition.loops[loops.operands[0][0][0].0].push(sketch.axis(0));
        let sum = sketch.node(op, &[x], partition)[0];
        sketch.output(&format!("y{number}"), sum, vec![vec![]], &mut |_, _, _, _| None);
    }
    sketch
}

/// The sums of single numbers are one collective; large ones, of which the start is little, stay apart.
#[test]
fn small_exchanges_are_one() {
    let exchanges = |program: &Program| -> Vec<usize> {
        let further = |it: &crate::Instruction| match &it.action {
            Action::Collective(it) => Some(it.further.len()),
            _ => None,
        };
        program.instructions.iter().filter_map(further).collect()
    };
    let plan = sums(5).plan;
    assert_eq!(exchanges(&lower(&plan).unwrap()[0]), [0; 5]);
    let programs = lower(&priced(&plan, || 1.0, || 3.0)).unwrap();
    verify(&programs).unwrap();
    assert_eq!(exchanges(&programs[3]), [4]);

    // What differs between ranks in what is exchanged at once is found.
    let mut broken = programs.clone();
    for instruction in &mut broken[2].instructions {
        if let Action::Collective(it) = &mut instruction.action {
            it.further.swap(0, 1);
        }
    }
    let found = verify(&broken).unwrap_err();
    assert!(found.0.iter().any(|it| it.rule == "collective-order" && it.place.rank == 2), "{found}");
    let mut broken = programs;
    for instruction in &mut broken[2].instructions {
        if let Action::Collective(it) = &mut instruction.action {
            it.further[1].elements = 2;
        }
    }
    let found = verify(&broken).unwrap_err();
    assert!(found.0.iter().any(|it| it.rule == "size" && it.place.rank == 2), "{found}");
}

/// Products one after another, of which each owes a sum that the next one waits for; and of what each is of, a product
/// that stands before it and that nothing waits for.
fn waited(layers: usize) -> Sketch {
    let mesh = Mesh::of_sizes(&[2]);
    let mut sketch = Sketch::new(&mesh);
    let mut x = sketch.input("x", f32(&[8, 16]), vec![vec![], vec![]]);
    for layer in 0..layers {
        let v = sketch.weight(&format!("v{layer}"), f32(&[16, 16]), vec![vec![], vec![]]);
        let whole = split(&sketch, 3, &[]);
        let side = sketch.node(product(), &[x, v], whole)[0];
        sketch.output(&format!("y{layer}"), side, vec![vec![], vec![]], &mut |_, _, _, _| None);
        let rows = sketch.axis(0);
        let w = sketch.weight(&format!("w{layer}"), f32(&[16, 16]), vec![vec![rows], vec![]]);
        let summed = split(&sketch, 3, &[(1, 0)]);
        x = sketch.node(product(), &[x, w], summed)[0];
    }
    sketch.output("y", x, vec![vec![], vec![]], &mut |_, _, _, _| None);
    sketch
}

/// What nothing waits for is computed while something is waited for, though it stands before that.
#[test]
fn what_nothing_waits_for_is_kept_for_what_is_waited_for() {
    let order = |exchange: f64| -> String {
        let programs = lower(&priced(&waited(3).plan, || 4.0, || exchange)).unwrap();
        verify(&programs).unwrap();
        let one = |it: &crate::Instruction| match (&it.action, it.origin) {
            (Action::Collective(_), _) => "g".to_owned(),
            (_, Origin::Node(node)) => node.0.to_string(),
            _ => String::new(),
        };
        let shown: Vec<String> =
            programs[0].instructions.iter().map(one).filter(|it| !it.is_empty()).collect();
        shown.join(" ")
    };
    assert_eq!(order(0.0), "0 1 g g 2 3 g 4 g 5 g");
    assert_eq!(order(2.0), "1 g 0 g 3 g g 2 4 5 g");
    assert_eq!(order(6.0), "1 g 0 g 3 2 g g 5 4 g");
}
