//! Ranks on GPUs as sessions run them.

use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;

use kernels::Array;
use kernels::cuda::{Launch, Work};
use lower::{Action, BufferId, Collective, CollectiveKind, Program, Stream, Way};
use run::{Engine, Feed, Report, RunError};

use crate::cache::{self, Loaded};
use crate::error::DeviceError;
use crate::exchange::Exchange;
use crate::gpu::{self, Event, Facts, Gpu, Graph, Priority, Timing};
use crate::issue::{Half, issue};
use crate::nvrtc::Nvrtc;
use crate::products::{Places, Products};
use crate::rank::{Layout, Rank};
use crate::ready::{self, Given, Kernels, Packed, Ready};
use crate::tasks::{Task, tasks};
use crate::together::Together;

/// What a device is made with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Where libraries are looked for first.
    pub libraries: Vec<PathBuf>,
    /// Where compiled kernels and what has been found of products are kept, if they are.
    pub cache: Option<PathBuf>,
    /// Which GPU.
    pub gpu: usize,
    /// What products may use besides their matrices, for each rank (bytes).
    pub workspace: u64,
}

impl Default for Settings {
    /// The first GPU, nothing kept, and as much for products as the library likes on GPUs of 2022 on.
    fn default() -> Self {
        Self { libraries: Vec::new(), cache: None, gpu: 0, workspace: 32 << 20 }
    }
}

/// Ranks of a plan on a GPU, with everything that their steps need.
pub struct Device {
    // What refers to memory and streams of ranks is dropped before them.
    exchange: Box<dyn Exchange>,
    /// How often the halves of a step have been issued, and what they are, captured.
    issued: [usize; 2],
    graphs: [Option<Graph>; 2],
    /// Whether steps can be captured: nothing of them waits on the host.
    captures: bool,
    /// When a captured step begins.
    begun: Event,
    ranks: Vec<Rank>,
    /// Where blocks are put and fetched between steps.
    service: gpu::Stream,
    gpu: Rc<Gpu>,
    given: Given,
    remarks: Vec<String>,
}

impl Device {
    /// All ranks of a plan on one GPU, one or more: if there are several, they meet there.
    pub fn together(settings: &Settings, programs: &[Program]) -> Result<Self, DeviceError> {
        let gpu = Gpu::open(&settings.libraries, settings.gpu)?;
        let exchange = Box::new(Together::new(&gpu));
        let all: Vec<(usize, &Program)> = programs.iter().enumerate().collect();
        let mut device = Self::new(&gpu, settings, &all, exchange)?;
        if programs.len() > 1 {
            device.remarks.insert(
                0,
                format!(
                    "{} ranks on one GPU ({}): what they compute is right, how long it takes says nothing \
                     of as many GPUs",
                    programs.len(),
                    gpu.facts.name
                ),
            );
        }
        Ok(device)
    }

    /// Ranks on a GPU, each with its place among the programs of the session, and how they reach each
    /// other and the rest.
    pub(crate) fn new(
        gpu: &Rc<Gpu>,
        settings: &Settings,
        programs: &[(usize, &Program)],
        mut exchange: Box<dyn Exchange>,
    ) -> Result<Self, DeviceError> {
        let service = gpu.stream(Priority::Low)?;
        let mut maker = Maker::new(gpu, settings, programs, exchange.as_ref())?;
        let mut ranks = Vec::with_capacity(programs.len());
        for (place, (number, program)) in programs.iter().enumerate() {
            ranks.push(maker.rank(place, *number, program, &service)?);
        }
        exchange.prepare(&ranks, &maker.loaded)?;
        gpu.synchronize()?;
        let remarks = maker.remarks();
        let captures = exchange.captures() && maker.on_host.is_empty();
        Ok(Self {
            exchange,
            issued: [0; 2],
            graphs: [None, None],
            captures,
            begun: gpu.event(Timing::No)?,
            ranks,
            service,
            gpu: Rc::clone(gpu),
            given: Given::default(),
            remarks,
        })
    }

    /// What is worth saying once of how these programs run.
    pub fn remarks(&self) -> &[String] {
        &self.remarks
    }

    /// What is known of the GPU.
    pub fn facts(&self) -> &Facts {
        &self.gpu.facts
    }

    /// The memory of the GPU that is free (bytes).
    pub fn free_memory(&self) -> Result<u64, DeviceError> {
        self.gpu.free_memory()
    }

