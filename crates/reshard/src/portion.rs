//! Portions of a value.

/// Where a portion lies along one dimension.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Span {
    /// Its first index (elements).
    pub start: u64,
    /// How many there are (elements).
    pub length: u64,
}

/// A box of elements, of a whole value or of what one rank holds of it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Portion {
    /// For each dimension where it lies.
    pub spans: Vec<Span>,
}

/// How many times as many rows as parts there are at least, before rows are cut into parts: parts
/// of whole rows then differ by little, and are few boxes.
const ROWS_PER_PART: u64 = 16;

impl Portion {
    /// How many elements it has.
    pub fn elements(&self) -> u64 {
        elements(&self.spans)
    }

    /// For each of its elements, in row-major order, its number in an array of that shape.
    pub fn places(&self, shape: &[u64]) -> Vec<u64> {
        self.spans.iter().zip(shape).fold(vec![0], |places, (span, &extent)| {
            let along = span.start..span.start + span.length;
            places.iter().flat_map(|place| along.clone().map(move |it| place * extent + it)).collect()
        })
    }

    /// The elements of the numbers `first` to `end`, in row-major order, as few boxes.
    fn range(&self, first: u64, end: u64) -> Vec<Self> {
        let mut found = Vec::new();
        collect_range(&self.spans, &mut Vec::new(), first, end, &mut found);
        found
    }

    /// The least number of elements at whose multiples it is cut into so many parts.
    fn grain(&self, parts: u64) -> u64 {
        let mut rows = 1u64;
        for (dim, span) in self.spans.iter().enumerate() {
            rows = rows.saturating_mul(span.length);
            if rows >= parts.saturating_mul(ROWS_PER_PART) {
                return elements(&self.spans[dim + 1..]);
            }
        }
        1
    }
}

/// Portions in order, cut into so many parts of about the same number of elements; a part may be
/// empty if there are few elements.
pub(crate) fn divide(portions: &[Portion], parts: u64) -> Vec<Vec<Portion>> {
    let parts = parts.max(1);
    if parts == 1 {
        return vec![portions.to_vec()];
    }
    let total: u64 = portions.iter().map(Portion::elements).sum();
    let mut divided = Vec::new();
    let mut before = 0;
    for part in 1..=parts {
        let target = u128::from(total) * u128::from(part) / u128::from(parts);
        let end = cut(portions, parts, u64::try_from(target).unwrap_or(total));
        divided.push(between(portions, before, end));
        before = end;
    }
    divided
}

/// The place nearest to this one at which portions are cut.
fn cut(portions: &[Portion], parts: u64, place: u64) -> u64 {
    let mut before = 0;
    for portion in portions {
        let elements = portion.elements();
        if place < before + elements {
            let grain = portion.grain(parts);
            return before + ((place - before + grain / 2) / grain * grain).min(elements);
        }
        before += elements;
    }
    before
}

/// What lies between two places of portions in order.
fn between(portions: &[Portion], first: u64, end: u64) -> Vec<Portion> {
    let mut found = Vec::new();
    let mut before = 0;
    for portion in portions {
        let after = before + portion.elements();
        let (first, end) = (first.max(before), end.min(after));
        if first < end {
            found.extend(portion.range(first - before, end - before));
        }
        before = after;
    }
    found
}

fn elements(spans: &[Span]) -> u64 {
    spans.iter().map(|span| span.length).product()
}

/// Collects the elements of the numbers `first` to `end` of the spans that are left, each box
/// behind the spans before it.
fn collect_range(left: &[Span], before: &mut Vec<Span>, first: u64, end: u64, found: &mut Vec<Portion>) {
    let Some((span, inner)) = left.split_first() else {
        found.push(Portion { spans: before.clone() });
        return;
    };
    let row = elements(inner);
    let mut place = first;
    while place < end {
        let number = place / row;
        let starts = place.is_multiple_of(row);
        let whole = (end - place) / row;
        before.push(Span { start: span.start + number, length: if starts { whole.max(1) } else { 1 } });
        let next = if starts && whole > 0 {
            found.push(Portion { spans: before.iter().chain(inner).copied().collect() });
            place + whole * row
        } else {
            let next = end.min((number + 1) * row);
            collect_range(inner, before, place - number * row, next - number * row, found);
            next
        };
        before.pop();
        place = next;
    }
}
