//! A step in the field's numbers: tokens a second, floating-point operations a second, utilisation.
//!
//! Model FLOPs are those of [`crate::model_flops`], and a device's peak is that of dense products in the arithmetic
//! in which each product is computed.

use serde_json::{Map, Value, json};

use crate::machine::Machine;
use crate::model_flops::{Counted, StepWork};
use crate::units::{Flops, Seconds, exact};

/// What model FLOPs are, in words.
pub const CONVENTION: &str = "model FLOPs: 6 x parameters in products x tokens and 12 x layers x heads x head size x \
                              sequence x tokens of attention in training, a third of it where nothing is trained; \
                              nothing recomputed; attention whole (PaLM, Megatron-LM), or as far as masks let \
                              keys be seen (`causal`); of the peak of dense products in their arithmetic";

/// How fast a step is.
#[derive(Clone, Debug, PartialEq)]
pub struct Throughput {
    /// Tokens of a step; none where there are no tokens.
    tokens: Option<u64>,
    /// Floating-point operations of a step.
    flops: Counted,
    /// What it takes (seconds).
    seconds: f64,
    /// Devices.
    devices: u64,
    /// What a device is called.
    device: &'static str,
    /// The part of the devices' peak rates that is used, with attention whole, and as far as it is seen.
    utilisation: Option<[f64; 2]>,
}

impl Throughput {
    /// Of a step that takes so long on so many devices, which are those of these machines: of each so many. None
    /// are given where nobody knows what the machine is. Nothing for a step that takes no time.
    #[must_use]
    pub fn of(work: &StepWork, time: Seconds, devices: u64, on: &[(&Machine, u64)]) -> Option<Self> {
        if time.0 <= 0.0 || devices == 0 {
            return None;
        }
        let flops = work.flops.all();
        let used = |count: fn(Counted) -> Flops| {
            // How many such steps all devices would do in a second at their peak.
            let rate = |&(machine, count_of): &(&Machine, u64)| {
                exact(count_of) / work.flops.at_peak(&machine.device, count).0
            };
            1.0 / (time.0 * on.iter().map(rate).sum::<f64>())
        };
        let utilisation = (!on.is_empty() && flops.total().0 > 0.0)
            .then(|| [used(Counted::total), used(Counted::total_seen)]);
        let is_gpu = !on.is_empty() && on.iter().all(|(machine, _)| !machine.is_host());
        Some(Self {
            tokens: (work.tokens > 0).then_some(work.tokens),
            flops,
            seconds: time.0,
            devices,
            device: if is_gpu { "GPU" } else { "device" },
            utilisation,
        })
    }

    /// Tokens a second on all devices, if there are tokens.
    #[must_use]
    pub fn tokens_per_second(&self) -> Option<f64> {
        self.tokens.map(|tokens| exact(tokens) / self.seconds)
    }

    /// Model FLOPs a second on each device, attention whole (10¹² a second).
    #[must_use]
    pub fn tflops_per_device(&self) -> f64 {
        self.flops.total().0 / self.seconds / exact(self.devices) / 1e12
    }

    /// Model FLOPs utilisation with attention whole, if it is known of what machine.
    #[must_use]
    pub fn mfu(&self) -> Option<f64> {
        self.utilisation.map(|[whole, _]| whole)
    }

    /// The same where of attention only what masks let through counts.
    #[must_use]
    pub fn mfu_causal(&self) -> Option<f64> {
        self.utilisation.map(|[_, seen]| seen)
    }

    /// Lines for people: what each is about, and what there is to say.
    #[must_use]
    pub fn lines(&self) -> Vec<(&'static str, String)> {
        let device = self.device;
        let mut lines = Vec::new();
        if let Some(rate) = self.tokens_per_second() {
            let each = number(rate / exact(self.devices));
            lines.push(("tokens", format!("{} tokens/s, {each} tokens/s/{device}", number(rate))));
        }
        if self.flops.total().0 > 0.0 {
            let mut words = format!("{} TFLOP/s/{device}", number(self.tflops_per_device()));
            if let Some([whole, seen]) = self.utilisation {
                words += &format!(", MFU {:.1} % (attention whole", 100.0 * whole);
                words += &match self.flops.seen < self.flops.attention {
                    true => format!("; {:.1} % with what its mask lets through)", 100.0 * seen),
                    false => ")".to_owned(),
                };
            }
            lines.push(("flops", words));
        }
        lines
    }

    /// The same for programs, as fields of an object.
    #[must_use]
    pub fn json(&self) -> Map<String, Value> {
        let tokens = self.tokens_per_second();
        let fields = json!({
            "tokens_per_step": self.tokens,
            "tokens_per_second": tokens,
            "tokens_per_second_per_device": tokens.map(|rate| rate / exact(self.devices)),
            "model_flops": self.flops.total().0,
            "attention_flops": self.flops.attention.0,
            "causal_attention_flops": self.flops.seen.0,
            "tflops_per_device": self.tflops_per_device(),
            "mfu": self.mfu(),
            "mfu_causal": self.mfu_causal(),
            "flops_convention": CONVENTION,
        });
        if let Value::Object(fields) = fields { fields } else { Map::new() }
    }
}

/// A rate with four digits, or all before the point.
fn number(rate: f64) -> String {
    match rate {
        _ if rate >= 1000.0 || rate <= 0.0 => format!("{rate:.0}"),
        _ if rate >= 100.0 => format!("{rate:.1}"),
        _ if rate >= 1.0 => format!("{rate:.2}"),
        _ => format!("{rate:.4}"),
    }
}
