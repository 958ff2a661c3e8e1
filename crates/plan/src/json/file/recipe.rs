//! How a training step was derived, as a file says it, and to and from what a plan says.

use planner_ir::{Optimizer as PlanOptimizer, Real};
use serde::{Deserialize, Serialize};

use crate::{recipe, roles};

/// How a training step was derived.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::json) struct Recipe {
    loss: Loss,
    optimizer: Optimizer,
    precision: Precision,
    /// Missing where masters are beside parameters.
    #[serde(default, skip_serializing_if = "Masters::are_beside")]
    masters: Masters,
    micro_batches: u64,
    /// `null` if gradients are not clipped; never missing.
    #[serde(deserialize_with = "Option::deserialize")]
    clip: Option<f64>,
    no_decay: NoDecay,
    recompute: Vec<Recompute>,
    frozen: Vec<String>,
    /// Missing where there are none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    trained: Vec<String>,
    /// Missing where there are none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    untied: Vec<String>,
    /// Missing where there are none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    constants: Vec<Constant>,
    /// Missing where there are none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    ties: Vec<Tie>,
    /// Missing where there are none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    spelled: Vec<usize>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
enum Loss {
    Output(String),
    CrossEntropy { logits: String, labels: String },
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
enum Optimizer {
    Sgd {
        decay: f64,
    },
    SgdMomentum {
        momentum: f64,
        decay: f64,
    },
    #[serde(rename = "adamw")]
    AdamW {
        beta1: f64,
        beta2: f64,
        epsilon: f64,
        decay: f64,
    },
}

#[derive(Clone, Copy, Serialize, Deserialize)]
enum Precision {
    #[serde(rename = "fp32")]
    F32,
    #[serde(rename = "bf16")]
    Bf16,
    #[serde(rename = "bf16-stochastic")]
    Bf16Stochastic,
    #[serde(rename = "fp8")]
    Fp8,
    #[serde(rename = "fp8-delayed")]
    Fp8Delayed,
    #[serde(rename = "mxfp8")]
    Mxfp8,
    #[serde(rename = "nvfp4")]
    Nvfp4,
    #[serde(rename = "file")]
    File,
}

#[derive(Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Masters {
    #[default]
    Beside,
    Alone,
}