    fn rank(&self, number: usize) -> Result<&Rank, DeviceError> {
        let missing = || DeviceError::Program(format!("the rank at place {number} is not on this device"));
        self.ranks.iter().find(|it| it.number == number).ok_or_else(missing)
    }

    fn fetched(&self, rank: &Rank, buffer: BufferId) -> Result<Vec<u8>, DeviceError> {
        let mut bytes = vec![0; usize::try_from(rank.bytes(buffer)).unwrap_or(usize::MAX)];
        self.service.get(rank.address(buffer, 0), &mut bytes)?;
        Ok(bytes)
    }

    /// Issues half a step and waits for it. The first time it is issued as it is, so that what is done at
    /// first use is done; the second time it is captured, and from then on it is one call.
    fn issue(&mut self, half: Half) -> Result<(), DeviceError> {
        let place = usize::from(half == Half::Guarded);
        let times = self.issued[place];
        self.issued[place] += 1;
        if !self.captures || times == 0 {
            issue(&self.ranks, self.exchange.as_mut(), half, &mut self.given)?;
            return self.ranks.iter().try_for_each(Rank::synchronize);
        }
        if self.graphs[place].is_none() {
            self.graphs[place] = Some(self.captured(half)?);
        }
        if let Some(graph) = &self.graphs[place] {
            self.service.replay(graph)?;
        }
        self.service.synchronize()
    }

    /// Half a step, captured.
    fn captured(&mut self, half: Half) -> Result<Graph, DeviceError> {
        self.service.begin_capture()?;
        self.service.record(&self.begun)?;
        self.ranks.iter().try_for_each(|rank| rank.follow(&self.begun))?;
        issue(&self.ranks, self.exchange.as_mut(), half, &mut self.given)?;
        self.ranks.iter().try_for_each(|rank| rank.lead(&self.service))?;
        self.service.end_capture()
    }

