//! What single things take on a GPU, and what they compute: copies, launches, operations by their kernels or
//! by the library of products.
//!
//! Times are those between two events on the device, less what two events take with nothing between them.
//! Before each, what lies in the cache is driven out of it, and the host has waited: the device begins at
//! rest. What is fast is done as often as gives a typical time, with those left out that were interrupted
//! ([`Sample`]).

use std::rc::Rc;

use kernels::{Array, cuda};
use planner_ir::{Binary, DType, Op, Type};

use crate::error::DeviceError;
use crate::gpu::{Event, Facts, Gpu, Graph, Memory, Priority, Stream, Timing};
use crate::nvrtc::Nvrtc;
use crate::products::Products;
use crate::ready::Given;
use crate::sample::Sample;
use crate::settings::Settings;
use crate::single::{Maker, Single, whole};

/// How often something is done before it is timed.
const WARM: usize = 3;

/// How often it is timed at least and at most, and for how long between (seconds).
const TIMES: (usize, usize) = (9, 41);
const LONG: f64 = 0.3;

/// How long a device computes without a pause before it is as slow as its power makes it (seconds).
const HEATED: f64 = 0.5;

/// The bytes of results before they are made: no number in any type of fractions.
const UNWRITTEN: u8 = 0xff;

/// How many kernels are launched one after another to time one launch.
const LAUNCHES: u32 = 200;

/// A GPU on which single things are timed.
pub struct Bench {
    stream: Stream,
    events: [Event; 2],
    given: Given,
    /// What is overwritten so that nothing else lies in the cache.
    flushed: Memory,
    /// What two events take (seconds).
    empty: f64,
    maker: Maker,
    gpu: Rc<Gpu>,
}

/// What is timed.
#[derive(Clone, Debug, PartialEq)]
pub enum Trial {
    /// A copy of so many bytes within the device, by the driver.
    Copy(u64),
    /// A launch of the smallest kernel, of many one after another.
    Launch(Issued),
    /// An operation.
    Operation {
        /// What is computed.
        op: Op,
        /// On what.
        operands: Vec<Type>,
        /// What is made.
        results: Vec<Type>,
    },
    /// Kernels that were made for something.
    Kernels {
        /// Which.
        work: cuda::Work,
        /// What they read.
        operands: Vec<Type>,
        /// What they write.
        results: Vec<Type>,
    },
}

/// How kernels are issued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Issued {
    /// One by one.
    Alone,
    /// All at once, as they were captured.
    Captured,
}

/// What is done between two events.
enum Work {
    Copy([Memory; 2]),
    Launches(Single),
    Graph(Graph, Single),
    Single(Single),
}

impl Bench {
    /// A GPU made ready.
    pub fn open(settings: &Settings) -> Result<Self, DeviceError> {
        let gpu = Gpu::open(&settings.libraries, settings.gpu)?;
        let nvrtc = Nvrtc::load(&settings.libraries)?;
        let folder = settings.cache.clone();
        let products = Products::load(&gpu, &settings.libraries, folder.as_deref(), settings.workspace)?;
        let workspace = gpu.memory(settings.workspace)?;
        let stream = gpu.stream(Priority::Low)?;
        let events = [gpu.event(Timing::Yes)?, gpu.event(Timing::Yes)?];
        let flushed = gpu.memory(2 * u64::from(gpu.facts.cache).max(1))?;
        let maker = Maker { gpu: Rc::clone(&gpu), nvrtc, products, folder, workspace };
        let mut bench = Self { stream, events, given: Given::default(), flushed, empty: 0.0, maker, gpu };
        let mut times = Vec::new();
        for _ in 0..TIMES.1 {
            times.push(bench.between(&mut |_, _| Ok(()))?);
        }
        bench.empty = Sample::of(&times).map_or(0.0, |it| it.seconds);
        Ok(bench)
    }

    /// What is known of the GPU.
    pub fn facts(&self) -> &Facts {
        &self.gpu.facts
    }

    /// The memory of the GPU that is free (bytes).
    pub fn free_memory(&self) -> Result<u64, DeviceError> {
        self.gpu.free_memory()
    }

    /// The version of the library of products.
    pub fn products_version(&self) -> usize {
        self.maker.products.version()
    }

    /// The version of the compiler of kernels, NVRTC.
    pub fn compiler_version(&self) -> (i32, i32) {
        self.maker.nvrtc.version
    }

    /// Compiles the kernels of trials together, which takes less than one by one.
    pub fn prepare(&self, trials: &[&Trial]) -> Result<(), DeviceError> {
        self.maker.prepare(&trials.iter().filter_map(|it| it.work()).collect::<Vec<_>>())
    }

    /// The time of something, each time after a rest.
    pub fn time(&mut self, trial: &Trial) -> Result<Sample, DeviceError> {
        let work = self.work(trial)?;
        let count = if matches!(trial, Trial::Launch(_)) { f64::from(LAUNCHES) } else { 1.0 };
        let mut times = Vec::new();
        let mut all = 0.0;
        for round in 0..WARM + TIMES.1 {
            self.stream.fill(self.flushed.start, 0, self.flushed.bytes)?;
            let seconds = self.between(&mut |stream, given| issue(&work, stream, given))? - self.empty;
            if round < WARM {
                continue;
            }
            times.push(seconds.max(0.0) / count);
            all += seconds;
            if times.len() >= TIMES.0 && all > LONG {
                break;
            }
        }
        sampled(&times)
    }

