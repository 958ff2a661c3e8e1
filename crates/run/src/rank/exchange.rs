//! What a rank exchanges with others.

use std::sync::Arc;

use lower::{Buffer, BufferId, Collective, CommunicatorId};

use super::{Fault, Place, Rank, Taken, place};
use crate::collective::{Member, Stop, Target};
use crate::routed::Routes;
use crate::transport::Transport;

impl Rank {
    /// Gives the first buffer and gets the second: what has been received (bytes).
    pub(super) fn exchange(
        &mut self,
        (communicator, [input, output], routes): (CommunicatorId, [BufferId; 2], Option<&Routes>),
        taken: &mut Taken,
        transport: &mut dyn Transport,
        get: &dyn Fn(&mut Member, Target) -> Result<(), Stop>,
    ) -> Result<u64, Fault> {
        let Self { program, rest, arena, scratch, micro_batch, .. } = self;
        let number = transport.number(communicator.0);
        let members = program.communicators[communicator.0].as_slice();
        let communicator = communicator.0;
        let member = &mut Member { transport, communicator, members, number, given: 0, received: 0 };
        let micro_batch = *micro_batch;
        let Buffer { storage, type_ } = program.buffer(input);
        let given = match taken.iter().find(|it| it.0 == *storage) {
            Some((_, state)) => usize::try_from(type_.bytes()).ok().and_then(|it| state.bytes().get(..it)),
            None => match place(program, rest, input, micro_batch) {
                Place::Rest(bytes) => bytes,
                Place::Arena(range) => arena.bytes().get(range),
            },
        };
        let given = given.ok_or(Fault::Memory)?;
        let packed = routes.map(|routes| routes.pack(given));
        if packed.is_none() {
            member.give(given).map_err(Stop::from)?;
        }
        let Buffer { storage, type_ } = program.buffer(output);
        let length = usize::try_from(type_.bytes()).map_err(|_| Fault::Memory)?;
        let to = match taken.iter_mut().find(|it| it.0 == *storage) {
            Some((_, state)) => Arc::get_mut(state).and_then(|it| it.bytes_mut().get_mut(..length)),
            None => match place(program, rest, output, micro_batch) {
                Place::Arena(to) => arena.bytes_mut().get_mut(to),
                Place::Rest(_) => None,
            },
        };
        let target = Target { dtype: type_.dtype, bytes: to.ok_or(Fault::Memory)?, scratch };
        match (routes, packed) {
            (Some(routes), Some(packed)) => member.route(routes, &packed, target)?,
            _ => get(member, target)?,
        }
        Ok(member.received)
    }

    /// Which rows a collective exchanges, if it is not all.
    pub(super) fn routes(&self, it: &Collective) -> Result<Option<Routes>, Fault> {
        let Some(rows) = it.rows else { return Ok(None) };
        let bytes = |buffer: BufferId| match self.place(buffer) {
            Place::Rest(bytes) => bytes,
            Place::Arena(range) => self.arena.bytes().get(range),
        };
        let (members, dtype) =
            (self.program.members(it.communicator).len(), self.program.buffer(rows.own).type_.dtype);
        let size = |it: u64| usize::try_from(it).map_err(|_| Fault::Memory);
        let sizes = (size(rows.routed.count)?, size(rows.routed.by)?);
        let gates = [bytes(rows.own).ok_or(Fault::Memory)?, bytes(rows.others).ok_or(Fault::Memory)?];
        Ok(Some(Routes::of(it.kind, sizes, members, gates, dtype)))
    }
}
