//! The instructions of a program made ready to be issued: kernels loaded, arguments in order, products
//! described, constants on the device.

use kernels::cuda::{self, Argument, Launch, Uncovered, Work};
use lower::{Action, Block, BufferId, Compute, Program, Stream};
use planner_ir::{Op, Type};

use crate::cache::Loaded;
use crate::error::DeviceError;
use crate::gpu::{self, Function, Launched};
use crate::products::Product;
use crate::tasks::Task;

/// A kernel with how it is launched and what it is given.
pub(crate) struct Packed {
    function: Function,
    how: Launched,
    arguments: Vec<Argument>,
}

/// Where the values of a launch are, and room for its arguments: made once, used for all.
#[derive(Default)]
pub(crate) struct Given {
    /// Where operands start.
    pub(crate) operands: Vec<u64>,
    /// Where results start.
    pub(crate) results: Vec<u64>,
    /// Where the room of a work starts.
    pub(crate) room: u64,
    values: Vec<u64>,
    pointers: Vec<*mut std::ffi::c_void>,
}

/// What an instruction is when it is issued.
pub(crate) enum Ready {
    /// Nothing: it is done together with an earlier one, or changes no byte.
    Nothing,
    /// Kernels, one after another.
    Kernels(Kernels),
    /// A matrix product: the operands and the result.
    Product(Box<Product>, [BufferId; 3]),
    /// The same bytes in another place.
    Copy {
        /// What is read.
        from: BufferId,
        /// What is written.
        to: BufferId,
    },
    /// Bytes that have been on the device from the beginning: where, and what is written.
    Known(Vec<(u64, BufferId)>),
    /// Zeros.
    Zero(BufferId),
    /// It is computed on the host.
    Host,
    /// An exchange: a transport does it.
    Exchange,
}

/// Kernels that one or more instructions are.
pub(crate) struct Kernels {
    pub(crate) launches: Vec<Packed>,
    pub(crate) operands: Vec<BufferId>,
    pub(crate) results: Vec<BufferId>,
}

impl Packed {
    /// A launch whose kernel has been loaded.
    pub(crate) fn new(launch: &Launch, loaded: &Loaded) -> Result<Self, DeviceError> {
        let too_large = || DeviceError::Program(format!("{} has too many blocks", launch.kernel.name));
        let blocks = i32::try_from(launch.blocks).map_err(|_| too_large())?;
        Ok(Self {
            function: loaded.function(launch)?.clone(),
            how: Launched { blocks: blocks.unsigned_abs(), threads: launch.threads, shared: launch.shared },
            arguments: launch.arguments.clone(),
        })
    }

    /// All launches of a work.
    pub(crate) fn all(work: &Work, loaded: &Loaded) -> Result<Vec<Self>, DeviceError> {
        work.launches.iter().map(|launch| Self::new(launch, loaded)).collect()
    }

    /// Issues it on a stream.
    pub(crate) fn launch(&self, stream: &gpu::Stream, given: &mut Given) -> Result<(), DeviceError> {
        given.values.clear();
        for argument in &self.arguments {
            let value = match *argument {
                Argument::Operand(number) => given.operands.get(number).copied(),
                Argument::Result(number) => given.results.get(number).copied(),
                Argument::Room(from) => Some(given.room + from),
                Argument::Integer(value) => Some(value.cast_unsigned()),
            };
            let missing = || DeviceError::Program("a kernel has an argument that is not there".to_owned());
            given.values.push(value.ok_or_else(missing)?);
        }
        stream.launch(&self.function, self.how, &mut given.values, &mut given.pointers)
    }
}

/// Why an instruction is computed on the host; nothing if it is not.
pub(crate) fn on_host(task: &Task) -> Option<String> {
    match &task.work {
        Err(reason @ (Uncovered::Host(_) | Uncovered::Missing(_))) => {
            Some(format!("{}: {}", task.what, plain(reason)))
        }
        _ => None,
    }
}

fn plain(reason: &Uncovered) -> String {
    match reason {
        Uncovered::Host(why) => (*why).to_owned(),
        other => other.to_string(),
    }
}

/// The product of an instruction that a library computes, with its types: of the operands, of the
/// result; and the kernel that does without the library.
pub(crate) fn product(
    program: &Program,
    task: &Task,
) -> Option<(cuda::MatrixProduct, [Type; 3], [BufferId; 3], Work)> {
    let Action::Compute(compute) = &program.instructions.get(task.at)?.action else { return None };
    let Op::Contract(contract) = &*compute.op else { return None };
    let ([a, b], [y]) = (&compute.operands[..], &compute.results[..]) else { return None };
    let type_ = |block: &Block| program.buffer(block.buffer).type_.clone();
    let [left, right, made] = [type_(a), type_(b), type_(y)];
    let product = cuda::product(contract, [&left, &right], &made)?;
    let piece = |type_: &Type| cuda::Piece::whole(type_.clone());
    let plain = cuda::plain_product(contract, [&piece(&left), &piece(&right)], &piece(&made));
    Some((product, [left, right, made], [a.buffer, b.buffer, y.buffer], plain))
}

/// The operation of an instruction, if it is one.
pub(crate) fn compute(program: &Program, number: usize) -> Option<&Compute> {
    match &program.instructions.get(number)?.action {
        Action::Compute(compute) => Some(compute),
        _ => None,
    }
}

/// The most room that works on a stream need (bytes).
pub(crate) fn room(program: &Program, tasks: &[Task], stream: Stream) -> u64 {
    let on_stream = |task: &&Task| program.instructions.get(task.at).is_some_and(|it| it.stream == stream);
    let rooms = tasks.iter().filter(on_stream).filter_map(|task| task.work.as_ref().ok());
    rooms.map(|work| work.room).max().unwrap_or(0)
}
