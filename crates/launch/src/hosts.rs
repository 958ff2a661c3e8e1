//! Lists of hosts as Slurm writes them: `login,node[01-03,7],rack[1-2]n[0-1]`.

/// The most hosts that a list may name.
const MOST: usize = 1 << 16;

/// The most digits of a number in a name, and the most numbers in one.
const MOST_DIGITS: usize = 18;
const MOST_NUMBERS: usize = 64;

/// The hosts of a list, in its order; nothing if it is none.
pub(crate) fn hosts(list: &str) -> Option<Vec<String>> {
    let mut all = Vec::new();
    for name in parts(list)? {
        if name.matches('[').count() > MOST_NUMBERS {
            return None;
        }
        all.extend(expanded(name)?);
        if all.len() > MOST {
            return None;
        }
    }
    Some(all)
}

/// What stands between commas, of which those in brackets are none.
fn parts(list: &str) -> Option<Vec<&str>> {
    let (mut parts, mut start, mut inside) = (Vec::new(), 0, false);
    for (place, letter) in list.char_indices() {
        match letter {
            '[' if !inside => inside = true,
            ']' if inside => inside = false,
            '[' | ']' => return None,
            ',' if !inside => {
                parts.push(&list[start..place]);
                start = place + 1;
            }
            _ => {}
        }
    }
    parts.push(&list[start..]);
    (!inside && parts.iter().all(|it| !it.is_empty())).then_some(parts)
}

/// The names that one with brackets stands for.
fn expanded(name: &str) -> Option<Vec<String>> {
    let Some((before, rest)) = name.split_once('[') else { return Some(vec![name.to_owned()]) };
    let (ranges, after) = rest.split_once(']')?;
    let numbers = numbers(ranges)?;
    let after = expanded_or_nothing(after)?;
    if numbers.len().checked_mul(after.len())? > MOST {
        return None;
    }
    let joined =
        |number: &String| after.iter().map(|after| format!("{before}{number}{after}")).collect::<Vec<_>>();
    Some(numbers.iter().flat_map(joined).collect())
}

fn expanded_or_nothing(name: &str) -> Option<Vec<String>> {
    if name.is_empty() { Some(vec![String::new()]) } else { expanded(name) }
}

/// The numbers of ranges, with the zeros that they begin with.
fn numbers(ranges: &str) -> Option<Vec<String>> {
    let mut all = Vec::new();
    for range in ranges.split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let is_number = |text: &str| (1..=MOST_DIGITS).contains(&text.len());
        let digits = |text: &str| is_number(text) && text.bytes().all(|it| it.is_ascii_digit());
        if !digits(first) || !digits(last) {
            return None;
        }
        let (from, to): (usize, usize) = (first.parse().ok()?, last.parse().ok()?);
        if to < from || to - from >= MOST {
            return None;
        }
        all.extend((from..=to).map(|number| format!("{number:0width$}", width = first.len())));
    }
    Some(all)
}
