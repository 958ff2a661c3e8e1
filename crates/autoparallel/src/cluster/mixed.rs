//! Groups on nodes of several kinds, or on meshes that are pinned: the best guesses among numbers of
//! micro-batches, what is computed again, and meshes are priced, and composed.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use cost_models::units::exact;
use files::{Doing, Failure, Of, Say};
use plan::Recompute;
use planner_ir::Mesh;
use rayon::prelude::*;
use search::Trail;

use super::finish::{Finished, Said, Way};
use super::guess::Sizes;
use super::known::Known;
use super::parts::{Part, Space, part, tighter};
use super::unequal::{SCHEDULES, sorted, ways};
use super::{Answer, Question, Setup, setups};
use crate::staged::{Meshes, places};

/// So many forms are priced, those of the best guesses.
const FORMS: usize = 8;
/// On so many meshes of each kind.
const MESHES: usize = 12;

/// A question about each kind of nodes, and what is known of the model there.
struct Asked<'a> {
    of_kind: Vec<Question<'a>>,
    known: Vec<Known>,
}

/// What all groups share: how many micro-batches, and what is computed again.
struct Form<'a> {
    /// What a step may take (seconds).
    guess: f64,
    /// For each kind of nodes, setups of the meshes that groups may have there, as if all had them.
    setups: Vec<Vec<&'a Setup>>,
}

impl Form<'_> {
    fn shared(&self) -> (u64, &Recompute) {
        let Setup { micro_batches, recompute, .. } = self.setups[0][0];
        (*micro_batches, recompute)
    }
}

/// The cheapest pipeline.
pub(super) fn cheapest(question: &Question<'_>, say: &Say<'_>) -> Result<Answer, Failure> {
    if let Some(limits) = &question.pins.limits {
        return Err(Failure::Usage(format!(
            "`--for`: {} has one mesh for all groups of devices: leave `--pin stages=..` out, and take nodes of one kind",
            limits.title
        )));
    }
    if question.pins.are_ruled() {
        let message = "`--pin tp=..`, `cp=..` and `dp=..` are of groups that have one mesh, on nodes of one kind: give \
                       `--pin stages=..`, the mesh of each group";
        return Err(Failure::Usage(message.to_owned()));
    }
    let kinds = question.cluster.kinds();
    let of_kind = (0..kinds.len()).map(|kind| Question { kind, ..*question }).collect();
    let mut asked = Asked { of_kind, known: Vec::new() };
    let mut listed = asked.listed()?;
    say("looking at the model".into());
    let counts = listed.iter().map(|it| it.1.micro_batches).collect();
    let known = asked.of_kind.iter().map(|question| Known::new(question, &counts));
    asked.known = known.collect::<Result<_, _>>()?;
    listed.retain(|it| it.1.micro_batches >= asked.known[0].fewest());
    let forward = asked.known[0].first(question)?;
    setups::few_enough(question, forward.blocks())?;
    let having = asked.known[0].having(question, listed.iter().map(|it| it.1.micro_batches).collect())?;
    listed.retain(|it| having.contains(&it.1.micro_batches));
    if question.pins.recompute.is_none() && !asked.known[0].is_selective(question)? {
        listed.retain(|it| it.1.recompute != Recompute::Selective);
    }
    let mut forms = asked.forms(&listed)?;
    let bounds = forms.iter().map(|form| asked.least(form)).collect::<Result<Vec<f64>, _>>()?;
    let bound = bounds.into_iter().fold(f64::INFINITY, f64::min);
    forms.truncate(FORMS);
    let wanted: usize = forms.iter().flat_map(|form| &form.setups).map(Vec::len).sum();
    let priced = AtomicUsize::new(0);
    let count = || {
        say(Doing::one("pricing mesh", priced.fetch_add(1, Ordering::Relaxed) + 1, Of::All(wanted)));
    };
    let made = forms.par_iter().map(|form| Ok((form.shared(), asked.priced(form, &count)?)));
    let made = made.collect::<Vec<Result<_, Failure>>>().into_iter().collect::<Result<Vec<_>, _>>()?;
    let mut alike: Vec<((u64, &Recompute), Vec<Part>)> = Vec::new();
    for ((micro_batches, again), parts) in made {
        // Where blocks keep what they may, stages are between what plans compute again.
        let shared = (micro_batches, if question.again_alike() { again } else { &Recompute::Nothing });
        match alike.iter_mut().find(|it| it.0 == shared) {
            Some((_, of_all)) => of_all.extend(parts),
            None => alike.push((shared, parts)),
        }
    }
    let composed = |(shared, parts): ((u64, &Recompute), Vec<Part>)| -> Vec<Way> {
        ways(question, shared, &sorted(parts, shared.0), (f64::INFINITY, true))
    };
    let found = alike.into_par_iter().flat_map(composed);
    let mut finished = Finished::new(question);
    finished.plan(question, &asked.known[0], &found.collect::<Vec<_>>(), say)?;
    let said = Said { bound: &|_| Ok(bound), nearest: &|| Ok(None) };
    finished.answer(question, &asked.known, (listed.len(), wanted), &said)
}

