//! Statements and regions.

use std::fmt;

use super::attribute::Attribute;
use super::print::Print;
use super::scan::{Result, Scan};
use crate::data::Type;
use crate::graph::{
    Carried, Graph, Node, NodeId, Output, Phase, Source, State, StateKind, Training, Value, ValueId,
};
use crate::op::{Op, Region, RegionNode};

/// The program of a text.
///
/// What is read is well numbered; whether it is well formed is for `verify` to say.
pub fn parse_graph(text: &str) -> Result<Graph> {
    let mut scan = Scan::new(text);
    scan.lines();
    scan.expect("graph")?;
    let mut graph = Graph { name: scan.string("the name of the graph")?, ..Graph::default() };
    scan.expect("{")?;
    loop {
        scan.lines();
        if scan.eat_word("return") {
            break;
        }
        parse_statement(&mut scan, &mut graph)?;
        scan.end_of_statement()?;
    }
    parse_outputs(&mut scan, &mut graph)?;
    scan.lines();
    if scan.eat_word("train") {
        graph.training = Some(parse_training(&mut scan)?);
        scan.lines();
    }
    scan.expect("}")?;
    scan.end()?;
    Ok(graph)
}

impl fmt::Display for Graph {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut print = Print::new(f);
        print.text("graph ")?;
        print.string(&self.name)?;
        print.text(" ")?;
        print.braces(|print| {
            let mut printed = 0;
            for (index, value) in self.values.iter().enumerate() {
                let (kind, name) = match &value.source {
                    Source::Input(name) => ("input", name),
                    Source::Weight(name) => ("weight", name),
                    Source::State(State { kind, name }) => (kind.name(), name),
                    Source::Result { node, .. } => {
                        // Operations without results stand before the next one with some.
                        while printed <= node.0 && printed < self.nodes.len() {
                            print_node(self, &self.nodes[printed], print)?;
                            printed += 1;
                        }
                        continue;
                    }
                };
                print.line()?;
                print.text(format_args!("%{index} = {kind} "))?;
                print.string(name)?;
                print.text(format_args!(" : {}", value.type_))?;
            }
            for node in &self.nodes[printed..] {
                print_node(self, node, print)?;
            }
            print.line()?;
            print.text("return")?;
            print.list(&self.outputs, ",", |print, output| {
                print.text(" ")?;
                print.string(&output.name)?;
                print.text(format_args!(" %{}", output.value.0))
            })?;
            let Some(training) = &self.training else { return Ok(()) };
            print.line()?;
            print.text(format_args!("train {}", training.micro_batches))?;
            print.list(&training.carried, ",", |print, it| {
                print.text(format_args!(" %{} becomes %{}", it.state.0, it.next.0))
            })
        })?;
        print.text("\n")
    }
}

fn print_node(graph: &Graph, node: &Node, print: &mut Print<'_>) -> fmt::Result {
    let results = node.results.iter().map(|it| it.0);
    print_call(&node.op, results, node.operands.iter().map(|it| it.0), print)?;
    if !node.results.is_empty() {
        print.text(" : ")?;
        print.list(&node.results, ", ", |print, result| match graph.values.get(result.0) {
            Some(value) => print.text(&value.type_),
            None => print.text("?"),
        })?;
    }
    if node.phase != Phase::Forward {
        print.text(format_args!(" in {}", node.phase.name()))?;
    }
    if !node.origin.is_empty() {
        print.text(" # origin ")?;
        print.string(&node.origin)?;
    }
    Ok(())
}

/// A line such as `%2, %3 = op %0 %1`.
fn print_call(
    op: &Op,
    results: impl ExactSizeIterator<Item = usize>,
    operands: impl Iterator<Item = usize>,
    print: &mut Print<'_>,
) -> fmt::Result {
    print.line()?;
    if results.len() > 0 {
        print.list(results, ", ", |print, it| print.text(format_args!("%{it}")))?;
        print.text(" = ")?;
    }
    op.print(print)?;
    for operand in operands {
        print.text(format_args!(" %{operand}"))?;
    }
    Ok(())
}

fn parse_statement(scan: &mut Scan<'_>, graph: &mut Graph) -> Result<()> {
    let results = parse_results(scan, graph.values.len())?;
    let source = if results == 1 { parse_source(scan) } else { None };
    if let Some(source) = source {
        let name = scan.string("the name of the value")?;
        scan.expect(":")?;
        graph.values.push(Value { type_: Type::parse(scan)?, source: source(name) });
        return Ok(());
    }
    let op = Op::parse(scan)?;
    let operands = parse_operands(scan)?.into_iter().map(ValueId).collect();
    let types = parse_types(scan)?;
    if types.len() != results {
        return scan.error(format!("{results} types, one for each result, not {}", types.len()));
    }
    let phase = if scan.eat_word("in") { parse_phase(scan)? } else { Phase::Forward };
    let origin = if scan.eat("#") {
        scan.expect("origin")?;
        scan.string("the origin of the operation")?
    } else {
        String::new()
    };
    let node = NodeId(graph.nodes.len());
    let first = graph.values.len();
    for (index, type_) in types.into_iter().enumerate() {
        graph.values.push(Value { type_, source: Source::Result { node, index } });
    }
    let results = (first..graph.values.len()).map(ValueId).collect();
    graph.nodes.push(Node { op, operands, results, origin, phase });
    Ok(())
}

