//! What makes ranks ready: kernels loaded, memory laid out, products described, constants put there.

use std::collections::BTreeMap;
use std::rc::Rc;

use kernels::cuda::{Launch, Uncovered, Work};
use lower::{Action, BufferId, Program, Stream};

use crate::cache::{self, Loaded};
use crate::error::DeviceError;
use crate::exchange::Exchange;
use crate::gpu::{self, Gpu, Memory};
use crate::nvrtc::Nvrtc;
use crate::products::Products;
use crate::rank::{Layout, Needs, Rank};
use crate::ready::{self, Given, Kernels, Multiplied, Packed, Ready};
use crate::settings::Settings;
use crate::task::Task;
use crate::tasks::tasks;

/// The ranks of a plan that are in this process, each with its place among those of all plans, and how
/// they reach each other and the rest.
pub(crate) struct Wanted<'a> {
    pub(crate) programs: Vec<(usize, &'a Program)>,
    pub(crate) exchange: Box<dyn Exchange>,
}

/// What makes ranks ready.
pub(crate) struct Maker<'a> {
    gpu: &'a Rc<Gpu>,
    settings: &'a Settings,
    /// What the instructions of each program of each plan are.
    tasks: Vec<Vec<Vec<Task>>>,
    pub(crate) loaded: Loaded,
    pub(crate) nvrtc: Nvrtc,
    products: Option<Products>,
    /// What is computed on the host, and how often in a step: for each plan.
    on_host: Vec<BTreeMap<String, usize>>,
    /// How many products the library does not compute.
    without_library: usize,
}

impl<'a> Maker<'a> {
    /// Compiles and loads the kernels of all plans.
    pub(crate) fn new(
        gpu: &'a Rc<Gpu>,
        settings: &'a Settings,
        plans: &[Wanted],
    ) -> Result<Self, DeviceError> {
        let mut programs = plans.iter().flat_map(|plan| &plan.programs);
        if programs.any(|(_, program)| multiplies_narrow(program)) {
            return Err(DeviceError::Program(
                "the plan has products of 8-bit or 4-bit numbers (`--precision fp8`, `mxfp8` or `nvfp4`), which are not \
                 issued to GPUs: plan with `--precision bf16`, or run this plan on threads (`--device cpu`)"
                    .to_owned(),
            ));
        }
        let nvrtc = Nvrtc::load(&settings.libraries)?;
        let mut works: Vec<Work> = Vec::new();
        let mut has_products = false;
        let mut all = Vec::new();
        for plan in plans {
            let only: Vec<&Program> = plan.programs.iter().map(|(_, program)| *program).collect();
            let tasks: Vec<Vec<Task>> = only.iter().map(|program| tasks(program)).collect();
            works.extend(plan.exchange.works(&only));
            for task in tasks.iter().flatten() {
                match &task.work {
                    Ok(work) => works.push(work.clone()),
                    // The library may refuse a product: its kernel is there then.
                    Err(Uncovered::Library(product)) => {
                        works.push(ready::around(product));
                        has_products = true;
                    }
                    Err(_) => {}
                }
            }
            all.push(tasks);
        }
        let cache = settings.cache.as_deref();
        let loaded = cache::loaded(gpu, &nvrtc, cache, works.iter().flat_map(|work| &work.launches))?;
        let products = || Products::load(gpu, &settings.libraries, cache, settings.workspace);
        let products = has_products.then(products).transpose()?;
        let on_host = vec![BTreeMap::new(); plans.len()];
        Ok(Self { gpu, settings, tasks: all, loaded, nvrtc, products, on_host, without_library: 0 })
    }

    /// Whether steps of a plan wait on the host.
    pub(crate) fn waits_on_host(&self, plan: usize) -> bool {
        !self.on_host[plan].is_empty()
    }

    /// The ranks of all plans with everything ready, and their memory: one piece for each place.
    pub(crate) fn ranks(
        &mut self,
        plans: &[Wanted],
        service: &gpu::Stream,
    ) -> Result<(Vec<Vec<Rank>>, Vec<Memory>), DeviceError> {
        let places = plans.iter().map(|plan| plan.programs.len()).max().unwrap_or(0);
        let workspace = if self.products.is_some() { self.settings.workspace } else { 0 };
        let mut layouts = Vec::with_capacity(places);
        for place in 0..places {
            let plans = plans.iter().zip(&self.tasks);
            let here =
                plans.filter_map(|(plan, tasks)| Some((plan.programs.get(place)?.1, tasks.get(place)?)));
            let needs: Vec<Needs> = here.map(|(program, tasks)| needs(program, tasks)).collect();
            layouts.push(Layout::of(&needs, workspace));
        }
        self.expect_room(layouts.iter().map(|it| it.1).sum(), places)?;
        let mut memories = Vec::with_capacity(places);
        let mut ranks: Vec<Vec<Rank>> = plans.iter().map(|_| Vec::new()).collect();
        for (place, (layouts, bytes)) in layouts.into_iter().enumerate() {
            let memory = self.gpu.memory(bytes)?;
            let here = plans
                .iter()
                .enumerate()
                .filter_map(|(number, plan)| Some((number, plan.programs.get(place)?)));
            for ((plan, (number, program)), layout) in here.zip(layouts) {
                let rank = Rank::new(self.gpu, *number, program, layout, memory.start)?;
                let tasks = std::mem::take(&mut self.tasks[plan][place]);
                ranks[plan].push(self.ready(plan, rank, tasks, service)?);
            }
            memories.push(memory);
        }
        Ok((ranks, memories))
    }

