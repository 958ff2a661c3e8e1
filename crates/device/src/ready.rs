//! The instructions of a program made ready to be issued: kernels loaded, arguments in order, products
//! described, constants on the device.

use kernels::cuda::{self, Argument, Launch, Uncovered, Work};
use lower::{Action, BufferId, Compute, Program, Stream};

use crate::cache::Loaded;
use crate::error::DeviceError;
use crate::gpu::{self, Function, Launched};
use crate::products::{Places, Product};
use crate::task::Task;

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
    /// A matrix product.
    Product(Box<Multiplied>),
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

/// A matrix product by the library, and the copies around it.
pub(crate) struct Multiplied {
    pub(crate) product: Product,
    pub(crate) before: Vec<Packed>,
    pub(crate) after: Vec<Packed>,
    /// Where the operands and the result of the product are.
    pub(crate) matrices: [Argument; 3],
    /// Where what it is added to is, if it is.
    pub(crate) addend: Option<Argument>,
    pub(crate) operands: Vec<BufferId>,
    pub(crate) results: Vec<BufferId>,
}

impl Multiplied {
    /// Issues it on a stream; the library may use so many bytes from an address on.
    pub(crate) fn issue(
        &self,
        (workspace, bytes): (u64, u64),
        stream: &gpu::Stream,
        given: &mut Given,
    ) -> Result<(), DeviceError> {
        self.before.iter().try_for_each(|launch| launch.launch(stream, given))?;
        let places = given.places(self.matrices, self.addend, workspace)?;
        self.product.compute(places, bytes, stream)?;
        self.after.iter().try_for_each(|launch| launch.launch(stream, given))
    }
}

impl Given {
    /// What a kernel is given for an argument.
    fn value(&self, argument: Argument) -> Result<u64, DeviceError> {
        let value = argument.value(&self.operands, &self.results, self.room);
        value.ok_or_else(|| DeviceError::Program("a kernel has an argument that is not there".to_owned()))
    }

    /// Where the matrices of a product are, and what it is added to.
    pub(crate) fn places(
        &self,
        [a, b, c]: [Argument; 3],
        addend: Option<Argument>,
        workspace: u64,
    ) -> Result<Places, DeviceError> {
        let matrices = [self.value(a)?, self.value(b)?, self.value(c)?];
        Ok(Places { matrices, addend: addend.map(|it| self.value(it)).transpose()?, workspace })
    }
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
            let value = given.value(*argument)?;
            given.values.push(value);
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

/// The kernels that a product needs, or may need: copies around it, and what does without the library.
pub(crate) fn around(product: &cuda::Multiplied) -> Work {
    let copies = product.before.iter().chain(&product.after);
    Work { launches: copies.chain(&product.plain.launches).cloned().collect(), room: product.room }
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
    let room = |task: &Task| match &task.work {
        Ok(work) => work.room,
        Err(Uncovered::Library(product)) => product.room,
        Err(_) => 0,
    };
    tasks.iter().filter(on_stream).map(room).max().unwrap_or(0)
}
