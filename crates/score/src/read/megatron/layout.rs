//! Layouts of pipelines: which layers each stage has.
//!
//! Source: Megatron-LM, `megatron/core/transformer/pipeline_parallel_layer_layout.py`, version core 0.16.

/// Layers of each stage of a layout: `Et*3|(tt|)*2t*2mL`. Those that predict further tokens count where they are.
pub(super) fn layout_layers(layout: &str) -> Option<Vec<u64>> {
    let whole = repeated(&layout.replace([' ', ','], ""))?;
    let ends = whole.starts_with('E') && whole.ends_with('L');
    if !ends || ['E', 'L'].iter().any(|end| whole.matches(*end).count() != 1) {
        return None;
    }
    let stage = |text: &str| {
        let known = text.chars().all(|it| matches!(it, 'E' | 't' | 'm' | 'L'));
        let layers = text.chars().filter(|it| matches!(it, 't' | 'm')).count();
        u64::try_from(layers).ok().filter(|_| known)
    };
    whole.split('|').map(stage).collect()
}

/// A layout without `x*N` and `(..)*N`.
fn repeated(text: &str) -> Option<String> {
    const MOST: usize = 1 << 16;
    let mut whole = String::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let (unit, after) = if first == '(' {
            let (inside, after) = rest[1..].split_once(')')?;
            (repeated(inside)?, after)
        } else if first.is_ascii_alphabetic() || first == '|' {
            (first.to_string(), &rest[1..])
        } else {
            return None;
        };
        let (times, after) = match after.strip_prefix('*') {
            None => (1, after),
            Some(after) => {
                let digits = after.find(|it: char| !it.is_ascii_digit()).unwrap_or(after.len());
                (after[..digits].parse::<usize>().ok().filter(|it| *it > 0)?, &after[digits..])
            }
        };
        if whole.len().saturating_add(unit.len().saturating_mul(times)) > MOST {
            return None;
        }
        whole.push_str(&unit.repeat(times));
        rest = after;
    }
    Some(whole)
}

#[cfg(test)]
mod tests {
    use super::layout_layers;

    #[test]
    fn layouts_are_layers_of_stages() {
        let check = |layout: &str, expected: &[u64]| assert_eq!(layout_layers(layout).unwrap(), expected);
        check("Et*7|t*9|t*9|t*7L", &[7, 9, 9, 7]);
        check("E|t|L", &[0, 1, 0]);
        check("Et|(tt|)*2tmL", &[1, 2, 2, 2]);
        check("Et*2|t*2|t,L", &[2, 2, 1]);
        for wrong in ["EtxL", "Et*0L", "E(tL", "Et*", "Et*99999999L", "*3", "t*8|t*8", "Et|tLt", "EEtL"] {
            assert_eq!(layout_layers(wrong), None, "{wrong}");
        }
    }
}
