//! Scaled dot-product attention.
//!
//! A contraction of queries and keys is named `Scores`; scores take up factors, bounds and masks;
//! the softmax of scores times values is the attention. Heads that were repeated to match the
//! queries' are taken back to one of each.

use egg::Id;
use planner_ir::{Attention, Binary, Blind, Contract, Label, Op, Real, Unary};

use super::{Condition, Needed, Rule};
use crate::raise::form::bounds;
use crate::raise::make::Make;
use crate::raise::masks::{APART, SLIGHT};
use crate::raise::pattern::Match;
use crate::raise::term::{Head, Scores};

const UNBOUND: Condition = Condition {
    needed: Needed::ForTruth,
    name: "the scores are not bound yet",
    holds: |make, found| make.scores_of(found.operation("o")).is_some_and(|it| it.softcap == Real(0.0)),
};

/// So low that no score added to it shows.
const HIDES: Condition = Condition {
    needed: Needed::ForTruth,
    name: "what stands for a hidden score leaves nothing of its key beside others",
    holds: |make, found| make.number(found.class("n")).is_some_and(|it| it <= -APART),
};

/// So large that it is what it is, whatever score is added to it.
const ABSORBS: Condition = Condition {
    needed: Needed::ForTruth,
    name: "nothing is left of a score that it is added to",
    holds: |make, found| {
        let dtype = make.type_of(found.class("q")).dtype;
        make.number(found.class("n"))
            .is_some_and(|it| it.is_infinite() || bounds::absorbed(it, dtype) >= SLIGHT)
    },
};

const LAST: Condition = Condition {
    needed: Needed::ForTruth,
    name: "the softmax is over the keys",
    holds: |make, found| matches!(make.op(found.operation("s")), Op::Softmax { dim: 3 }),
};

const WITHOUT_SINKS: Condition = Condition {
    needed: Needed::ForTruth,
    name: "the last column of the softmax, which is no key's, is left out",
    holds: |make, found| {
        let scores = make.shape(found.class("z"));
        let first = Op::Slice { starts: vec![0; 4], steps: vec![1; 4], sizes: scores.to_vec() };
        let one = [&scores[..scores.len().min(3)], &[1]].concat();
        *make.op(found.operation("j")) == Op::Concat { dim: 3 }
            && *make.op(found.operation("l")) == first
            && make.shape(found.class("n")) == one
    },
};

const WIDENED: Condition = Condition {
    needed: Needed::ForTruth,
    name: "elements are narrower than the softmax's",
    holds: |make, found| {
        let (narrow, wide) = (make.type_of(found.class("x")).dtype, make.type_of(found.class("w")).dtype);
        narrow == make.type_of(found.root()).dtype && narrow.is_float() && narrow.bytes() <= wide.bytes()
    },
};

const WIDER: Condition = Condition {
    needed: Needed::ForTruth,
    name: "the scores are widened",
    holds: |make, found| {
        let (narrow, wide) = (make.type_of(found.class("q")).dtype, make.type_of(found.root()).dtype);
        wide.is_float() && narrow.bytes() < wide.bytes()
    },
};

