//! Times of what layers are made of, by the machine's prices and the framework's figures.

use cost_models::compute::{MatrixProduct, Role, element_wise, matrix_product};
use cost_models::estimate::Estimate;
use cost_models::machine::Precision;
use cost_models::quantity::whole_bytes;
use cost_models::topology::Group;
use cost_models::units::{Flops, Seconds, exact};

use crate::cluster::{Cluster, ClusterError};
use crate::framework::{Figure, Framework};
use crate::setup::{Arithmetic, Setup};

/// Bytes of an element of a value between operations: 16-bit numbers.
pub const ELEMENT: u64 = 2;

/// A setup on a cluster in a framework, with its groups of ranks.
#[derive(Clone, Debug)]
pub struct Job<'a> {
    /// What is run.
    pub setup: &'a Setup,
    /// By what.
    pub framework: &'a Framework,
    /// On what.
    pub cluster: &'a Cluster,
    /// Ranks that compute parts of each product.
    pub tensor: Group,
    /// Ranks that share an example.
    pub context: Group,
    /// Ranks that share experts.
    pub expert: Group,
    /// Ranks that compute parts of the products of an expert.
    pub expert_tensor: Group,
    /// Ranks of one node that share experts.
    pub expert_node: Group,
    /// Ranks that share experts, one of each node.
    pub expert_nodes: Group,
    /// Ranks that hold the same weights, those that share an example included.
    pub data: Group,
    /// Ranks that hold the same experts.
    pub expert_data: Group,
    /// A stage and the next.
    pub stage: Group,
    /// The first stage and the last.
    pub ends: Group,
}

/// Which of the three products of a weight is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// The result.
    Forward,
    /// The gradient by the operand.
    Input,
    /// The gradient by the weight.
    Weight,
}

impl<'a> Job<'a> {
    /// The groups of a setup's ranks.
    pub fn new(
        setup: &'a Setup,
        framework: &'a Framework,
        cluster: &'a Cluster,
    ) -> Result<Self, ClusterError> {
        let (tp, cp, dp, pp) = (setup.tp, setup.cp, setup.dp, setup.pp);
        let replicas = dp * cp;
        let (ep, etp) = (setup.ep, setup.etp);
        let expert = cluster.group(ep, etp)?;
        Ok(Self {
            setup,
            framework,
            cluster,
            tensor: cluster.group(tp, 1)?,
            context: cluster.group(cp, tp)?,
            expert_tensor: cluster.group(etp, 1)?,
            expert_node: cluster.group(expert.ranks_per_node.clamp(1, ep), etp)?,
            expert_nodes: cluster.group(expert.nodes, cluster.node())?,
            expert,
            data: cluster.group(replicas, tp)?,
            expert_data: cluster.group((tp * replicas / (etp * ep)).max(1), etp * ep)?,
            stage: cluster.group(pp.min(2), tp * replicas)?,
            ends: cluster.group(pp.min(2), tp * replicas * (pp - 1).max(1))?,
        })
    }

    /// A figure of the framework.
    #[must_use]
    pub fn figure(&self, figure: Figure) -> f64 {
        self.framework.at(figure)
    }

    /// Bytes of an element of a gradient as it is reduced.
    #[must_use]
    pub fn gradient_bytes(&self) -> f64 {
        self.setup.gradient_bytes.map_or_else(|| self.figure(Figure::GradientBytes), exact)
    }

    /// Time to read and write so many bytes outside products.
    #[must_use]
    pub fn touch(&self, bytes: f64) -> Seconds {
        if bytes <= 0.0 {
            return Seconds::ZERO;
        }
        element_wise(&self.cluster.machine.device, whole_bytes(bytes), Flops(0.0))
    }

    /// Time of `batch` products `[m, k]` by `[k, n]` in the setup's arithmetic, or of the gradient
    /// by an operand of them.
    #[must_use]
    pub fn product(&self, way: Way, batch: u64, [m, n, k]: [u64; 3]) -> Estimate {
        let narrow = matches!(self.setup.precision, Arithmetic::F8 | Arithmetic::F4);
        let precision = self.setup.precision.of_layers();
        let rate =
            if self.setup.precision == Arithmetic::F4 { self.figure(Figure::FourBitRate) } else { 1.0 };
        let time = (1.0 / rate) * self.timed(precision, way, batch, [m, n, k]);
        let mut time = Estimate::term("products", time);
        if narrow {
            // What is not a weight is narrowed before it is used: the value forward, the result's
            // gradient backward, in both orders at once.
            // A weight is narrowed once a step, which is little.
            let elements = match way {
                Way::Forward => m * k,
                Way::Input => m * n,
                Way::Weight => 0,
            };
            let bytes = self.figure(Figure::NarrowingBytes) * exact(batch * elements);
            time.add_term("narrowing", self.touch(bytes));
        }
        time
    }

    /// The same in 16 bits, whatever the setup says.
    #[must_use]
    pub fn wide_product(&self, way: Way, batch: u64, sizes: [u64; 3]) -> Seconds {
        self.timed(self.setup.precision.of_rest(), way, batch, sizes)
    }

    fn timed(&self, precision: Precision, way: Way, batch: u64, [m, n, k]: [u64; 3]) -> Seconds {
        let (role, sizes) = match way {
            Way::Forward => (Role::Forward, [m, n, k]),
            Way::Input => (Role::InputGradient, [m, k, n]),
            Way::Weight => (Role::WeightGradient, [k, n, m]),
        };
        let mut product = MatrixProduct { role, ..MatrixProduct::forward(batch, sizes, precision) };
        if way == Way::Weight {
            // Added to what other micro-batches gave: read and written.
            product.per_result = 2 * whole_bytes(self.gradient_bytes());
        }
        let time = matrix_product(&self.cluster.machine.device, &product);
        (1.0 / self.figure(Figure::ProductRate)) * time
    }
}
