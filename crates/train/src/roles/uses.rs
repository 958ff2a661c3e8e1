//! What a weight is used for.

use std::collections::BTreeSet;

use planner_ir::{Binary, Graph, Node, NodeId, Op, Source, Unary, ValueId};

/// How far is looked for a norm before a product of elements, or a softmax behind a sum (operations).
const FAR: usize = 10;

/// What a weight is used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Use {
    /// An operand of a product, a convolution, experts.
    Product,
    /// Rows of it are looked up.
    Lookup,
    /// The scale or the bias of a norm.
    Norm,
    /// Added to scores of attention, or a mask of attention.
    Scores,
    /// Added to values, or put beside them.
    Added,
    /// Multiplied element by element, or an operand of a function of elements.
    Elements,
    /// Anything else: compared, selected.
    Other,
}

/// What the weights of a program are used for.
pub(crate) struct Uses<'a> {
    pub(super) graph: &'a Graph,
    pub(super) users: Vec<Vec<NodeId>>,
    /// For each value, whether weights and constants alone lead to it.
    pub(super) prepared: Vec<bool>,
}

impl<'a> Uses<'a> {
    pub(crate) fn of(graph: &'a Graph) -> Self {
        Self { graph, users: graph.users(), prepared: graph.prepared() }
    }

    /// What a weight is used for, moved or as it is.
    pub(crate) fn of_weight(&self, weight: ValueId) -> BTreeSet<Use> {
        let mut found = BTreeSet::new();
        let mut seen = BTreeSet::from([weight]);
        let mut moved = vec![weight];
        while let Some(value) = moved.pop() {
            for &user in &self.users[value.0] {
                let node = self.graph.node(user);
                match self.used_by(node, value) {
                    Some(kind) => {
                        found.insert(kind);
                    }
                    None => moved.extend(node.results.iter().copied().filter(|it| seen.insert(*it))),
                }
            }
        }
        found
    }

    /// Whether all that a weight is used for is what a layer's matrix is: the right operand of products with
    /// something computed that has dimensions of its own, with no dimension in which each has a matrix of its
    /// own, and the kernel of convolutions. A state that begins with 0 is the left operand, or has such
    /// dimensions: those of examples and heads.
    pub(super) fn is_layer(&self, weight: ValueId) -> bool {
        let mut seen = BTreeSet::from([weight]);
        let mut moved = vec![weight];
        let mut found = false;
        while let Some(value) = moved.pop() {
            for &user in &self.users[value.0] {
                let node = self.graph.node(user);
                let is_right = node.operands.iter().position(|it| *it == value) == Some(1);
                match &node.op {
                    Op::Contract(of) => {
                        let shared = |label| of.left.contains(label) && of.result.contains(label);
                        let is_matrix = is_right && !of.right.iter().any(shared);
                        if !is_matrix || self.prepared[node.operands[0].0] {
                            return false;
                        }
                        found = true;
                    }
                    Op::Conv(_) if is_right => found = true,
                    _ if self.used_by(node, value).is_none() => {
                        moved.extend(node.results.iter().copied().filter(|it| seen.insert(*it)));
                    }
                    _ => return false,
                }
            }
        }
        found
    }

    /// How many operations read a weight.
    pub(crate) fn places(&self, weight: ValueId) -> usize {
        self.users[weight.0].len()
    }

    /// What a node uses a value for; nothing if it only moves elements.
    fn used_by(&self, node: &Node, value: ValueId) -> Option<Use> {
        let place = node.operands.iter().position(|it| *it == value).unwrap_or(0);
        let others_are_prepared = || node.operands.iter().all(|it| self.prepared[it.0]);
        Some(match &node.op {
            Op::Concat { .. } if !others_are_prepared() => Use::Added,
            Op::Reshape { .. }
            | Op::Transpose { .. }
            | Op::Cast(_)
            | Op::Slice { .. }
            | Op::Expand { .. }
            | Op::Concat { .. } => return None,
            Op::Contract(_) | Op::Conv(_) | Op::Experts { .. } => Use::Product,
            Op::Gather { .. } | Op::GatherNd { .. } | Op::GatherElements { .. } if place == 0 => {
                if self.graph.type_of(value).rank() > 1 { Use::Lookup } else { Use::Other }
            }
            Op::LayerNorm { .. } | Op::RmsNorm { .. } | Op::InstanceNorm { .. } if place > 0 => Use::Norm,
            Op::Attention(_) if place > 2 => Use::Scores,
            Op::Attention(_) => Use::Product,
            Op::Binary(Binary::Add | Binary::Sub) => {
                let other = node.operands.iter().find(|it| **it != value);
                match other {
                    _ if self.leads_to_softmax(node.results[0], FAR) => Use::Scores,
                    Some(&other) if self.is_normal(other, FAR) => Use::Norm,
                    _ => Use::Added,
                }
            }
            Op::Binary(Binary::Mul | Binary::Div) => {
                let other = node.operands.iter().find(|it| **it != value);
                let normal = other.is_some_and(|&other| self.is_normal(other, FAR));
                if normal { Use::Norm } else { Use::Elements }
            }
            Op::Unary(_) => Use::Elements,
            _ => Use::Other,
        })
    }