    /// Refuses what the GPU has no room for.
    fn expect_room(&self, needed: u64, ranks: usize) -> Result<(), DeviceError> {
        let free = self.gpu.free_memory()?;
        if needed <= free {
            return Ok(());
        }
        Err(DeviceError::Room { needed, free, ranks, gpu: self.gpu.facts.name.clone() })
    }

    /// A rank with everything ready.
    fn ready(
        &mut self,
        plan: usize,
        mut rank: Rank,
        tasks: Vec<Task>,
        service: &gpu::Stream,
    ) -> Result<Rank, DeviceError> {
        let mut works: Vec<Ready> = rank.program.instructions.iter().map(|_| Ready::Nothing).collect();
        for (number, instruction) in rank.program.instructions.iter().enumerate() {
            if !matches!(instruction.action, Action::Compute(_) | Action::Copy(_)) {
                works[number] = Ready::Exchange;
            }
        }
        let mut constants = rank.constants();
        for task in tasks {
            works[task.at] = if is_known(&task) {
                let (made, end) = self.constant(&rank, task.at, constants, service)?;
                constants = end;
                made
            } else {
                self.work(plan, &rank, &task, service)?
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
    fn work(
        &mut self,
        plan: usize,
        rank: &Rank,
        task: &Task,
        service: &gpu::Stream,
    ) -> Result<Ready, DeviceError> {
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
            *self.on_host[plan].entry(why).or_default() += 1;
            return Ok(Ready::Host);
        }
        let Err(Uncovered::Library(product)) = &task.work else {
            return match (&task.operands[..], &task.results[..]) {
                ([from, ..], [to]) => Ok(Ready::Copy { from: *from, to: *to }),
                _ => Ok(Ready::Nothing),
            };
        };
        if let [to] = task.results[..] {
            if rank.bytes(to) == 0 {
                return Ok(Ready::Nothing);
            }
            if product.product.length == 0 && product.addend.is_none() {
                return Ok(Ready::Zero(to));
            }
        }
        let mut given = Given::default();
        let on = rank.program.instructions[task.at].stream;
        rank.give(&mut given, on, &task.operands, &task.results, 0);
        let places = given.places(product.matrices, product.addend, rank.workspace().0)?;
        let [left, right, made] = product.dtypes;
        let found = match &mut self.products {
            Some(products) if left == right && product.product.length > 0 => {
                products.ready(&product.product, [left, made], places, service)?
            }
            _ => None,
        };
        let packed = |launches: &[Launch]| {
            launches.iter().map(|it| Packed::new(it, &self.loaded)).collect::<Result<Vec<_>, _>>()
        };
        match found {
            Some(found) => Ok(Ready::Product(Box::new(Multiplied {
                product: found,
                before: packed(&product.before)?,
                after: packed(&product.after)?,
                matrices: product.matrices,
                addend: product.addend,
                operands: task.operands.clone(),
                results: task.results.clone(),
            }))),
            None => {
                self.without_library += 1;
                let all = product.before.iter().chain(&product.plain.launches).chain(&product.after);
                kernels(&Work { launches: all.cloned().collect(), room: product.room }, &self.loaded)
            }
        }
    }

    /// What is worth saying once.
    pub(crate) fn remarks(&self) -> Vec<String> {
        let mut remarks = Vec::new();
        for (what, count) in self.on_host.iter().flatten() {
            let remark = format!("computed on the host, {count} times in a step of all ranks: {what}");
            if !remarks.contains(&remark) {
                remarks.push(remark);
            }
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

/// What a program needs besides what it says.
fn needs<'a>(program: &'a Program, tasks: &[Task]) -> Needs<'a> {
    let known = tasks.iter().filter(|it| is_known(it)).flat_map(|it| &it.instructions);
    let constants = known.flat_map(|&it| program.instructions[it].action.writes());
    let constants = constants.map(|it| room_of(program, it)).sum();
    Needs { program, rooms: Stream::ALL.map(|stream| ready::room(program, tasks, stream)), constants }
}

/// Whether a task's results are known when a program is made ready.
fn is_known(task: &Task) -> bool {
    matches!(task.work, Err(Uncovered::Known))
}

/// The room of a buffer among constants (bytes).
fn room_of(program: &Program, buffer: BufferId) -> u64 {
    program.buffer(buffer).type_.bytes().next_multiple_of(64)
}

/// Whether a program has products of numbers with scales.
fn multiplies_narrow(program: &Program) -> bool {
    let narrow = |number| ready::compute(program, number).is_some_and(|it| it.op.has_scales());
    (0..program.instructions.len()).any(narrow)
}