impl Masters {
    /// Whether that is not said in files.
    fn are_beside(&self) -> bool {
        *self == Self::Beside
    }
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct NoDecay {
    names: Vec<String>,
    vectors: bool,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Recompute {
    #[serde(rename = "none")]
    Nothing,
    Selective,
    Full,
    AllBut(Vec<usize>),
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Constant {
    name: String,
    why: Why,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Tie {
    copy: String,
    original: String,
    transposed: bool,
}

/// Why a weight is no parameter: by the name that it has in files.
#[derive(Clone, Copy, Serialize, Deserialize)]
#[serde(try_from = "String", into = "&'static str")]
struct Why(roles::Why);

impl From<Why> for &'static str {
    fn from(why: Why) -> Self {
        why.0.name()
    }
}

impl TryFrom<String> for Why {
    type Error = String;

    fn try_from(name: String) -> Result<Self, String> {
        let found = roles::Why::ALL.into_iter().find(|it| it.name() == name);
        let known = || roles::Why::ALL.map(|it| format!("`{}`", it.name())).join(", ");
        found.map(Self).ok_or_else(|| format!("unknown reason `{name}`, expected one of {}", known()))
    }
}

impl Recipe {
    /// What the file of a plan with that recipe says.
    pub(in crate::json) fn of(recipe: &recipe::Recipe) -> Self {
        // Every field is named, so that a new one is not forgotten here.
        let recipe::Recipe {
            loss,
            optimizer,
            precision,
            masters,
            micro_batches,
            clip,
            no_decay,
            recompute,
            roles: roles::Roles { frozen, trained, untied, constants, ties },
            spelled,
        } = recipe;
        let recompute = recompute.iter().map(|it| match it {
            recipe::Recompute::Nothing => Recompute::Nothing,
            recipe::Recompute::Selective => Recompute::Selective,
            recipe::Recompute::Full => Recompute::Full,
            recipe::Recompute::AllBut(kept) => Recompute::AllBut(kept.clone()),
        });
        Self {
            loss: match loss.clone() {
                recipe::Loss::Output(name) => Loss::Output(name),
                recipe::Loss::CrossEntropy { logits, labels } => Loss::CrossEntropy { logits, labels },
            },
            optimizer: match *optimizer {
                PlanOptimizer::Sgd { decay } => Optimizer::Sgd { decay: decay.0 },
                PlanOptimizer::Momentum { momentum, decay } => {
                    Optimizer::SgdMomentum { momentum: momentum.0, decay: decay.0 }
                }
                PlanOptimizer::AdamW { beta1, beta2, epsilon, decay } => {
                    Optimizer::AdamW { beta1: beta1.0, beta2: beta2.0, epsilon: epsilon.0, decay: decay.0 }
                }
            },
            precision: match precision {
                recipe::Precision::F32 => Precision::F32,
                recipe::Precision::Bf16 => Precision::Bf16,
                recipe::Precision::Bf16Stochastic => Precision::Bf16Stochastic,
                recipe::Precision::Fp8 => Precision::Fp8,
                recipe::Precision::Fp8Delayed => Precision::Fp8Delayed,
                recipe::Precision::Mxfp8 => Precision::Mxfp8,
                recipe::Precision::Nvfp4 => Precision::Nvfp4,
                recipe::Precision::File => Precision::File,
            },
            masters: match masters {
                recipe::Masters::Beside => Masters::Beside,
                recipe::Masters::Alone => Masters::Alone,
            },
            micro_batches: *micro_batches,
            clip: *clip,
            no_decay: NoDecay { names: no_decay.names.clone(), vectors: no_decay.vectors },
            recompute: recompute.collect(),
            frozen: frozen.clone(),
            trained: trained.clone(),
            untied: untied.clone(),
            constants: constants
                .iter()
                .map(|it| Constant { name: it.name.clone(), why: Why(it.why) })
                .collect(),
            ties: ties
                .iter()
                .map(|it| Tie {
                    copy: it.copy.clone(),
                    original: it.original.clone(),
                    transposed: it.transposed,
                })
                .collect(),
            spelled: spelled.clone(),
        }
    }

    /// The recipe that a file says.
    pub(in crate::json) fn read(&self) -> recipe::Recipe {
        let recompute = self.recompute.iter().map(|it| match it {
            Recompute::Nothing => recipe::Recompute::Nothing,
            Recompute::Selective => recipe::Recompute::Selective,
            Recompute::Full => recipe::Recompute::Full,
            Recompute::AllBut(kept) => recipe::Recompute::AllBut(kept.clone()),
        });
        recipe::Recipe {
            loss: match &self.loss {
                Loss::Output(name) => recipe::Loss::Output(name.clone()),
                Loss::CrossEntropy { logits, labels } => {
                    recipe::Loss::CrossEntropy { logits: logits.clone(), labels: labels.clone() }
                }
            },
            optimizer: match self.optimizer {
                Optimizer::Sgd { decay } => PlanOptimizer::Sgd { decay: Real(decay) },
                Optimizer::SgdMomentum { momentum, decay } => {
                    PlanOptimizer::Momentum { momentum: Real(momentum), decay: Real(decay) }
                }
                Optimizer::AdamW { beta1, beta2, epsilon, decay } => PlanOptimizer::AdamW {
                    beta1: Real(beta1),
                    beta2: Real(beta2),
                    epsilon: Real(epsilon),
                    decay: Real(decay),
                },
            },
            precision: match self.precision {
                Precision::F32 => recipe::Precision::F32,
                Precision::Bf16 => recipe::Precision::Bf16,
                Precision::Bf16Stochastic => recipe::Precision::Bf16Stochastic,
                Precision::Fp8 => recipe::Precision::Fp8,
                Precision::Fp8Delayed => recipe::Precision::Fp8Delayed,
                Precision::Mxfp8 => recipe::Precision::Mxfp8,
                Precision::Nvfp4 => recipe::Precision::Nvfp4,
                Precision::File => recipe::Precision::File,
            },
            masters: match self.masters {
                Masters::Beside => recipe::Masters::Beside,
                Masters::Alone => recipe::Masters::Alone,
            },
            micro_batches: self.micro_batches,
            clip: self.clip,
            no_decay: recipe::NoDecay { names: self.no_decay.names.clone(), vectors: self.no_decay.vectors },
            recompute: recompute.collect(),
            roles: self.roles(),
            spelled: self.spelled.clone(),
        }
    }
    fn roles(&self) -> roles::Roles {
        let constant = |it: &Constant| roles::Constant { name: it.name.clone(), why: it.why.0 };
        let tie = |it: &Tie| roles::Tie {
            copy: it.copy.clone(),
            original: it.original.clone(),
            transposed: it.transposed,
        };
        roles::Roles {
            frozen: self.frozen.clone(),
            trained: self.trained.clone(),
            untied: self.untied.clone(),
            constants: self.constants.iter().map(constant).collect(),
            ties: self.ties.iter().map(tie).collect(),
        }
    }
}