pub(super) fn rules() -> Vec<Rule> {
    let mut rules = vec![
        Rule { name: "scores", pattern: "(contract:c ?q ?k)", conditions: &[], build: scores },
        Rule {
            name: "scaled scores",
            pattern: "(mul (scores:o ?q ?k) #c)",
            conditions: &[UNBOUND],
            build: |make, found| {
                let mut scores = make.scores_of(found.operation("o"))?;
                scores.scale.0 *= make.number(found.class("c"))?;
                make.term(Head::Scores(scores), &[found.class("q"), found.class("k")])
            },
        },
        Rule {
            name: "bound scores",
            pattern: "(mul (tanh (scores:o ?q ?k)) #c)",
            conditions: &[UNBOUND],
            build: |make, found| {
                let bound = make.number(found.class("c")).filter(|&it| it > 0.0)?;
                let scale = make.scores_of(found.operation("o"))?.scale.0 * bound;
                let scores = Scores { scale: Real(scale), softcap: Real(bound), blind: Blind::Zero };
                make.term(Head::Scores(scores), &[found.class("q"), found.class("k")])
            },
        },
        Rule {
            name: "masked scores",
            pattern: "(add (scores:o ?q ?k) ?m)",
            conditions: &[],
            build: |make, found| masked(make, found, found.class("m")),
        },
        Rule {
            name: "scores masked twice",
            pattern: "(add (masked:o ?q ?k ?m) ?n)",
            conditions: &[],
            build: |make, found| {
                let both = make.binary(Binary::Add, found.class("m"), found.class("n"))?;
                masked(make, found, both)
            },
        },
        Rule {
            name: "scaled masked scores",
            pattern: "(mul (masked:o ?q ?k ?m) #c)",
            conditions: &[UNBOUND],
            build: |make, found| {
                let factor = make.number(found.class("c")).filter(|&it| it > 0.0)?;
                let mut scores = make.scores_of(found.operation("o"))?;
                scores.scale.0 *= factor;
                let dtype = make.type_of(found.class("m")).dtype;
                let factor = make.scalar(dtype, factor).filter(|_| dtype.is_float())?;
                let mask = make.binary(Binary::Mul, found.class("m"), factor)?;
                make.term(Head::Scores(scores), &[found.class("q"), found.class("k"), mask])
            },
        },
        Rule {
            name: "hidden scores",
            pattern: "(select ?m (scores:o ?q ?k) #n)",
            conditions: &[HIDES],
            build: |make, found| {
                let (mask, blind) = hiding(make, found, found.class("m"))?;
                hidden(make, found, mask, blind)
            },
        },
        Rule {
            name: "scores hidden where true",
            pattern: "(select ?m #n (scores:o ?q ?k))",
            conditions: &[HIDES],
            build: |make, found| {
                let seen = make.unary(Unary::Not, found.class("m"))?;
                let (mask, blind) = hiding(make, found, seen)?;
                hidden(make, found, mask, blind)
            },
        },
        Rule {
            name: "hidden masked scores",
            pattern: "(select ?m (masked:o ?q ?k ?b) #n)",
            conditions: &[ABSORBS],
            build: |make, found| {
                let [m, b, n] = ["m", "b", "n"].map(|it| found.class(it));
                let mask = make.apply(Op::Select, &[m, b, n])?;
                masked(make, found, mask)
            },
        },
        Rule {
            name: "masked scores hidden where true",
            pattern: "(select ?m #n (masked:o ?q ?k ?b))",
            conditions: &[ABSORBS],
            build: |make, found| {
                let [m, b, n] = ["m", "b", "n"].map(|it| found.class(it));
                let seen = make.unary(Unary::Not, m)?;
                let mask = make.apply(Op::Select, &[seen, b, n])?;
                masked(make, found, mask)
            },
        },
        Rule {
            name: "scores of widened operands",
            pattern: "(cast (scores:o ?q ?k))",
            conditions: &[WIDER],
            build: |make, found| {
                let dtype = make.type_of(found.root()).dtype;
                let scores = make.scores_of(found.operation("o"))?;
                let q = make.cast(found.class("q"), dtype)?;
                let k = make.cast(found.class("k"), dtype)?;
                make.term(Head::Scores(scores), &[q, k])
            },
        },
        Rule {
            name: "softmax computes wide itself",
            pattern: "(cast (softmax:s ?w=(cast ?x)))",
            conditions: &[WIDENED],
            build: |make, found| {
                let op = make.op(found.operation("s")).clone();
                make.apply(op, &[found.class("x")])
            },
        },
    ];
    let spellings = [
        ("attention", "(contract:c (softmax:s (scores:o ?q ?k)) ?v)"),
        ("masked attention", "(contract:c (softmax:s (masked:o ?q ?k ?m)) ?v)"),
        ("guarded attention", "(contract:c (select (isnan ?p=(softmax:s (scores:o ?q ?k))) 0 ?p) ?v)"),
        (
            "guarded masked attention",
            "(contract:c (select (isnan ?p=(softmax:s (masked:o ?q ?k ?m))) 0 ?p) ?v)",
        ),
    ];
    for (name, pattern) in spellings {
        let build = if pattern.contains("masked:") { with_mask } else { without_mask };
        rules.push(Rule { name, pattern, conditions: &[LAST], build });
    }
    rules.push(Rule {
        name: "attention with sinks",
        pattern: "(contract:c (slice:l (softmax:s (concat:j ?z=(scores:o ?q ?k) ?n))) ?v)",
        conditions: &[LAST, WITHOUT_SINKS],
        build: |make, found| attention(make, found, &[], Some(found.class("n"))),
    });
    rules.push(Rule {
        name: "masked attention with sinks",
        pattern: "(contract:c (slice:l (softmax:s (concat:j ?z=(masked:o ?q ?k ?m) ?n))) ?v)",
        conditions: &[LAST, WITHOUT_SINKS],
        build: |make, found| attention(make, found, &[found.class("m")], Some(found.class("n"))),
    });
    rules.push(Rule {
        name: "repeated heads",
        pattern: "(attention:a ?q ?keys=(reshape (expand:e ?k)) ?values=(reshape (expand:f ?v)))",
        conditions: &[],
        build: |make, found| repeated_heads(make, found, &[]),
    });
    rules.push(Rule {
        name: "repeated heads, masked",
        pattern: "(attention:a ?q ?keys=(reshape (expand:e ?k)) ?values=(reshape (expand:f ?v)) ?m)",
        conditions: &[],
        build: |make, found| repeated_heads(make, found, &[found.class("m")]),
    });
    rules.push(Rule {
        name: "repeated heads, masked, with sinks",
        pattern: "(attention:a ?q ?keys=(reshape (expand:e ?k)) ?values=(reshape (expand:f ?v)) ?m ?n)",
        conditions: &[],
        build: |make, found| repeated_heads(make, found, &[found.class("m"), found.class("n")]),
    });
    rules
}

