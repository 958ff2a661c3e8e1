//! Both steps of a decoder planned, over one cache.

use autoparallel::serving::Shared;
use files::{Failure, Say};
use plan::{Cache, Generation};
use planner_ir::{Graph, Layout, Mesh, Source};

use super::fitted::Fitting;
pub use super::wanted::{Step, Wanted};
use crate::ways::{self, Way};

/// A layout of the cache that was tried: the mesh, the layout, the time of a step of one token
/// (seconds).
pub type Tried = (Mesh, Layout, f64);

/// The plans in which a step of one token is fastest, among all in which all parts of the cache have
/// one layout that splits no places; and the layouts that were tried. Both fit beside each other.
pub fn planned(
    cache: &Cache,
    prefill: Option<Step>,
    decode: Step,
    wanted: &Wanted<'_>,
    say: &Say<'_>,
) -> Result<(Generation, Vec<Tried>), Failure> {
    let servers = servers(cache, &decode.prepared.graph, wanted);
    let mut fitting = Fitting::new(cache, (prefill, decode), wanted, say);
    let tokens = fitting.tokens(&wanted.ways)?;
    let tried = tokens.iter().map(|it| (it.plan.mesh.clone(), it.layout.clone(), it.plan.seconds()));
    let tried = tried.collect();
    let mut found = fitting.fastest(tokens, f64::INFINITY)?;
    if fitting.is_tight(found.as_ref())? {
        let below = found.as_ref().map_or(f64::INFINITY, |it| it.decode.seconds());
        let tokens = fitting.tokens(&servers)?;
        found = fitting.fastest(tokens, below)?.or(found);
    }
    Ok((found.map_or_else(|| fitting.nearest(), Ok)?, tried))
}

/// The ways of servers, which are a part of those that are wanted if nothing limits these: among all, a search may miss
/// what fits where memory is short.
fn servers(cache: &Cache, decode: &Graph, wanted: &Wanted<'_>) -> Vec<Way> {
    let is_limited = wanted.ways.iter().any(|(_, rules)| rules.is_some());
    if is_limited || wanted.layout.is_some() {
        return Vec::new();
    }
    let tokens =
        decode.values.iter().find(|it| matches!(&it.source, Source::Input(name) if *name == cache.tokens));
    let sequences = tokens.and_then(|it| it.type_.shape.first().copied()).unwrap_or(0);
    let given = match &wanted.ways[..] {
        [(mesh, _)] => Some(mesh),
        _ => None,
    };
    ways::of_servers(given, wanted.machine, &Shared::of(decode, sequences))
}
