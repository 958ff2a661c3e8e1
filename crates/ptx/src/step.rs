//! One instruction of a warp.

use crate::bits::{Lanes, extended, lanes, low, mask, place};
use crate::fault::What;
use crate::functions::Function;
use crate::grid::Surroundings;
use crate::instruction::{Address, Connective, Element, Operation, Register, Shuffle, Source, Space, Truth};
use crate::memory::LONGEST;
use crate::tensor::{multiplied, spread};
use crate::warp::Warp;

/// What a lane does wrong.
type Step = Result<(), (usize, What)>;

impl Warp {
    /// The values of a source in all lanes.
    pub(crate) fn values(&self, source: Source, around: &Surroundings<'_>) -> Lanes {
        let number = |it: usize| u64::try_from(it).unwrap_or(u64::MAX);
        match source {
            Source::Register(number) => self.registers[number],
            Source::Immediate(bits) => [bits; 32],
            Source::Thread => std::array::from_fn(|lane| number(self.first + lane)),
            Source::Lane => std::array::from_fn(number),
            Source::Block => [around.block; 32],
            Source::Blocks => [around.grid.blocks; 32],
            Source::Threads => [around.grid.threads.into(); 32],
        }
    }

    fn put(&mut self, to: Register, values: &Lanes, active: u32) {
        let (register, bits) = (&mut self.registers[to.number], mask(to.width));
        for lane in lanes(active) {
            register[lane] = values[lane] & bits;
        }
    }

    fn truths(&self, truth: Truth) -> u32 {
        match truth {
            Truth::Predicate(number) => self.predicates[number],
            Truth::Not(number) => !self.predicates[number],
            Truth::Known(known) => {
                if known {
                    u32::MAX
                } else {
                    0
                }
            }
        }
    }

    fn put_truths(&mut self, to: usize, truths: u32, active: u32) {
        self.predicates[to] = self.predicates[to] & !active | truths & active;
    }

    fn addresses(&self, address: Address, around: &Surroundings<'_>) -> Lanes {
        self.values(address.base, around).map(|base| base.wrapping_add(address.behind))
    }

    /// Does it in these lanes.
    pub(crate) fn step(&mut self, operation: &Operation, active: u32, around: &mut Surroundings<'_>) -> Step {
        match operation {
            Operation::Compute { function, to, from } => {
                let made = self.computed(*function, from, active, around);
                self.put(*to, &made, active);
            }
            Operation::Join { to, from } => {
                let made = self.joined(from, around);
                self.put(*to, &made, active);
            }
            Operation::Split { to, from } => {
                let mut rest = self.values(*from, around);
                for register in to {
                    self.put(*register, &rest, active);
                    rest = rest.map(|it| it.checked_shr(register.width).unwrap_or(0));
                }
            }
            Operation::Compare { comparison, to, from, with } => {
                let [a, b] = from.map(|it| self.values(it, around));
                let held = lanes(active).filter(|&lane| comparison.holds(a[lane], b[lane]));
                let mut truths = held.fold(0, |all, lane| all | 1 << lane);
                if let Some((connective, truth)) = with {
                    truths = connected(*connective, truths, self.truths(*truth));
                }
                self.put_truths(*to, truths, active);
            }
            Operation::Connect { connective, to, from } => {
                let [a, b] = from.map(|it| self.truths(it));
                self.put_truths(*to, connected(*connective, a, b), active);
            }
            Operation::Select { to, from, by } => {
                let ([a, b], by) = (from.map(|it| self.values(it, around)), self.truths(*by));
                let made = std::array::from_fn(|lane| if by >> lane & 1 == 1 { a[lane] } else { b[lane] });
                self.put(*to, &made, active);
            }
            Operation::Parameter { to, at, bytes } => {
                let mut bits = [0; 8];
                bits[..*bytes].copy_from_slice(&around.arguments[*at..*at + *bytes]);
                self.put(*to, &[u64::from_le_bytes(bits); 32], active);
            }
            Operation::Load { space, to, element, address, used } => {
                let addresses = self.addresses(*address, around);
                return self.load(*space, to, *element, &addresses, *used, active, around);
            }
            Operation::Store { space, from, element, address } => {
                let addresses = self.addresses(*address, around);
                return self.store(*space, from, *element, &addresses, active, around);
            }
            Operation::Shuffle { .. } => return self.shuffle(operation, active, around),
            Operation::CopyAsync { .. } => return self.copy(operation, active, around),
            Operation::Commit => lanes(active).for_each(|lane| self.copies.commit(lane)),
            Operation::Wait { but } => {
                for lane in lanes(active) {
                    let now = self.now(lane, around);
                    self.copies.wait(lane, *but, around.shared, &now).map_err(|what| (lane, what))?;
                }
            }
            Operation::LoadMatrices { .. } | Operation::Multiply { .. } => {
                return self.matrices(operation, active, around);
            }
            Operation::WarpBarrier { .. } => {
                around.memory.era += 1;
                self.era = around.memory.era;
            }
            // The block meets where warps are run, and lanes go where they are chosen.
            Operation::Barrier | Operation::Fence | Operation::Branch { .. } | Operation::Exit => {}
        }
        Ok(())
    }