/// The labels of a contraction of queries and keys, as attention names them.
struct Roles {
    batch: Label,
    head: Option<Label>,
    query: Label,
    key: Label,
    size: Label,
}

/// `contract(q, k)` with result `[b, h, s, t]` or `[b, s, t]` as scores.
fn scores(make: &mut Make<'_>, found: &Match<'_>) -> Option<Id> {
    let Op::Contract(contract) = make.op(found.operation("c")).clone() else {
        return None;
    };
    let Contract { mut left, mut right, result } = contract;
    let (mut q, mut k) = (found.class("q"), found.class("k"));
    let roles = match result[..] {
        [batch, head, query, key] => (batch, Some(head), query, key),
        [batch, query, key] => (batch, None, query, key),
        _ => return None,
    };
    if left.contains(&roles.3) {
        std::mem::swap(&mut left, &mut right);
        std::mem::swap(&mut q, &mut k);
    }
    let mut summed = left.iter().filter(|label| !result.contains(label));
    let size = *summed.next().filter(|_| summed.next().is_none())?;
    let roles = Roles { batch: roles.0, head: roles.1, query: roles.2, key: roles.3, size };
    if left.contains(&roles.key) || right.contains(&roles.query) || !right.contains(&roles.batch) {
        return None;
    }
    // Without heads the result's labels say so by one that occurs nowhere.
    let head = roles.head.unwrap_or(Label(u8::MAX));
    let q = make.arranged(q, &left, &[roles.batch, head, roles.query, roles.size])?;
    let k = make.arranged(k, &right, &[roles.batch, head, roles.key, roles.size])?;
    let plain = Scores { scale: Real(1.0), softcap: Real(0.0), blind: Blind::Zero };
    let scores = make.term(Head::Scores(plain), &[q, k])?;
    let shape = make.shape(found.root()).to_vec();
    make.reshape(scores, &shape)
}

fn masked(make: &mut Make<'_>, found: &Match<'_>, mask: Id) -> Option<Id> {
    let scores = make.scores_of(found.operation("o"))?;
    hidden(make, found, mask, scores.blind)
}

fn hidden(make: &mut Make<'_>, found: &Match<'_>, mask: Id, blind: Blind) -> Option<Id> {
    let scores = Scores { blind, ..make.scores_of(found.operation("o"))? };
    let made = make.term(Head::Scores(scores), &[found.class("q"), found.class("k"), mask])?;
    (make.type_of(made) == make.type_of(found.root())).then_some(made)
}