    /// Whether the outputs that every rank has whole are finite, on each of the ranks here.
    fn outputs_are_finite(&self) -> Result<bool, RunError> {
        for rank in &self.ranks {
            for port in rank.program.outputs.iter().filter(|port| port.is_checked()) {
                let failed = |error| RunError::Whole(port.name.clone(), error);
                let bytes = self.fetched(rank, port.buffer)?;
                let array = Array::from_bytes(port.type_.clone(), &bytes).map_err(failed)?;
                if array.to_floats().map_err(failed)?.iter().any(|it| !it.is_finite()) {
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        // What a step that failed has left on streams uses what is given back now. If waiting fails too,
        // nothing of it runs any more.
        let _ = self.gpu.synchronize();
    }
}

impl Engine for Device {
    fn put(&mut self, rank: usize, buffer: BufferId, block: &Arc<Array>) -> Result<(), RunError> {
        let rank = self.rank(rank)?;
        if u64::try_from(block.bytes().len()) != Ok(rank.bytes(buffer)) {
            let how = format!("what is put into b{} of rank {} does not fit", buffer.0, rank.program.rank);
            return Err(RunError::Program(how));
        }
        Ok(self.service.put(rank.address(buffer, 0), block.bytes())?)
    }

    fn get(&self, rank: usize, buffer: BufferId) -> Result<Vec<u8>, RunError> {
        Ok(self.fetched(self.rank(rank)?, buffer)?)
    }

    fn step(&mut self, feeds: &[Vec<Feed>]) -> Result<Vec<Report>, RunError> {
        for rank in &mut self.ranks {
            rank.feed(feeds.get(rank.number).map_or(&[], Vec::as_slice))?;
        }
        self.issue(Half::First)?;
        let guarded = self.ranks.iter().any(|it| it.program.guard.is_some());
        let complete = !guarded || self.outputs_are_finite()?;
        if complete && guarded {
            self.issue(Half::Guarded)?;
        }
        Ok(self.ranks.iter().map(|rank| report(&rank.program, complete)).collect())
    }
}

/// What a rank reports of a step: what it receives is what its program says.
fn report(program: &Program, complete: bool) -> Report {
    let repeated = program.repetition();
    let times = program.repeated.as_ref().map_or(1, |it| it.times);
    let guard = program.guard.unwrap_or(program.instructions.len());
    let bytes = |(number, instruction): (usize, &lower::Instruction)| {
        let times = if repeated.contains(&number) { times } else { 1 };
        let times = if complete || number < guard { times } else { 0 };
        received(program, &instruction.action) * times
    };
    Report {
        seconds: vec![0.0; program.instructions.len()],
        received: program.instructions.iter().enumerate().map(bytes).collect(),
        complete,
    }
}

/// What a rank receives from others in an instruction (bytes).
fn received(program: &Program, action: &Action) -> u64 {
    let size = |buffer: BufferId| program.buffer(buffer).type_.dtype.bytes();
    match action {
        Action::Compute(_) | Action::Copy(_) | Action::Send(_) => 0,
        Action::Message(it) if it.from == program.rank => 0,
        Action::Message(it) => program.buffer(it.output).type_.bytes(),
        Action::Receive(it) => {
            let from = it.parts.iter().filter(|it| it.way == Way::From && it.rank != program.rank);
            from.map(|part| part.strided.elements()).sum::<u64>() * size(it.output)
        }
        Action::Collective(it) => collected(program, it) * size(it.output),
    }
}

/// The elements that a rank receives from others in a collective.
fn collected(program: &Program, collective: &Collective) -> u64 {
    let members = program.members(collective.communicator);
    let count = u64::try_from(members.len()).unwrap_or(1).max(1);
    let own = members.iter().position(|&it| it == program.rank).unwrap_or(0);
    let (others, elements) = (count - 1, collective.elements);
    match collective.kind {
        CollectiveKind::AllGather | CollectiveKind::AllToAll | CollectiveKind::ReduceScatter => {
            others * elements
        }
        CollectiveKind::Broadcast(root) if root == own => 0,
        CollectiveKind::Broadcast(_) => elements,
        CollectiveKind::Reduce(root) if root == own => others * elements,
        CollectiveKind::Reduce(_) => 0,
        CollectiveKind::AllReduce => {
            let number = u64::try_from(own).unwrap_or(0);
            let block = elements / count + u64::from(number < elements % count);
            others * block + (elements - block)
        }
    }
}

/// What makes ranks ready.
struct Maker<'a> {
    gpu: &'a Rc<Gpu>,
    settings: &'a Settings,
    /// What the instructions of each program are.
    tasks: Vec<Vec<Task>>,
    loaded: Loaded,
    products: Option<Products>,
    /// What is computed on the host, and how often in a step.
    on_host: std::collections::BTreeMap<String, usize>,
    /// How many products the library does not compute.
    without_library: usize,
}

impl<'a> Maker<'a> {
    fn new(
        gpu: &'a Rc<Gpu>,
        settings: &'a Settings,
        programs: &[(usize, &Program)],
        exchange: &dyn Exchange,
    ) -> Result<Self, DeviceError> {
        let nvrtc = Nvrtc::load(&settings.libraries)?;
        let tasks: Vec<Vec<Task>> = programs.iter().map(|(_, program)| tasks(program)).collect();
        let only: Vec<&Program> = programs.iter().map(|(_, program)| *program).collect();
        let mut works: Vec<Work> = exchange.works(&only);
        let mut has_products = false;
        for (tasks, program) in tasks.iter().zip(&only) {
            for task in tasks {
                works.extend(task.work.as_ref().ok().cloned());
                // The library may refuse a product: its kernel is there then.
                if let Some((.., plain)) = ready::product(program, task).filter(|_| task.work.is_err()) {
                    works.push(plain);
                    has_products = true;
                }
            }
        }
        let launches = works.iter().flat_map(|work| &work.launches);
        let all: Vec<&Launch> = launches.collect();
        let cache = settings.cache.as_deref();
        let loaded = cache::loaded(gpu, &nvrtc, cache, all.into_iter())?;
        let workspace = settings.workspace;
        let products = || Products::load(gpu, &settings.libraries, cache, workspace);
        let products = has_products.then(products).transpose()?;
        let (on_host, without_library) = (std::collections::BTreeMap::new(), 0);
        Ok(Self { gpu, settings, tasks, loaded, products, on_host, without_library })
    }

    /// A rank with everything ready.
    fn rank(
        &mut self,
        place: usize,
        number: usize,
        program: &Program,
        service: &gpu::Stream,
    ) -> Result<Rank, DeviceError> {
        let tasks = std::mem::take(&mut self.tasks[place]);
        let known: Vec<usize> =
            tasks.iter().filter(|it| is_known(it)).flat_map(|it| it.instructions.clone()).collect();
        let constants = known.iter().flat_map(|&it| program.instructions[it].action.writes());
        let constants: u64 = constants.map(|it| room_of(program, it)).sum();
        let workspace = if self.products.is_some() { self.settings.workspace } else { 0 };
        let rooms = Stream::ALL.map(|stream| ready::room(program, &tasks, stream));
        let layout = Layout::new(program, rooms, workspace, constants);
        let mut rank = Rank::new(self.gpu, number, program, layout)?;
        let mut works: Vec<Ready> = program.instructions.iter().map(|_| Ready::Nothing).collect();
        for (number, instruction) in program.instructions.iter().enumerate() {
            if !matches!(instruction.action, Action::Compute(_) | Action::Copy(_)) {
                works[number] = Ready::Exchange;
            }
        }
        let mut constants = rank.constants();
        for task in tasks {
            let Some(&first) = task.instructions.first() else { continue };
            works[first] = if is_known(&task) {
                let (made, end) = self.constant(&rank, first, constants, service)?;
                constants = end;
                made
            } else {
                self.work(&rank, &task, service)?
            };
        }
        rank.works = works;
        Ok(rank)
    }

    /// What is known beforehand, put on the device from an address on; and where that ends.
    fn constant(
        &self,
        rank: &Rank,
        number: usize,
        start: u64,
        service: &gpu::Stream,
    ) -> Result<(Ready, u64), DeviceError> {
        let Some(compute) = ready::compute(&rank.program, number) else { return Ok((Ready::Nothing, start)) };
        let (mut known, mut end) = (Vec::new(), start);
        for (made, buffer) in rank.computed(compute, &[])? {
            service.put(end, made.bytes())?;
            known.push((end, buffer));
            end += room_of(&rank.program, buffer);
        }
        Ok((Ready::Known(known), end))
    }

    /// What a task is when it is issued.
    fn work(&mut self, rank: &Rank, task: &Task, service: &gpu::Stream) -> Result<Ready, DeviceError> {
        let kernels = |work: &Work, loaded: &Loaded| {
            Ok::<_, DeviceError>(Ready::Kernels(Kernels {
                launches: Packed::all(work, loaded)?,
                operands: task.operands.clone(),
                results: task.results.clone(),
            }))
        };
        if let Ok(work) = &task.work {
            return kernels(work, &self.loaded);
        }
        if let Some(why) = ready::on_host(task) {
            *self.on_host.entry(why).or_default() += 1;
            return Ok(Ready::Host);
        }
        let Some((product, types, buffers, plain)) = ready::product(&rank.program, task) else {
            return match (&task.operands[..], &task.results[..]) {
                ([from, ..], [to]) => Ok(Ready::Copy { from: *from, to: *to }),
                _ => Ok(Ready::Nothing),
            };
        };
        if types[2].elements() == 0 {
            return Ok(Ready::Nothing);
        }
        if product.length == 0 {
            return Ok(Ready::Zero(buffers[2]));
        }
        let [left, right, made] = &types;
        let places =
            Places { matrices: buffers.map(|it| rank.address(it, 0)), workspace: rank.workspace().0 };
        let dtypes = [left.dtype, made.dtype];
        let alike = left.dtype == right.dtype;
        let found = match &mut self.products {
            Some(products) if alike => products.ready(&product, dtypes, places, service)?,
            _ => None,
        };
        match found {
            Some(product) => Ok(Ready::Product(Box::new(product), buffers)),
            None => {
                self.without_library += 1;
                kernels(&plain, &self.loaded)
            }
        }
    }

    fn remarks(&self) -> Vec<String> {
        let mut remarks = Vec::new();
        for (what, count) in &self.on_host {
            remarks.push(format!("computed on the host, {count} times in a step of all ranks: {what}"));
        }
        if self.without_library > 0 {
            remarks.push(format!("{} products are computed by a plain kernel", self.without_library));
        }
        if self.loaded.compiled > 0 {
            remarks.push(format!("{} kernels have been compiled", self.loaded.compiled));
        }
        if let Some(products) = self.products.as_ref().filter(|it| it.timed() > 0) {
            remarks.push(format!(
                "{} products have been timed, of cuBLASLt {}",
                products.timed(),
                products.version()
            ));
        }
        remarks
    }
}

/// Whether a task's results are known when a program is made ready.
fn is_known(task: &Task) -> bool {
    matches!(task.work, Err(kernels::cuda::Uncovered::Known))
}

/// The room of a buffer among constants (bytes).
fn room_of(program: &Program, buffer: BufferId) -> u64 {
    program.buffer(buffer).type_.bytes().next_multiple_of(64)
}
