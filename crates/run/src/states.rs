//! What lasts from step to step: at first, whole, and replaced.

use std::collections::BTreeSet;
use std::sync::Arc;

use kernels::{Array, KernelError};
use lower::Port;
use planner_ir::{State, StateKind};

use crate::error::{RunError, expect_type};
use crate::processes::Ask;
use crate::session::{Held, Session};
use crate::source::Joined;
use crate::stored::{Stored, port_block, type_of};

impl Session {
    /// Gives each rank its blocks of what states are at first.
    pub(crate) fn start_states(&mut self, weights: &dyn Stored) -> Result<(), RunError> {
        for held in self.ports(|program| &program.states) {
            match self.kind(&held) {
                Some(StateKind::Parameter | StateKind::Master) => self.read(&held, weights)?,
                _ => self.zero(&held)?,
            }
        }
        Ok(())
    }

    /// The states that last from step to step, in order.
    pub fn states(&self) -> Vec<State> {
        let held = self.ports(|program| &program.states);
        let lasting: BTreeSet<State> = held.iter().filter_map(|held| self.lasting(held)).collect();
        lasting.into_iter().collect()
    }

    /// The whole of a state that lasts. Where ranks have the same block, that of the first is
    /// taken. In processes, the first one gathers while the others follow.
    pub fn gather(&self, state: &State) -> Result<Array, RunError> {
        let held = self.held(state)?;
        let mut seen: Vec<&Port> = Vec::new();
        let mut first: Vec<&(usize, usize, Port)> = Vec::new();
        for port in &held.ports {
            if seen.iter().all(|it| it.pieces != port.2.pieces) {
                seen.push(&port.2);
                first.push(port);
            }
        }
        self.joined(&held, first)
    }

    /// Refuses states of which two ranks have different copies of the same block.
    pub fn check_replicas(&self) -> Result<(), RunError> {
        for state in self.states() {
            let held = self.held(&state)?;
            self.joined(&held, held.ports.iter().collect())?;
        }
        Ok(())
    }

    /// Replaces a state that lasts by the array of its name.
    pub fn set(&mut self, state: &State, from: &dyn Stored) -> Result<(), RunError> {
        let held = self.held(state)?;
        expect_type(&state.name, &type_of(from, &state.name)?, &held.type_)?;
        self.read(&held, from)
    }

    fn kind(&self, held: &Held) -> Option<StateKind> {
        let (rank, _, port) = held.ports.first()?;
        self.ranks[*rank].program.storage(port.buffer).kind.state()
    }

    fn lasting(&self, held: &Held) -> Option<State> {
        let kind = self.kind(held).filter(|kind| !kind.is_summed())?;
        Some(State { kind, name: held.name.clone() })
    }

    fn held(&self, state: &State) -> Result<Held, RunError> {
        let held = self.ports(|program| &program.states);
        let found = held.into_iter().find(|held| self.lasting(held).as_ref() == Some(state));
        found.ok_or_else(|| RunError::State(state.clone()))
    }

    fn joined(&self, held: &Held, ports: Vec<&(usize, usize, Port)>) -> Result<Array, RunError> {
        let mut joined = Joined::new(&held.name, &held.type_)?;
        let bytes = |(rank, index, port): &&(usize, usize, Port)| {
            self.bytes(*rank, port, Ask::State(*index), || self.state_of(*rank, port))
        };
        let all = ports.iter().map(bytes).collect::<Result<Vec<_>, _>>()?;
        for ((rank, _, port), bytes) in ports.into_iter().zip(&all) {
            joined.add(port, self.ranks[*rank].program.rank, bytes)?;
        }
        joined.finish(&held.name)
    }

    /// Gives each rank a block of its own of an array, converted if it is of another type.
    fn read(&mut self, held: &Held, from: &dyn Stored) -> Result<(), RunError> {
        for (rank, _, port) in &held.ports {
            if !self.is_here(*rank) {
                continue;
            }
            let type_ = self.ranks[*rank].program.buffer(port.buffer).type_.clone();
            self.put(*rank, port.buffer, Arc::new(port_block(from, port, &type_)?))?;
        }
        Ok(())
    }

    fn zero(&mut self, held: &Held) -> Result<(), RunError> {
        for (rank, _, port) in &held.ports {
            if !self.is_here(*rank) {
                continue;
            }
            let type_ = self.ranks[*rank].program.buffer(port.buffer).type_.clone();
            let failed = |error: KernelError| RunError::Whole(held.name.clone(), error);
            self.put(*rank, port.buffer, Arc::new(Array::zeros(type_).map_err(failed)?))?;
        }
        Ok(())
    }
}