    /// Whether a value comes from a norm: one operation, or a division by what a root was taken of;
    /// with its scale and bias, if they are there.
    fn is_normal(&self, value: ValueId, far: usize) -> bool {
        let Source::Result { node, .. } = self.graph.value(value).source else { return false };
        let node = self.graph.node(node);
        let Some(far) = far.checked_sub(1) else { return false };
        match &node.op {
            Op::LayerNorm { .. } | Op::RmsNorm { .. } | Op::InstanceNorm { .. } => true,
            Op::Reshape { .. } | Op::Transpose { .. } | Op::Cast(_) | Op::Expand { .. } => {
                self.is_normal(node.operands[0], far)
            }
            Op::Binary(Binary::Mul | Binary::Div) => {
                node.operands.iter().any(|&it| self.is_root(it, far))
                    || self.computed(node).is_some_and(|it| self.is_normal(it, far))
            }
            Op::Binary(Binary::Add) => self.computed(node).is_some_and(|it| self.is_normal(it, far)),
            _ => false,
        }
    }

    /// The one operand that weights and constants alone do not lead to.
    pub(super) fn computed(&self, node: &Node) -> Option<ValueId> {
        let mut computed = node.operands.iter().copied().filter(|it| !self.prepared[it.0]);
        computed.next().filter(|_| computed.next().is_none())
    }

    /// Whether a value is a root of something computed, or one over it.
    fn is_root(&self, value: ValueId, far: usize) -> bool {
        let Source::Result { node, .. } = self.graph.value(value).source else { return false };
        let node = self.graph.node(node);
        let Some(far) = far.checked_sub(1) else { return false };
        match &node.op {
            _ if self.prepared[value.0] => false,
            Op::Unary(Unary::Sqrt) => true,
            Op::Unary(Unary::Reciprocal) | Op::Reshape { .. } | Op::Cast(_) | Op::Expand { .. } => {
                self.is_root(node.operands[0], far)
            }
            Op::Binary(Binary::Pow) => self.is_half(node.operands[1]),
            Op::Binary(Binary::Div) => self.is_root(node.operands[1], far),
            _ => false,
        }
    }

    /// Whether a value is 1/2 or -1/2: an exponent of roots.
    fn is_half(&self, value: ValueId) -> bool {
        let Source::Result { node, .. } = self.graph.value(value).source else { return false };
        matches!(&self.graph.node(node).op, Op::Fill { value, .. } if value.0.abs().to_bits() == 0.5_f64.to_bits())
    }

    /// Whether a softmax is taken of a value, with nothing but operations on elements between.
    fn leads_to_softmax(&self, value: ValueId, far: usize) -> bool {
        let Some(far) = far.checked_sub(1) else { return false };
        self.users[value.0].iter().any(|&user| {
            let node = self.graph.node(user);
            match &node.op {
                Op::Softmax { .. } | Op::LogSoftmax { .. } => !self.is_loss(node),
                Op::Attention(_) => node.operands.iter().skip(3).any(|it| *it == value),
                Op::Binary(Binary::Add | Binary::Sub | Binary::Mul | Binary::Div | Binary::Max)
                | Op::Select
                | Op::Cast(_)
                | Op::Reshape { .. }
                | Op::Expand { .. }
                | Op::Slice { .. }
                | Op::Transpose { .. }
                | Op::Concat { .. } => self.leads_to_softmax(node.results[0], far),
                _ => false,
            }
        })
    }

    /// Whether no product is made of a softmax: it is that of a loss, or of a choice.
    fn is_loss(&self, node: &Node) -> bool {
        let mut seen: BTreeSet<ValueId> = node.results.iter().copied().collect();
        let mut values: Vec<ValueId> = node.results.clone();
        while let Some(value) = values.pop() {
            for &user in &self.users[value.0] {
                let node = self.graph.node(user);
                match &node.op {
                    Op::Contract(_) => return false,
                    Op::Dropout { .. }
                    | Op::Cast(_)
                    | Op::Reshape { .. }
                    | Op::Transpose { .. }
                    | Op::Expand { .. }
                    | Op::Slice { .. }
                    | Op::Select
                    | Op::Binary(_) => {
                        values.extend(node.results.iter().copied().filter(|it| seen.insert(*it)));
                    }
                    _ => {}
                }
            }
        }
        true
    }

