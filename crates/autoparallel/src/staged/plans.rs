//! Plans of stages: as few as serve.
//!
//! Stages that differ in names only differ in what they may hold and in how many micro-batches they
//! keep: hundreds of stages would be hundreds of searches. A plan serves a stage in which it fits,
//! whatever stage it was made for; one is made for the stage that has least room, and between it and
//! the fastest plan as many more as differ in time.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use files::Failure;
use plan::{Plan, Proof};
use search::{Live, Trail, takes};

use crate::choice::planned_after;
use crate::prepared::Prepared;
use crate::target::{Target, refusal};

/// Plans that differ by less than this in time serve for each other (parts of the faster).
const ALIKE: f64 = 0.01;

/// What a stage may hold (bytes), and what it keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Room {
    /// What a device may hold (bytes).
    pub capacity: u64,
    /// How many micro-batches are under way at once.
    pub live: Live,
}

impl Room {
    /// All that there may be, for the one of these that keeps most.
    fn all(rooms: &[Self]) -> Self {
        let live = rooms.iter().map(|room| room.live).max().unwrap_or(Live::ONE);
        Self { capacity: search::UNBOUNDED, live }
    }

    /// How much more than it may have a plan takes here (bytes).
    fn excess(self, plan: &Plan) -> i128 {
        i128::from(takes(plan, self.live)) - i128::from(self.capacity)
    }
}

/// Makes the plan of stages of a form that have this room, from what searches with other room have seen.
pub(super) type Make<'a> = dyn Fn(Room, &Mutex<Trail>) -> Result<Plan, Failure> + Sync + 'a;

/// The plans of stages of one form.
pub(super) struct Plans<'a> {
    make: &'a Make<'a>,
    /// What searches begin with.
    first: Trail,
    known: Mutex<BTreeMap<Room, Result<Made, Failure>>>,
    /// What was seen for stages that keep as much, before what is asked for now.
    seen: Mutex<BTreeMap<Live, Arc<Trail>>>,
    /// Plans that serve a stage, and the same with what they hold.
    said: Mutex<Vec<(Arc<Plan>, Arc<Plan>)>>,
}

/// The plan of a stage.
#[derive(Clone)]
struct Serves {
    plan: Arc<Plan>,
    /// Whether what is proven of it is so of the stage.
    is_own: bool,
}

/// A plan, and what was seen until it was found.
#[derive(Clone)]
struct Made {
    plan: Arc<Plan>,
    trail: Arc<Trail>,
}

impl Made {
    /// The plan, where the stage is that it was made for.
    fn own(&self) -> Serves {
        Serves { plan: Arc::clone(&self.plan), is_own: true }
    }
}

impl<'a> Plans<'a> {
    pub(super) fn new(make: &'a Make<'a>, first: Trail) -> Self {
        Self { make, first, known: Mutex::default(), seen: Mutex::default(), said: Mutex::default() }
    }

    /// A plan for each stage, as large as its room is, which says what it holds by itself: to know that is no less work than
    /// a search, and not done for plans that serve no stage. Of a stage that has no plan with so little room, why.
    pub(super) fn serving(&self, rooms: &[Room]) -> Result<Vec<Result<Arc<Plan>, Failure>>, Failure> {
        self.keep();
        let fast = self.of(Room::all(rooms), &self.first)?;
        let said = |serves: Result<Serves, Failure>| match serves {
            Ok(Serves { plan, is_own }) => {
                let said = self.said(&plan)?;
                Ok(Ok(if is_own { said } else { served(&said, &fast.plan) }))
            }
            Err(failure @ Failure::Internal(_)) => Err(failure),
            Err(failure) => Ok(Err(failure)),
        };
        self.fitting(rooms, &fast).into_iter().map(said).collect()
    }

