//! One graph raised: into an e-graph, through the rules, and out again.

use std::collections::BTreeMap;

use egg::Id;
use planner_ir::{Graph, Output, Source, Type, ValueId};

use super::extract::{Program, extract};
use super::make::canonical;
use super::rules::Ready;
use super::saturate::{Effort, Unsound, saturate};
use super::term::{Head, Known, Term, Terms};

/// A raised graph and what it took.
pub(super) struct RaisedBody {
    pub(super) graph: Graph,
    pub(super) effort: Effort,
    pub(super) terms: usize,
    pub(super) classes: usize,
}

/// Raises a graph. Values that no node makes keep their numbers, and outputs their order.
pub(super) fn raise_body(graph: &Graph, rules: &[Ready]) -> Result<RaisedBody, Unsound> {
    let mut entered = Entered::of(graph);
    let effort = saturate(&mut entered.terms, rules)?;
    let terms = &entered.terms;
    let roots: Vec<Id> = graph.outputs.iter().map(|it| entered.values[it.value.0]).collect();
    let mut original = BTreeMap::new();
    for (&id, term) in &entered.original {
        original.entry(terms.find(id)).or_insert_with(|| term.clone());
    }
    let program = extract(terms, &roots, &original);
    let raised = entered.leave(graph, &program);
    Ok(RaisedBody { graph: raised, effort, terms: terms.total_size(), classes: terms.number_of_classes() })
}

/// A graph in an e-graph.
struct Entered {
    terms: Terms,
    /// For each value its class.
    values: Vec<Id>,
    /// For each class the term that came in first.
    original: BTreeMap<Id, Term>,
    /// For each class that came in, what the model file calls its node.
    origins: BTreeMap<Id, String>,
}

impl Entered {
    fn of(graph: &Graph) -> Self {
        let prepared = graph.prepared();
        let outside = graph
            .values
            .iter()
            .zip(&prepared)
            .map(|(value, &prepared)| (value.type_.clone(), prepared))
            .collect();
        let known = Known { outside, ..Known::default() };
        let mut entered = Self {
            terms: Terms::new(known),
            values: vec![Id::from(0); graph.values.len()],
            original: BTreeMap::new(),
            origins: BTreeMap::new(),
        };
        for value in graph.value_ids() {
            if !matches!(graph.value(value).source, Source::Result { .. }) {
                entered.values[value.0] = entered.add(Head::Outside(value.0), Vec::new(), "");
            }
        }
        for node in &graph.nodes {
            let op = match &node.op {
                planner_ir::Op::Contract(contract) => planner_ir::Op::Contract(canonical(contract)),
                op => op.clone(),
            };
            let children = node.operands.iter().map(|it| entered.values[it.0]).collect();
            let made = entered.add(Head::Op(op), children, &node.origin);
            for (index, result) in node.results.iter().enumerate() {
                entered.values[result.0] = match node.results.len() {
                    1 => made,
                    _ => entered.add(Head::Project(index), vec![made], &node.origin),
                };
            }
        }
        entered.terms.rebuild();
        entered
    }

    fn add(&mut self, head: Head, children: Vec<Id>, origin: &str) -> Id {
        let head = self.terms.analysis.number(head);
        let term = Term { head, children };
        let id = self.terms.add(term.clone());
        self.original.entry(id).or_insert(term);
        self.origins.entry(id).or_insert_with(|| origin.to_owned());
        id
    }

    /// The program as a graph with the boundary of `graph`.
    fn leave(&self, graph: &Graph, program: &Program) -> Graph {
        let mut raised = Graph { name: graph.name.clone(), ..Graph::default() };
        let mut made: BTreeMap<Id, Vec<ValueId>> = BTreeMap::new();
        let mut boundary = vec![ValueId(usize::MAX); graph.values.len()];
        for value in graph.value_ids() {
            let it = graph.value(value);
            if !matches!(it.source, Source::Result { .. }) {
                boundary[value.0] = raised.push_value(it.type_.clone(), it.source.clone());
            }
        }
        let mut origins: BTreeMap<Id, &String> = BTreeMap::new();
        for (&id, origin) in &self.origins {
            origins.entry(self.terms.find(id)).or_insert(origin);
        }
        let roots: Vec<Id> =
            graph.outputs.iter().map(|it| self.terms.find(self.values[it.value.0])).collect();
        for &root in &roots {
            self.emit(root, program, &boundary, &origins, &mut raised, &mut made);
        }
        for (output, root) in graph.outputs.iter().zip(&roots) {
            raised.outputs.push(Output { name: output.name.clone(), value: made[root][0] });
        }
        raised
    }

    /// Appends what a class needs, then the class.
    fn emit(
        &self,
        root: Id,
        program: &Program,
        boundary: &[ValueId],
        origins: &BTreeMap<Id, &String>,
        raised: &mut Graph,
        made: &mut BTreeMap<Id, Vec<ValueId>>,
    ) {
        // What is made for an operation that came in is called as that operation.
        let mut path: Vec<(Id, String)> = vec![(root, String::new())];
        while let Some((id, heir)) = path.last().cloned() {
            let term = &program.terms[&id];
            let children: Vec<Id> = term.children.iter().map(|&it| self.terms.find(it)).collect();
            let origin = origins.get(&id).map_or(heir, |&it| it.clone());
            if let Some(&missing) = children.iter().find(|&it| !made.contains_key(it)) {
                path.push((missing, origin));
                continue;
            }
            path.pop();
            if made.contains_key(&id) {
                continue;
            }
            let values = match &self.terms.analysis.heads[term.head] {
                Head::Outside(value) => vec![boundary[*value]],
                Head::Project(index) => vec![made[&children[0]][*index]],
                Head::Scores(_) => unreachable!("scores have no price"),
                Head::Op(op) => {
                    let operands: Vec<ValueId> = children.iter().map(|it| made[it][0]).collect();
                    let types: Vec<Type> = self.terms[id].data.types.clone();
                    debug_assert_eq!(op.infer(&raised.types_of(&operands)).as_ref(), Ok(&types));
                    raised.push_node(op.clone(), operands, types, origin)
                }
            };
            made.insert(id, values);
        }
    }
}
