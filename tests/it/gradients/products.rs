//! Contractions, norms, attention, rotary embedding, convolutions and mixtures of experts.

use super::case::{Case, Operand, Random, Role, count};
use super::elements::listed;

pub(super) fn case(name: &str, random: &mut Random) -> Option<Case> {
    Some(match name {
        "contract" => contract(random),
        "layer_norm" | "rms_norm" => norm(name, random),
        "instance_norm" => {
            let shape = [&random.shape(2, 2)[..], &[random.extent(2, 4)], &random.shape(0, 1)].concat();
            let channels = [shape[1]];
            let operands = [random.plain(&shape), random.plain(&channels), random.plain(&channels)];
            Case::new("instance_norm epsilon=1e-1", operands)
        }
        "attention" => attention(random),
        "conv_input_gradient" => transposed(random),
        "rotary" => {
            let shape = [&random.shape(0, 2)[..], &[2 * random.extent(1, 2)]].concat();
            let last = shape.len() - 1;
            let table = |random: &mut Random| {
                let table = [&random.repeated(&shape[..last])[..], &shape[last..]].concat();
                Operand::fixed(random.plain(&table).array)
            };
            let pairing = random.one_of(&["halves", "neighbours"]);
            let operands = [random.plain(&shape), table(random), table(random)];
            Case::new(&format!("rotary pairing={pairing}"), operands)
        }
        "conv" => conv(random),
        "selective_scan" | "gated_delta" => recurrence(name, random),
        "experts" => experts(random),
        _ => return None,
    })
}

/// Products of up to four labels: in both operands, in one, in the result or not, in any order.
fn contract(random: &mut Random) -> Case {
    let (mut left, mut right, mut result) = (vec![], vec![], vec![]);
    for label in ['a', 'b', 'c', 'd'] {
        let place = random.below(5);
        let extent = random.extent(1, 3);
        // In both and the result, in both, in one and the result, nowhere.
        if matches!(place, 0..=2) {
            left.push((label, extent));
        }
        if matches!(place, 0 | 1 | 3) {
            right.push((label, extent));
        }
        if matches!(place, 0 | 2 | 3) {
            result.push((label, extent));
        }
    }
    let mut mixed = |labels: &[(char, u64)]| -> (String, Vec<u64>) {
        random.order(labels.len()).into_iter().map(|it| labels[it]).unzip()
    };
    let [(left, a), (right, b), (result, sum)] = [mixed(&left), mixed(&right), mixed(&result)];
    let mut operands = vec![random.plain(&a), random.plain(&b)];
    if random.below(2) == 0 {
        operands.push(random.plain(&sum));
    }
    Case::new(&format!("contract \"{left},{right}->{result}\""), operands)
}

fn norm(name: &str, random: &mut Random) -> Case {
    let shape = [&random.shape(0, 2)[..], &[random.extent(2, 4)]].concat();
    let dims = 1 + random.below(shape.len());
    let mut operands = vec![random.plain(&shape)];
    let others = if name == "layer_norm" { random.between(1, 2) } else { 1 };
    for _ in 0..others {
        let scale =
            if random.flip() { shape[shape.len() - dims..].to_vec() } else { random.repeated(&shape) };
        operands.push(random.plain(&scale));
    }
    Case::new(&format!("{name} dims={dims} epsilon=1e-1"), operands)
}

fn attention(random: &mut Random) -> Case {
    let [batch, groups, repeats, queries, keys] = [2, 2, 2, 3, 4].map(|most| random.extent(1, most));
    let [size, made] = [0, 1].map(|_| random.extent(1, 3));
    let heads = groups * repeats;
    let mut operands = vec![
        random.plain(&[batch, heads, queries, size]),
        random.plain(&[batch, groups, keys, size]),
        random.plain(&[batch, groups, keys, made]),
    ];
    let mask = random.repeated(&[batch, heads, queries, keys]);
    match random.below(3) {
        0 => operands.push(random.plain(&mask)),
        1 => operands.push(random.truths(&mask).unasked()),
        _ => {}
    }
    let (causal, softcap) = (random.flip(), random.one_of(&[0.0, 0.0, 1.5]));
    let window = random.one_of(&["none", "none", "1", "2"]);
    let sinks = random.flip();
    if sinks {
        let shape = [&random.repeated(&[batch, heads, queries])[..], &[1]].concat();
        operands.push(random.plain(&shape));
    }
    let sinks = if sinks { " sinks=true" } else { "" };
    let op = format!(
        "attention scale=0.75 causal={causal} softcap={softcap:?} window={window}{sinks} statistics=true"
    );
    Case::new(&op, operands)
}