    /// Whether all that is made of a weight are sines and cosines.
    pub(crate) fn makes_angles(&self, weight: ValueId) -> bool {
        let mut seen = BTreeSet::from([weight]);
        let mut values = vec![weight];
        let mut angles = false;
        while let Some(value) = values.pop() {
            for &user in &self.users[value.0] {
                let node = self.graph.node(user);
                match &node.op {
                    Op::Unary(Unary::Sin | Unary::Cos) => angles = true,
                    Op::Reshape { .. }
                    | Op::Transpose { .. }
                    | Op::Cast(_)
                    | Op::Slice { .. }
                    | Op::Expand { .. }
                    | Op::Concat { .. }
                    | Op::Contract(_)
                    | Op::Binary(Binary::Mul | Binary::Div | Binary::Add) => {
                        values.extend(node.results.iter().copied().filter(|it| seen.insert(*it)));
                    }
                    _ => return false,
                }
            }
        }
        angles
    }

    /// The weights right beside a matrix in its products: biases that are added to these, scales and
    /// biases of the norms that are multiplied.
    pub(crate) fn beside(&self, weight: ValueId) -> BTreeSet<ValueId> {
        let mut found = BTreeSet::new();
        let mut seen = BTreeSet::from([weight]);
        let mut moved = vec![weight];
        while let Some(value) = moved.pop() {
            for &user in &self.users[value.0] {
                let node = self.graph.node(user);
                match &node.op {
                    Op::Contract(_) => {
                        let others = node.operands.iter().filter(|it| **it != value);
                        others.for_each(|&it| self.weights_before(it, FAR, &mut found));
                        self.weights_after(node.results[0], FAR, &mut found);
                    }
                    _ if self.used_by(node, value).is_none() => {
                        moved.extend(node.results.iter().copied().filter(|it| seen.insert(*it)));
                    }
                    _ => {}
                }
            }
        }
        found
    }

    /// The weights of the norm that a value is, if it is one.
    fn weights_before(&self, value: ValueId, far: usize, found: &mut BTreeSet<ValueId>) {
        let (Source::Result { node, .. }, Some(far)) = (&self.graph.value(value).source, far.checked_sub(1))
        else {
            return;
        };
        let node = self.graph.node(*node);
        match &node.op {
            Op::LayerNorm { .. } | Op::RmsNorm { .. } | Op::InstanceNorm { .. } => {
                node.operands[1..].iter().for_each(|&it| self.weight_of(it, found));
            }
            Op::Binary(Binary::Mul | Binary::Add) => {
                node.operands
                    .iter()
                    .filter(|it| self.prepared[it.0])
                    .for_each(|&it| self.weight_of(it, found));
                if let Some(other) = self.computed(node) {
                    self.weights_before(other, far, found);
                }
            }
            Op::Reshape { .. } | Op::Transpose { .. } | Op::Cast(_) => {
                self.weights_before(node.operands[0], far, found);
            }
            _ => {}
        }
    }

    /// The weights that are added to a value.
    fn weights_after(&self, value: ValueId, far: usize, found: &mut BTreeSet<ValueId>) {
        let Some(far) = far.checked_sub(1) else { return };
        for &user in &self.users[value.0] {
            let node = self.graph.node(user);
            match &node.op {
                Op::Binary(Binary::Add) => {
                    let prepared = node.operands.iter().filter(|it| self.prepared[it.0]);
                    prepared.for_each(|&it| self.weight_of(it, found));
                }
                Op::Reshape { .. } | Op::Transpose { .. } | Op::Cast(_) => {
                    self.weights_after(node.results[0], far, found);
                }
                _ => {}
            }
        }
    }

    /// The weight that a value is, moved or as it is.
    fn weight_of(&self, value: ValueId, found: &mut BTreeSet<ValueId>) {
        match &self.graph.value(value).source {
            Source::Weight(_) => {
                found.insert(value);
            }
            Source::Result { node, .. } => {
                let node = self.graph.node(*node);
                if let Op::Reshape { .. } | Op::Transpose { .. } | Op::Cast(_) | Op::Expand { .. } = node.op {
                    self.weight_of(node.operands[0], found);
                }
            }
            _ => {}
        }
    }
}