/// The word that says where a value without operation comes from.
fn parse_source(scan: &mut Scan<'_>) -> Option<Box<dyn Fn(String) -> Source>> {
    if scan.eat_word("input") {
        return Some(Box::new(Source::Input));
    }
    if scan.eat_word("weight") {
        return Some(Box::new(Source::Weight));
    }
    let kind = StateKind::ALL.into_iter().find(|kind| scan.eat_word(kind.name()))?;
    Some(Box::new(move |name| Source::State(State { kind, name })))
}

fn parse_phase(scan: &mut Scan<'_>) -> Result<Phase> {
    let found = Phase::ALL.into_iter().find(|phase| scan.eat_word(phase.name()));
    found.map_or_else(|| scan.error("a phase: forward, backward, gradient or update"), Ok)
}

/// A line such as `train 4 %0 becomes %7, %1 becomes %9`.
fn parse_training(scan: &mut Scan<'_>) -> Result<Training> {
    let micro_batches = scan.number("the number of micro-batches")?;
    let mut carried = Vec::new();
    while scan.end_of_statement().is_err() {
        if !carried.is_empty() {
            scan.expect(",")?;
        }
        let state = ValueId(parse_value(scan)?);
        scan.expect("becomes")?;
        carried.push(Carried { state, next: ValueId(parse_value(scan)?) });
    }
    Ok(Training { micro_batches, carried })
}

fn parse_outputs(scan: &mut Scan<'_>, graph: &mut Graph) -> Result<()> {
    scan.end_of_statement().or_else(|_| {
        loop {
            let name = scan.string("the name of an output")?;
            graph.outputs.push(Output { name, value: ValueId(parse_value(scan)?) });
            if !scan.eat(",") {
                return scan.end_of_statement();
            }
        }
    })
}

fn parse_value(scan: &mut Scan<'_>) -> Result<usize> {
    const EXPECTED: &str = "a value such as `%0`";
    if scan.eat("%") { scan.number(EXPECTED) } else { scan.error(EXPECTED) }
}

/// The results that a statement begins with, which are numbered from `first`: how many.
fn parse_results(scan: &mut Scan<'_>, first: usize) -> Result<usize> {
    let mut count = 0;
    let mut at = scan.place();
    if !scan.eat("%") {
        return Ok(0);
    }
    loop {
        let expected = format!("`%{}`, the next value", first + count);
        if scan.number::<usize>(&expected)? != first + count {
            return scan.error_at(at, expected);
        }
        count += 1;
        if scan.eat("=") {
            return Ok(count);
        }
        if !scan.eat(",") {
            return scan.error("`,` or `=`");
        }
        at = scan.place();
        scan.expect("%")?;
    }
}

fn parse_operands(scan: &mut Scan<'_>) -> Result<Vec<usize>> {
    let mut operands = Vec::new();
    while scan.eat("%") {
        operands.push(scan.number("a value such as `%0`")?);
    }
    Ok(operands)
}

/// Nothing, or a colon and types.
fn parse_types(scan: &mut Scan<'_>) -> Result<Vec<Type>> {
    let mut types = Vec::new();
    if scan.eat(":") {
        types.push(Type::parse(scan)?);
        while scan.eat(",") {
            types.push(Type::parse(scan)?);
        }
    }
    Ok(types)
}

impl Attribute for Region {
    fn print(&self, print: &mut Print<'_>) -> fmt::Result {
        print.braces(|print| {
            print.line()?;
            print.text(format_args!("takes {}", self.operands))?;
            let mut next = self.operands;
            for node in &self.nodes {
                let end = next.saturating_add(node.results);
                print_call(&node.op, next..end, node.operands.iter().copied(), print)?;
                next = end;
            }
            print.line()?;
            print.text("return")?;
            print.list(&self.results, "", |print, it| print.text(format_args!(" %{it}")))?;
            if !self.types.is_empty() {
                print.text(" : ")?;
                print.list(&self.types, ", ", |print, it| print.text(it))?;
            }
            Ok(())
        })
    }

    fn parse(scan: &mut Scan<'_>) -> Result<Self> {
        scan.nested(|scan| {
            scan.expect("{")?;
            scan.lines();
            scan.expect("takes")?;
            let operands: u32 = scan.number("the number of operands")?;
            let operands = usize::try_from(operands).unwrap_or(usize::MAX);
            let mut region = Self { operands, nodes: vec![], results: vec![], types: vec![] };
            let mut next = region.operands;
            loop {
                scan.lines();
                if scan.eat_word("return") {
                    break;
                }
                let results = parse_results(scan, next)?;
                let op = Op::parse(scan)?;
                region.nodes.push(RegionNode { op, operands: parse_operands(scan)?, results });
                scan.end_of_statement()?;
                next += results;
            }
            region.results = parse_operands(scan)?;
            region.types = parse_types(scan)?;
            scan.lines();
            scan.expect("}")?;
            Ok(region)
        })
    }
}