fn recurrence(name: &str, random: &mut Random) -> Case {
    let [batch, tokens, groups, repeats, rows, columns] =
        [2, 5, 2, 2, 3, 3].map(|most| random.extent(1, most));
    let heads = groups * repeats;
    let decays = random.one_of(&[1, rows]);
    let mut operands = vec![
        random.plain(&[batch, tokens, groups, rows]),
        random.plain(&[batch, tokens, groups, rows]),
        random.plain(&[batch, tokens, heads, columns]),
        random.plain(&[batch, tokens, heads, decays]),
    ];
    if name == "gated_delta" {
        operands.push(random.plain(&[batch, tokens, heads]));
    }
    operands.push(random.plain(&[batch, heads, rows, columns]));
    Case::new(name, operands)
}

fn conv(random: &mut Random) -> Case {
    let dims = random.below(2) + 1;
    let [batch, groups, taken, made] = [2, 2, 2, 2].map(|most| random.extent(1, most));
    let mut list =
        |least: i64, most: i64| -> Vec<u64> { (0..dims).map(|_| random.extent(least, most)).collect() };
    let (strides, dilations, before, after) = (list(1, 2), list(1, 2), list(0, 1), list(0, 1));
    let (window, beyond) = (list(1, 2), list(0, 2));
    // The window fits.
    let spatial: Vec<u64> =
        (0..dims).map(|dim| (window[dim] - 1) * dilations[dim] + 1 + beyond[dim]).collect();
    let x = [&[batch, groups * taken], &spatial[..]].concat();
    let w = [&[groups * made, taken], &window[..]].concat();
    let mut operands = vec![random.plain(&x), random.plain(&w)];
    if random.flip() {
        operands.push(random.plain(&[groups * made]));
    }
    let [strides, dilations, before, after] = [strides, dilations, before, after].map(|it| listed(&it));
    let op =
        format!("conv strides={strides} dilations={dilations} before={before} after={after} groups={groups}");
    Case::new(&op, operands)
}

/// Windows and what is multiplied by them; extents that the windows leave over are part of the result.
fn transposed(random: &mut Random) -> Case {
    let [batch, groups, taken, made] = [2, 2, 2, 2].map(|most| random.extent(1, most));
    let [stride, dilation, before, after] =
        [(1, 3), (1, 2), (0, 1), (0, 1)].map(|it| random.extent(it.0, it.1));
    let (window, count) = (random.extent(3, 4), random.extent(1, 3));
    let covered = (count - 1) * stride + (window - 1) * dilation + 1;
    let spatial = covered - before - after + random.extent(0, i64::try_from(stride).unwrap() - 1);
    let operands =
        vec![random.plain(&[groups * made, taken, window]), random.plain(&[batch, groups * made, count])];
    let op = format!(
        "conv_input_gradient strides=[{stride}] dilations=[{dilation}] before=[{before}] after=[{after}] \
         groups={groups} spatial=[{spatial}]"
    );
    Case::new(&op, operands)
}

fn experts(random: &mut Random) -> Case {
    let [tokens, hidden, experts, units] = [3, 3, 3, 2].map(|most| random.extent(1, most));
    let gates = [tokens, experts];
    let gate = |random: &mut Random| if random.flip() { 0.0 } else { random.number(0.2, 1.0) };
    let numbers: Vec<f64> = (0..count(&gates)).map(|_| gate(random)).collect();
    let gates = Operand { role: Role::FreeUnlessZero, ..Operand::free(&gates, &numbers) };
    let mut operands = vec![random.plain(&[tokens, hidden]), gates, random.plain(&[experts, units, hidden])];
    let (is_gated, is_biased) = (random.flip(), random.flip());
    if is_gated {
        operands.push(random.plain(&[experts, units, hidden]));
    }
    operands.push(random.plain(&[experts, hidden, units]));
    if is_gated && is_biased {
        operands.extend([0, 1].map(|_| random.plain(&[experts, units])));
    }
    // Far beyond what there is: bounds add 1, and have no corner near.
    let limit = if is_gated && random.flip() { " limit=100.0" } else { "" };
    let activation = random.one_of(&["silu", "gelu", "gelu_tanh"]);
    Case::new(&format!("experts activation={activation}{limit} active={experts}"), operands)
}