/// What hides scores where a truth value is false, and what a row gets that sees nothing: itself and 0 if
/// what is put there is infinite, else everything equally. Adding says that too if nothing is left of what
/// the number is added to, and other masks can be added to it.
fn hiding(make: &mut Make<'_>, found: &Match<'_>, seen: Id) -> Option<(Id, Blind)> {
    let low = make.number(found.class("n"))?;
    if low.is_infinite() {
        return Some((seen, Blind::Zero));
    }
    let dtype = make.type_of(found.class("q")).dtype;
    if bounds::absorbed(low, dtype) < SLIGHT {
        return Some((seen, Blind::Mean));
    }
    let (zero, low) = (make.scalar(dtype, 0.0)?, make.scalar(dtype, low)?);
    Some((make.apply(Op::Select, &[seen, zero, low])?, Blind::Zero))
}

fn without_mask(make: &mut Make<'_>, found: &Match<'_>) -> Option<Id> {
    attention(make, found, &[], None)
}

fn with_mask(make: &mut Make<'_>, found: &Match<'_>) -> Option<Id> {
    attention(make, found, &[found.class("m")], None)
}

/// `contract(softmax(scores), v)` as attention, its dimensions in the contraction's order.
fn attention(make: &mut Make<'_>, found: &Match<'_>, mask: &[Id], sinks: Option<Id>) -> Option<Id> {
    let Op::Contract(Contract { left, right, result }) = make.op(found.operation("c")).clone() else {
        return None;
    };
    let [batch, head, query, key] = left[..] else {
        return None;
    };
    let mut free = right.iter().filter(|label| !left.contains(label));
    let size = *free.next().filter(|_| free.next().is_none())?;
    if right.contains(&query) || !right.contains(&key) || !right.contains(&batch) || result.contains(&key) {
        return None;
    }
    let v = make.arranged(found.class("v"), &right, &[batch, head, key, size])?;
    let scores = make.scores_of(found.operation("o"))?;
    let attention = Attention {
        scale: scores.scale,
        causal: false,
        softcap: scores.softcap,
        window: None,
        blind: if sinks.is_some() { Blind::Zero } else { scores.blind },
        sinks: sinks.is_some(),
        statistics: false,
    };
    let sinks = sinks.map(|it| make.unrepeated(it));
    let of_scores = [found.class("q"), found.class("k"), v];
    let operands: Vec<Id> = of_scores.into_iter().chain(mask.iter().copied()).chain(sinks).collect();
    let made = make.apply(Op::Attention(attention), &operands)?;
    make.arranged(made, &[batch, head, query, size], &result)
}

/// Attention on keys and values of which each head stands for several of the queries'.
fn repeated_heads(make: &mut Make<'_>, found: &Match<'_>, mask: &[Id]) -> Option<Id> {
    let op = make.op(found.operation("a")).clone();
    let k = once(make, found, ["keys", "k", "e"])?;
    let v = once(make, found, ["values", "v", "f"])?;
    let operands: Vec<Id> = [found.class("q"), k, v].into_iter().chain(mask.iter().copied()).collect();
    make.apply(op, &operands)
}

/// `x: [b, g, 1, t, d]`, repeated to `[b, g, r, t, d]` and merged to `[b, g r, t, d]`, as
/// `[b, g, t, d]`. The names are those of what is merged, of x and of the repetition.
fn once(make: &mut Make<'_>, found: &Match<'_>, names: [&str; 3]) -> Option<Id> {
    let [merged, x, repetition] = names;
    let Op::Expand { shape } = make.op(found.operation(repetition)).clone() else {
        return None;
    };
    let x = found.class(x);
    let [b, g, r, t, d] = shape[..] else {
        return None;
    };
    let right = make.shape(x) == [b, g, 1, t, d] && make.shape(found.class(merged)) == [b, g * r, t, d];
    (right && r > 1).then_some(())?;
    make.reshape(x, &[b, g, t, d])
}