    /// The plan of each stage, given the fastest.
    fn fitting(&self, rooms: &[Room], fast: &Made) -> Vec<Result<Serves, Failure>> {
        let mut order: Vec<usize> = (0..rooms.len()).collect();
        // Equal rooms side by side: no two searches at a time are for the same.
        order.sort_by_key(|&it| (rooms[it].excess(&fast.plan), rooms[it], it));
        let mut tight = order.split_off(order.partition_point(|&it| rooms[it].excess(&fast.plan) <= 0));
        let mut plans = vec![Ok(fast.own()); rooms.len()];
        while let Some(least) = tight.pop() {
            let slow = self.of(rooms[least], &fast.trail);
            plans[least] = slow.as_ref().map(Made::own).map_err(Failure::clone);
            if let Ok(slow) = &slow {
                for (stage, plan) in self.between(rooms, &tight, (fast, slow)) {
                    plans[stage] = plan;
                }
                break;
            }
        }
        plans
    }

    /// A plan that says what it holds, looked at once.
    fn said(&self, plan: &Arc<Plan>) -> Result<Arc<Plan>, Failure> {
        let known = || self.said.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, said)) = known().iter().find(|it| Arc::ptr_eq(&it.0, plan)) {
            return Ok(Arc::clone(said));
        }
        let memory = lower::memory(plan).map_err(|error| Failure::internal("lower", error))?;
        let said = Arc::new(Plan { memory, ..Plan::clone(plan) });
        known().push((Arc::clone(plan), Arc::clone(&said)));
        Ok(said)
    }

    /// Plans for stages between two for which there are plans.
    fn between(
        &self,
        rooms: &[Room],
        stages: &[usize],
        (fast, slow): (&Made, &Made),
    ) -> Vec<(usize, Result<Serves, Failure>)> {
        let plan = |&stage: &usize| {
            let fits = |plan: &&Arc<Plan>| rooms[stage].excess(plan) <= 0;
            let plan = match [&fast.plan, &slow.plan].into_iter().find(fits) {
                Some(plan) => Ok(Serves { plan: Arc::clone(plan), is_own: false }),
                None => self.of(rooms[stage], &slow.trail).map(|made| made.own()),
            };
            (stage, plan)
        };
        if slow.plan.seconds() <= fast.plan.seconds() * (1.0 + ALIKE) {
            return stages.iter().map(plan).collect();
        }
        let Some(&middle) = stages.get(stages.len() / 2) else { return Vec::new() };
        let (before, after) = (&stages[..stages.len() / 2], &stages[stages.len() / 2 + 1..]);
        let made = self.of(rooms[middle], &slow.trail);
        let [until, from] = made.as_ref().map_or([slow, fast], |made| [made; 2]);
        let (before, after) = rayon::join(
            || self.between(rooms, before, (fast, until)),
            || self.between(rooms, after, (from, slow)),
        );
        before.into_iter().chain([(middle, made.map(|made| made.own()))]).chain(after).collect()
    }

    /// Keeps what was seen until now: of stages that keep as much, where there was least room.
    fn keep(&self) {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        // Rooms are in the order of what they may hold.
        for (room, made) in known.iter().rev() {
            if let Ok(made) = made {
                seen.insert(room.live, Arc::clone(&made.trail));
            }
        }
    }

    /// The plan made for this room.
    fn of(&self, room: Room, trail: &Trail) -> Result<Made, Failure> {
        let known = || self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(made) = known().get(&room) {
            return made.clone();
        }
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner).get(&room.live).cloned();
        let trail = Mutex::new(seen.map_or_else(|| trail.clone(), |seen| Trail::clone(&seen)));
        let made = (self.make)(room, &trail).map(|plan| Made {
            plan: Arc::new(plan),
            trail: Arc::new(trail.into_inner().unwrap_or_else(PoisonError::into_inner)),
        });
        known().insert(room, made.clone());
        made
    }
}

/// A plan where another stage is: no plan there is faster than any is with more room.
fn served(plan: &Arc<Plan>, fast: &Plan) -> Arc<Plan> {
    let proof = Proof::of(fast.proof.bound(fast.seconds()), plan.seconds());
    Arc::new(Plan { proof, ..Plan::clone(plan) })
}

/// The cheapest plan of a stage.
pub(super) fn stage(
    prepared: &Prepared,
    file: &plan::ModelFile,
    target: &Target<'_>,
    trail: &Mutex<Trail>,
) -> Result<Plan, Failure> {
    let prices = crate::target::prices(target)?;
    planned_after((trail, &|_| false), true, prepared, (file, target), &prices)
        .map_err(|error| refusal(target, &error))
}