impl Asked<'_> {
    /// The meshes that groups may have, with the kinds of nodes that these are on.
    fn meshes(&self) -> Result<Vec<(usize, Mesh)>, Failure> {
        let question = &self.of_kind[0];
        let mut meshes: Vec<(usize, Mesh)> = Vec::new();
        if let Some(pinned) = &question.pins.meshes {
            for place in places(question.cluster, Meshes::Each(pinned))? {
                let it = (place.kind, place.mesh);
                if !meshes.contains(&it) {
                    meshes.push(it);
                }
            }
        } else {
            for it in &self.of_kind {
                meshes.extend(setups::meshes_of(it).into_iter().map(|mesh| (it.kind, mesh)));
            }
        }
        Ok(meshes)
    }

    /// Every mesh with every number of micro-batches and everything that may be computed again.
    fn listed(&self) -> Result<Vec<(usize, Setup)>, Failure> {
        let question = &self.of_kind[0];
        let meshes = self.meshes()?;
        let counts = setups::counts(question, meshes.iter().map(|it| &it.1));
        let mut listed = Vec::new();
        for (kind, mesh) in meshes {
            let groups = usize::try_from(question.cluster.devices() / mesh.devices()).unwrap_or(usize::MAX);
            for &micro_batches in &counts {
                for recompute in setups::again(question.pins) {
                    listed.push((
                        kind,
                        Setup { groups, mesh: mesh.clone(), micro_batches, recompute, rules: None },
                    ));
                }
            }
        }
        if !(0..self.of_kind.len()).all(|kind| listed.iter().any(|it| it.0 == kind)) {
            return Err(setups::none(question));
        }
        if !SCHEDULES.iter().flat_map(|it| it.iter()).any(|kind| question.pins.allows(*kind, 1)) {
            return Err(Failure::Usage(
                "no schedule has what is pinned: groups whose meshes or nodes differ have one stage each, by 1f1b, \
                 eager-1f1b or zb-h1"
                    .to_owned(),
            ));
        }
        Ok(listed)
    }

    /// The forms, the best guess first, each with the meshes of the best guesses.
    fn forms<'b>(&self, listed: &'b [(usize, Setup)]) -> Result<Vec<Form<'b>>, Failure> {
        let kinds = self.of_kind.iter().zip(&self.known);
        let sizes: Vec<Sizes<'_>> =
            kinds.map(|(question, known)| Sizes::of(question, known)).collect::<Result<_, _>>()?;
        self.of_kind[0].pins.has_experts(sizes.iter().any(Sizes::has_experts))?;
        let mut alike: BTreeMap<(u64, String), Vec<&(usize, Setup)>> = BTreeMap::new();
        for it in listed {
            alike.entry((it.1.micro_batches, it.1.recompute.to_string())).or_default().push(it);
        }
        let form = |all: Vec<&'b (usize, Setup)>| {
            let (mut fast, mut setups) = (0.0, Vec::new());
            for (kind, sizes) in sizes.iter().enumerate() {
                let own = all.iter().filter(|it| it.0 == kind);
                let mut own: Vec<(f64, &Setup)> = own.map(|it| (sizes.guess(&it.1), &it.1)).collect();
                own.sort_by(|a, b| a.0.total_cmp(&b.0));
                // Each kind does as much of a step as it is fast.
                fast += exact(self.of_kind[kind].machine().devices()) / own[0].0;
                setups.push(own.into_iter().take(MESHES).map(|it| it.1).collect());
            }
            Form { guess: exact(self.of_kind[0].cluster.devices()) / fast, setups }
        };
        let mut forms: Vec<Form<'_>> = alike.into_values().map(form).collect();
        forms.sort_by(|a, b| a.guess.total_cmp(&b.guess));
        Ok(forms)
    }

    /// What no groups of a form take less than, however blocks are dealt: the operations of the block that
    /// repeats most, each kind of nodes doing as much as it is fast (seconds).
    fn least(&self, form: &Form<'_>) -> Result<f64, Failure> {
        let (mut blocks, mut fast) = (0.0, 0.0);
        for (kind, question) in self.of_kind.iter().enumerate() {
            let (count, seconds) =
                self.known[kind].least(question, form.setups[kind][0])?.work(form.shared().0);
            (blocks, fast) = (count, fast + exact(question.machine().devices()) / seconds);
        }
        Ok(if blocks > 0.0 { blocks / fast } else { 0.0 })
    }

    /// What blocks take on the meshes of a form, those first of which more is hoped; each is counted.
    fn priced(&self, form: &Form<'_>, count: &(dyn Fn() + Sync)) -> Result<Vec<Part>, Failure> {
        let wanted = form.setups.iter().enumerate();
        let wanted: Vec<(usize, &Setup)> =
            wanted.flat_map(|(kind, all)| all.iter().map(move |&it| (kind, it))).collect();
        let price = |&(kind, setup): &(usize, &Setup)| {
            count();
            self.parts(kind, setup)
        };
        let priced: Vec<Result<Vec<Part>, Failure>> = wanted.par_iter().map(price).collect();
        Ok(priced.into_iter().collect::<Result<Vec<_>, _>>()?.into_iter().flatten().collect())
    }

    /// What blocks take on the mesh of a setup: with all memory, and with what there is.
    fn parts(&self, kind: usize, setup: &Setup) -> Result<Vec<Part>, Failure> {
        let question = &self.of_kind[kind];
        let step = self.known[kind].step(question, setup)?;
        let trail = Mutex::new(Trail::default());
        let Ok((_, loose)) = part(question, setup, &step, Space::Unbounded, (&trail, &|_| false))? else {
            return Ok(Vec::new());
        };
        self.known[kind].note(&loose.mesh, loose.refused.as_ref());
        let mut parts = tighter(question, setup, &step, &loose, &trail)?;
        parts.insert(0, loose);
        Ok(parts)
    }
}
