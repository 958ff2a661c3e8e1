//! The driver: what waits, what does not, and what is an error.

use std::path::PathBuf;
use std::rc::Rc;

use crate::emulated::emulated;
use crate::error::DeviceError;
use crate::gpu::{Event, Gpu, Memory, Priority, Stream, Timing};

/// How often something is tried whose order is left to chance.
const TRIALS: usize = 40;

/// A GPU, two streams, memory for some numbers, an event.
struct World {
    gpu: Rc<Gpu>,
    streams: [Stream; 2],
    memory: Memory,
    event: Event,
}

const BYTES: u64 = 64;

impl World {
    fn new(libraries: PathBuf) -> Self {
        let gpu = Gpu::open(&[libraries], 0).unwrap();
        let stream = || gpu.stream(Priority::High).unwrap();
        let (streams, event) = ([stream(), stream()], gpu.event(Timing::No).unwrap());
        let memory = gpu.memory(4 * BYTES).unwrap();
        Self { gpu, streams, memory, event }
    }

    fn at(&self, place: u64) -> u64 {
        self.memory.start + place * BYTES
    }

    /// One stream makes what the other copies; whether the copy is right.
    fn hands_over(&self, waits: bool) -> Result<bool, DeviceError> {
        let [first, second] = &self.streams;
        second.put(self.at(0), &[1; 64])?;
        first.fill(self.at(0), 2, BYTES)?;
        first.record(&self.event)?;
        if waits {
            second.wait(&self.event)?;
        }
        second.copy(self.at(1), self.at(0), BYTES)?;
        let mut found = [0; 64];
        second.get(self.at(1), &mut found)?;
        first.synchronize()?;
        Ok(found == [2; 64])
    }
}

#[test]
fn what_waits_is_in_order_and_what_does_not_is_not() {
    let emulated = emulated();
    let world = World::new(emulated.libraries.clone());
    let right = |waits: bool| (0..TRIALS).filter(|_| world.hands_over(waits).unwrap()).count();
    assert_eq!(right(true), TRIALS);
    let by_chance = right(false);
    assert!(by_chance > 0 && by_chance < TRIALS, "{by_chance} of {TRIALS} without a wait");
}

#[test]
fn captured_work_is_done_each_time_that_it_is_issued() {
    let emulated = emulated();
    let world = World::new(emulated.libraries.clone());
    let [first, second] = &world.streams;
    let joined = world.gpu.event(Timing::No).unwrap();
    first.begin_capture().unwrap();
    first.record(&world.event).unwrap();
    second.wait(&world.event).unwrap();
    second.copy(world.at(1), world.at(0), BYTES).unwrap();
    second.record(&joined).unwrap();
    first.wait(&joined).unwrap();
    first.copy(world.at(2), world.at(1), BYTES).unwrap();
    let graph = first.end_capture().unwrap();
    for number in 1..20 {
        first.put(world.at(0), &[number; 64]).unwrap();
        first.replay(&graph).unwrap();
        let mut found = [0; 64];
        first.get(world.at(2), &mut found).unwrap();
        assert_eq!(found, [number; 64]);
    }
}

/// The error of a call, of which others come after.
fn error(tried: Result<(), DeviceError>) -> String {
    tried.err().map_or("none".to_owned(), |it| it.to_string())
}

#[test]
fn errors_are_values_with_the_call_and_what_the_driver_says() {
    let emulated = emulated();
    let fresh = || World::new(emulated.libraries.clone());
    let world = fresh();
    let [first, second] = &world.streams;
    let never = error(first.wait(&world.event));
    assert_eq!(never, "cuStreamWaitEvent returned 1: an event is waited for that was never recorded");
    let outside = error(first.copy(world.at(0), world.at(3), 2 * BYTES));
    assert_eq!(outside, "cuMemcpyDtoDAsync returned 700: a copy: 128 bytes leave their piece");
    let nowhere = error(first.fill(64, 0, 1));
    assert_eq!(nowhere, "cuMemsetD8Async returned 700: filling: 40 is no memory of the device");
    let given_back = world.gpu.memory(64).unwrap().start;
    let gone = error(first.fill(given_back, 0, 1));
    assert_eq!(gone, "cuMemsetD8Async returned 700: filling: memory that has been given back");
    first.record(&world.event).unwrap();
    second.begin_capture().unwrap();
    let mixed = error(second.wait(&world.event));
    assert_eq!(mixed, "cuStreamWaitEvent returned 900: what is captured waits for what is not");
    let waits = error(second.synchronize());
    assert_eq!(waits, "cuStreamSynchronize returned 900: the host waits for what is captured");
    drop(world);
    let world = fresh();
    let second_gpu = Gpu::open(std::slice::from_ref(&emulated.libraries), 1).err().map(|it| it.to_string());
    assert_eq!(second_gpu.as_deref(), Some("cuDeviceGet returned 101: no device"));
    let garbage = world.gpu.module(b"no program").err().map(|it| it.to_string());
    let expected = "cuModuleLoadData returned 1: an image that does not begin with the primitives";
    assert_eq!(garbage.as_deref(), Some(expected));
}

#[test]
fn a_driver_that_is_not_there_is_one_message() {
    if crate::library::load("the driver", &["libcuda.so.1"], &[]).is_ok() {
        println!("left out: there is a driver here");
        return;
    }
    let said = Gpu::open(&[PathBuf::from("/nowhere")], 0).err().map(|it| it.to_string()).unwrap();
    assert!(
        said.starts_with("the driver (libcuda.so.1) is not there: looked for /nowhere/libcuda.so.1"),
        "{said}"
    );
}
