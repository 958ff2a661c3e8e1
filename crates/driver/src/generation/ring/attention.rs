//! Attention of one query to keys in the order of slots.

use planner_ir::{Attention, Binary, Blind, DType, Graph, Loops, Node, Op, Real, Type, ValueId};

use super::{Along, MIXED, Over, Ring};

/// Attention that does not ask where its keys are.
pub(super) struct Unordered {
    pub(super) op: Attention,
    /// How many of the last places it sees, where these are not all.
    window: Option<u64>,
    /// Its keys.
    along: Along,
}

/// Attention whose keys are in the order of slots, if it asks where they are: a single query sees all of them, or those
/// of a window, which a mask says. Nothing for what does not ask.
pub(super) fn in_any_order(
    node: &Node,
    graph: &Graph,
    loops: &Loops,
    over: &Over,
) -> Result<Option<Unordered>, String> {
    let Op::Attention(op) = node.op else { return Ok(None) };
    let Some((_, &along)) = over.iter().find(|it| loops.positional.contains(it.0)) else { return Ok(None) };
    let queries = graph.type_of(node.operands[0]).shape[2];
    if queries != 1 {
        return Err(format!("has {queries} queries, each of which sees those before its own, expected one"));
    }
    let window = op.window.filter(|&it| it < along.size());
    if window.is_some() && along.behind > 0 {
        return Err(MIXED.to_owned());
    }
    let mask = op.masks(&node.operands[3..]).0.map(|&it| graph.type_of(it).dtype);
    let counts = match op.blind {
        Blind::Zero => false,
        // What a query that sees no key gets says how keys are hidden.
        Blind::Mean => mask.is_some_and(|it| it != DType::Bool),
        Blind::Once => true,
    };
    if window.is_some() && counts {
        return Err(
            "sees a window of them, and a query that sees none depends on how they are hidden".to_owned()
        );
    }
    Ok(Some(Unordered { op: Attention { causal: false, window: None, ..op }, window, along }))
}

impl Ring<'_> {
    /// Adds to the operands of attention the mask of its window.
    pub(super) fn hide(
        &mut self,
        attention: &Unordered,
        operands: &mut Vec<ValueId>,
        origin: &str,
    ) -> Result<(), String> {
        let Some(window) = attention.window else { return Ok(()) };
        let order = self.order(attention.along)?;
        let first = self.number(self.capacity - window)?;
        let seen = self.push(Op::Binary(Binary::GreaterOrEqual), vec![order, first], origin)?;
        let Some(&mask) = attention.op.masks(&operands[3..]).0 else {
            operands.insert(3, seen);
            return Ok(());
        };
        let dtype = self.graph.type_of(mask).dtype;
        operands[3] = if dtype == DType::Bool {
            self.push(Op::Binary(Binary::And), vec![mask, seen], origin)?
        } else {
            let hidden = Op::Fill { result: Type::new(dtype, []), value: Real(f64::NEG_INFINITY) };
            let hidden = self.push(hidden, vec![], origin)?;
            self.push(Op::Select, vec![seen, mask, hidden], origin)?
        };
        Ok(())
    }
}