    /// The time of something in a device that has been doing it for long without a pause.
    pub fn time_sustained(&mut self, trial: &Trial) -> Result<Sample, DeviceError> {
        let work = self.work(trial)?;
        let rough = self.between(&mut |stream, given| issue(&work, stream, given))?.max(1e-6);
        let marks: Vec<Event> =
            (0..=TIMES.0).map(|_| self.gpu.event(Timing::Yes)).collect::<Result<_, _>>()?;
        let mut heated = 0.0;
        while heated < HEATED {
            issue(&work, &self.stream, &mut self.given)?;
            heated += rough;
        }
        self.stream.record(&marks[0])?;
        for mark in &marks[1..] {
            issue(&work, &self.stream, &mut self.given)?;
            self.stream.record(mark)?;
        }
        self.stream.synchronize()?;
        let times = marks.windows(2).map(|it| Ok(it[1].since(&it[0])? - self.empty));
        sampled(&times.collect::<Result<Vec<f64>, DeviceError>>()?)
    }

    /// What an operation, or kernels, make of operands of the trial's types.
    pub fn compute(&mut self, trial: &Trial, operands: &[&Array]) -> Result<Vec<Array>, DeviceError> {
        let (Work::Single(single), Some(results)) = (self.work(trial)?, trial.results()) else {
            return Err(DeviceError::Program(format!("{trial:?} makes nothing")));
        };
        for (memory, array) in single.operands.iter().zip(operands) {
            self.stream.put(memory.start, array.bytes())?;
        }
        // What a kernel leaves out is no number.
        for memory in &single.results {
            self.stream.fill(memory.start, UNWRITTEN, memory.bytes)?;
        }
        single.issue(&self.stream, &mut self.given)?;
        let failed = |error| DeviceError::Host("a result".to_owned(), error);
        let mut made = Vec::new();
        for (memory, type_) in single.results.iter().zip(results) {
            let mut array = Array::zeros(type_.clone()).map_err(failed)?;
            self.stream.get(memory.start, array.bytes_mut())?;
            made.push(array);
        }
        Ok(made)
    }

    /// The time between two events with something between them (seconds).
    fn between(
        &mut self,
        issue: &mut dyn FnMut(&Stream, &mut Given) -> Result<(), DeviceError>,
    ) -> Result<f64, DeviceError> {
        self.stream.record(&self.events[0])?;
        issue(&self.stream, &mut self.given)?;
        self.stream.record(&self.events[1])?;
        self.events[1].since(&self.events[0])
    }

    fn work(&mut self, trial: &Trial) -> Result<Work, DeviceError> {
        match trial {
            Trial::Copy(bytes) => {
                let memory = [self.gpu.memory(*bytes)?, self.gpu.memory(*bytes)?];
                self.stream.fill(memory[0].start, 0x5a, *bytes)?;
                Ok(Work::Copy(memory))
            }
            Trial::Operation { op, operands, results } => {
                let single = self.maker.single(op, operands, results, &self.stream)?;
                single.fill(operands, &self.stream)?;
                Ok(Work::Single(single))
            }
            Trial::Kernels { work, operands, results } => {
                let single = self.maker.kernels(work, operands, results)?;
                single.fill(operands, &self.stream)?;
                Ok(Work::Single(single))
            }
            Trial::Launch(how) => {
                let one = [Type::new(DType::F32, [1])];
                let add = Op::Binary(Binary::Add);
                let single =
                    self.maker.single(&add, &[one[0].clone(), one[0].clone()], &one, &self.stream)?;
                if *how == Issued::Alone {
                    return Ok(Work::Launches(single));
                }
                self.stream.synchronize()?;
                self.stream.begin_capture()?;
                (0..LAUNCHES).try_for_each(|_| single.issue(&self.stream, &mut self.given))?;
                Ok(Work::Graph(self.stream.end_capture()?, single))
            }
        }
    }
}

impl Trial {
    /// The kernels that it launches, but for the smallest one; none of a product that a library computes.
    pub fn work(&self) -> Option<cuda::Work> {
        match self {
            Self::Copy(_) | Self::Launch(_) => None,
            Self::Operation { op, operands, results } => whole(op, operands, results).ok(),
            Self::Kernels { work, .. } => Some(work.clone()),
        }
    }

    /// The types of what it makes, if that can be fetched.
    fn results(&self) -> Option<&[Type]> {
        match self {
            Self::Copy(_) | Self::Launch(_) => None,
            Self::Operation { results, .. } | Self::Kernels { results, .. } => Some(results),
        }
    }
}

fn issue(work: &Work, stream: &Stream, given: &mut Given) -> Result<(), DeviceError> {
    match work {
        Work::Copy([from, to]) => stream.copy(to.start, from.start, from.bytes),
        Work::Launches(single) => (0..LAUNCHES).try_for_each(|_| single.issue(stream, given)),
        // The kernel's memory is kept while it is issued.
        Work::Graph(graph, _single) => stream.replay(graph),
        Work::Single(single) => single.issue(stream, given),
    }
}

fn sampled(times: &[f64]) -> Result<Sample, DeviceError> {
    let none = || DeviceError::Program("the device's events give no times".to_owned());
    Sample::of(times).filter(|it| it.seconds > 0.0).ok_or_else(none)
}