    /// Numbers of so many bits, one after another in one.
    fn joined(&self, from: &[(Source, u32)], around: &Surroundings<'_>) -> Lanes {
        let (mut made, mut start) = ([0; 32], 0);
        for (source, width) in from {
            let part = self.values(*source, around);
            for lane in 0..32 {
                made[lane] |= (part[lane] & mask(*width)) << start;
            }
            start += width;
        }
        made
    }

    /// What all lanes do to matrices together.
    fn matrices(&mut self, operation: &Operation, active: u32, around: &mut Surroundings<'_>) -> Step {
        self.whole(active)?;
        match operation {
            Operation::LoadMatrices { to, address, turned } => {
                let addresses = self.addresses(*address, around);
                let mut rows = [[0; LONGEST]; 32];
                for (lane, row) in rows.iter_mut().enumerate() {
                    let now = self.now(lane, around);
                    let read = around.shared.load(addresses[lane], LONGEST, u64::MAX, &now);
                    *row = read.map_err(|what| (lane, what))?;
                }
                for (register, made) in to.iter().zip(&spread(&rows, *turned)) {
                    self.put(*register, made, active);
                }
            }
            Operation::Multiply { narrow, to, a, b, c } => {
                let values = |it: Source| self.values(it, around);
                let made = multiplied(*narrow, &a.map(values), &b.map(values), &c.map(values));
                for (register, made) in to.iter().zip(&made) {
                    self.put(*register, made, active);
                }
            }
            other => unreachable!("{other:?} is not of matrices"),
        }
        Ok(())
    }

    /// Refuses what all lanes have to do if some have ended.
    fn whole(&self, active: u32) -> Step {
        match lanes(!active).next() {
            Some(lane) => Err((lane, What::Diverged { waiting: active, missing: !active })),
            None => Ok(()),
        }
    }

    fn computed(
        &self,
        function: Function,
        from: &[Source; 4],
        active: u32,
        around: &Surroundings<'_>,
    ) -> Lanes {
        let mut made = [0; 32];
        let values = |number: usize| self.values(from[number], around);
        match function {
            Function::One(f) => {
                let a = values(0);
                lanes(active).for_each(|it| made[it] = f(a[it]));
            }
            Function::Two(f) => {
                let (a, b) = (values(0), values(1));
                lanes(active).for_each(|it| made[it] = f(a[it], b[it]));
            }
            Function::Three(f) => {
                let (a, b, c) = (values(0), values(1), values(2));
                lanes(active).for_each(|it| made[it] = f(a[it], b[it], c[it]));
            }
            Function::Four(f) => {
                let (a, b, c, d) = (values(0), values(1), values(2), values(3));
                lanes(active).for_each(|it| made[it] = f(a[it], b[it], c[it], d[it]));
            }
        }
        made
    }

    #[expect(clippy::too_many_arguments, reason = "an instruction's parts")]
    fn load(
        &mut self,
        space: Space,
        to: &[Option<Register>],
        element: Element,
        addresses: &Lanes,
        used: u64,
        active: u32,
        around: &mut Surroundings<'_>,
    ) -> Step {
        let size = place(element.bytes);
        for lane in lanes(active) {
            let (address, now, bytes) = (addresses[lane], self.now(lane, around), size * to.len());
            let read = match space {
                Space::Global => around.memory.load(address, bytes, used, &now),
                Space::Shared => around.shared.load(address, bytes, used, &now),
                Space::Local => self.load_local(lane, address, bytes),
            };
            let read = read.map_err(|what| (lane, what))?;
            for (part, register) in read.chunks(size).zip(to) {
                let Some(register) = register else { continue };
                let mut bits = [0; 8];
                bits[..size].copy_from_slice(part);
                let bits = u64::from_le_bytes(bits);
                let bits = if element.signed { extended(bits, 8 * low(element.bytes)) } else { bits };
                self.registers[register.number][lane] = bits & mask(register.width);
            }
        }
        Ok(())
    }

