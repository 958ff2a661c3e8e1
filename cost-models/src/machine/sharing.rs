//! Ranks that share the processors of a host.

use crate::known::{Count, Known};
use crate::machine::{ByPrecision, Machine, Pace, Packing, Protocol, Turned};
use crate::units::{BytesPerSecond, FlopsPerSecond, Seconds, exact};

impl Machine {
    /// The same machine where a rank has what it keeps of its rates beside as many others: from all that
    /// it has alone to what is left where every processor has a rank, in even steps.
    pub(super) fn beside_others(mut self) -> Self {
        let processors = self.node.processors.as_ref().map_or(1, |it| it.value.0);
        let others = exact(self.devices.min(processors).saturating_sub(1));
        let Some(together) = self.node.together.take_if(|_| others > 0.0) else { return self };
        let sharing = |part: f64| Sharing {
            turns: 1.0 / (1.0 - (1.0 - part) * others / exact(processors - 1)),
            note: format!("of it what is kept beside others on {} of {processors} processors", others + 1.0),
        };
        let Self { device, transport, .. } = &mut self;
        let products = sharing(together.products.value.0);
        device.matrix_peak.each_mut(|peak| products.slower_work(peak));
        let memory = sharing(together.memory.value.0);
        memory.slower(&mut device.memory_bandwidth);
        memory.slower(&mut transport.local_rate);
        self
    }

    /// The same machine where a rank has its share of a processor, if there are more ranks than
    /// processors: everything takes as many times longer as ranks take turns.
    pub(super) fn shared(mut self) -> Self {
        let (ranks, processors) = match &self.node.processors {
            Some(processors) if self.devices > processors.value.0 => (self.devices, processors.value.0),
            _ => return self,
        };
        let sharing = Sharing {
            turns: exact(ranks) / exact(processors),
            note: format!("{ranks} ranks take turns on {processors}"),
        };
        if let Some(known) = Known::new(Count(ranks), &sharing.note) {
            self.node.processors = Some(known);
        }
        let device = &mut self.device;
        sharing.slower(&mut device.memory_bandwidth);
        sharing.slower_work(&mut device.vector_peak);
        device.matrix_peak.each_mut(|peak| sharing.slower_work(peak));
        sharing.longer(&mut device.launch);
        let products = &mut device.products;
        sharing.slower(&mut products.feed);
        if let Some(packing) = &mut products.packing {
            packing.each_rate(|rate| sharing.slower(rate));
        }
        sharing.longer(&mut products.tile_start);
        sharing.longer(&mut products.start);
        for Pace { start, element } in device.passes.values_mut() {
            sharing.longer(start);
            sharing.longer(element);
        }
        sharing.slower(&mut self.node.link_bandwidth);
        sharing.slower(&mut self.node.host_bandwidth);
        let transport = &mut self.transport;
        sharing.slower(&mut transport.local_rate);
        for protocol in [Some(&mut transport.bulk), transport.packed.as_mut(), Some(&mut transport.eager)] {
            let Some(Protocol { start, fill, hop, tree_hop, .. }) = protocol else { continue };
            [start, fill, hop, tree_hop].into_iter().for_each(|time| sharing.longer(time));
        }
        self
    }
}

struct Sharing {
    /// How many ranks a processor has.
    turns: f64,
    note: String,
}

impl Sharing {
    fn longer(&self, time: &mut Known<Seconds>) {
        self.noted(time, |time| self.turns * time);
    }

    fn slower(&self, rate: &mut Known<BytesPerSecond>) {
        self.noted(rate, |rate| 1.0 / self.turns * rate);
    }

    fn slower_work(&self, rate: &mut Known<FlopsPerSecond>) {
        self.noted(rate, |rate| FlopsPerSecond(rate.0 / self.turns));
    }

    fn noted<T: Copy>(&self, known: &mut Known<T>, change: impl Fn(T) -> T) {
        let source = format!("{}; {}", known.source(), self.note);
        if let Some(changed) = Known::new(change(known.value), &source) {
            *known = changed;
        }
    }
}

impl Packing {
    fn each_rate(&mut self, mut change: impl FnMut(&mut Known<BytesPerSecond>)) {
        change(&mut self.rate);
        if let Some(Turned { rate, aliased }) = &mut self.turned {
            change(rate);
            change(aliased);
        }
    }
}

impl<T> ByPrecision<T> {
    fn each_mut(&mut self, mut change: impl FnMut(&mut T)) {
        let Self { f64, f32, tf32, f16, bf16, f8, f4, integer } = self;
        [f64, f32, tf32, f16, bf16, f8, integer].into_iter().chain(f4).for_each(&mut change);
    }
}