    fn store(
        &mut self,
        space: Space,
        from: &[Source],
        element: Element,
        addresses: &Lanes,
        active: u32,
        around: &mut Surroundings<'_>,
    ) -> Step {
        let size = place(element.bytes);
        let values: Vec<Lanes> = from.iter().map(|&it| self.values(it, around)).collect();
        for lane in lanes(active) {
            let (address, now) = (addresses[lane], self.now(lane, around));
            let mut bytes = [0; LONGEST];
            for (part, values) in bytes.chunks_mut(size).zip(&values) {
                part.copy_from_slice(&values[lane].to_le_bytes()[..size]);
            }
            let bytes = &bytes[..size * from.len()];
            let stored = match space {
                Space::Global => around.memory.store(address, bytes, &now),
                Space::Shared => around.shared.store(address, bytes, &now),
                Space::Local => self.store_local(lane, address, bytes),
            };
            stored.map_err(|what| (lane, what))?;
        }
        Ok(())
    }

    fn near_local(&self, lane: usize, address: u64) -> String {
        format!("the thread's own memory of {} bytes, {address} behind its start", self.local[lane].len())
    }

    /// The thread's own bytes from an address on.
    fn local(&mut self, lane: usize, address: u64, bytes: usize) -> Result<&mut [Option<u8>], What> {
        let (near, count) = (self.near_local(lane, address), u64::try_from(bytes).unwrap_or(u64::MAX));
        if !address.is_multiple_of(count) {
            return Err(What::Misaligned { address, bytes: count, near });
        }
        let start = place(address);
        let range = start..start.saturating_add(bytes);
        self.local[lane].get_mut(range).ok_or(What::Outside { address, bytes: count, near })
    }

    fn load_local(&mut self, lane: usize, address: u64, bytes: usize) -> Result<[u8; LONGEST], What> {
        let near = self.near_local(lane, address);
        let mut read = [0; LONGEST];
        for (to, from) in read.iter_mut().zip(self.local(lane, address, bytes)?) {
            *to = from.ok_or(What::Unwritten { address, near: near.clone() })?;
        }
        Ok(read)
    }

    fn store_local(&mut self, lane: usize, address: u64, bytes: &[u8]) -> Result<(), What> {
        let place = self.local(lane, address, bytes.len())?;
        place.iter_mut().zip(bytes).for_each(|(to, from)| *to = Some(*from));
        Ok(())
    }

    fn shuffle(&mut self, operation: &Operation, active: u32, around: &Surroundings<'_>) -> Step {
        let Operation::Shuffle { how, to, given, from, by, clamp, .. } = operation else { return Ok(()) };
        let [values, by, clamp] = [from, by, clamp].map(|it| self.values(*it, around));
        let (mut made, mut inside) = ([0; 32], 0);
        for lane in lanes(active) {
            let (own, by) = (u64::try_from(lane).unwrap_or(0), by[lane] & 31);
            let (segment, bound) = (clamp[lane] >> 8 & 31, clamp[lane] & 31);
            let last = own & segment | bound & !segment & 31;
            let (source, is_inside) = match how {
                Shuffle::Differing => (own ^ by, own ^ by <= last),
                Shuffle::Numbered => {
                    let source = own & segment | by & !segment;
                    (source, source <= last)
                }
                Shuffle::Above => (own + by, own + by <= last),
                Shuffle::Below => (own.wrapping_sub(by), own >= by + last),
            };
            let source = if is_inside { place(source) } else { lane };
            if active >> source & 1 == 0 {
                return Err((lane, What::Absent { lane: source }));
            }
            inside |= u32::from(is_inside) << lane;
            made[lane] = values[source];
        }
        self.put(*to, &made, active);
        if let Some(given) = given {
            self.put_truths(*given, inside, active);
        }
        Ok(())
    }

    fn copy(&mut self, operation: &Operation, active: u32, around: &mut Surroundings<'_>) -> Step {
        let Operation::CopyAsync { to, from, bytes, there } = operation else { return Ok(()) };
        let [to, from] = [to, from].map(|it| self.addresses(*it, around));
        let there = self.values(there.unwrap_or(Source::Immediate(*bytes)), around);
        let size = place(*bytes);
        for lane in lanes(active) {
            let now = self.now(lane, around);
            let mut brought = [0; LONGEST];
            // What is not asked for is not read; where it would be has to be aligned all the same.
            let used = mask(low(there[lane]).min(low(*bytes)));
            let read = |at: u64, around: &mut Surroundings<'_>| around.memory.load(at, size, used, &now);
            if used != 0 {
                brought = read(from[lane], around).map_err(|what| (lane, what))?;
            } else if !from[lane].is_multiple_of(*bytes) {
                let near = "a copy of which nothing is asked for".to_owned();
                return Err((lane, What::Misaligned { address: from[lane], bytes: *bytes, near }));
            }
            around.shared.begin(to[lane], size, &now).map_err(|what| (lane, what))?;
            self.copies.begin(lane, to[lane], size, brought);
        }
        Ok(())
    }
}

fn connected(connective: Connective, a: u32, b: u32) -> u32 {
    match connective {
        Connective::And => a & b,
        Connective::Or => a | b,
        Connective::Xor => a ^ b,
    }
}
