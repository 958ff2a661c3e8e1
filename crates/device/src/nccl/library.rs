//! NCCL, found and called: communicators whose calls never wait.
//!
//! A call may go on in the background; then the communicator says so until it has come to an end, and
//! takes no other call before. Source: NCCL's user guide, on communicators that do not block.

use std::ffi::{CStr, c_int, c_void};
use std::mem::ManuallyDrop;
use std::path::{Path, PathBuf};
use std::ptr;
use std::thread;
use std::time::{Duration, Instant};

use libloading::os::unix::Library as Loaded;
use planner_ir::DType;

use super::functions::{
    Configuration, DONE, Functions, GOES_ON, Handle, NO_COLOR, SUM, Status, Unique, number,
};
use super::live::Live;
use crate::error::DeviceError;
use crate::gpu::Stream;

/// What the library is called in messages.
const WHAT: &str = "NCCL, by which ranks on GPUs exchange (libnccl.so.2)";

/// Its names.
const NAMES: [&str; 2] = ["libnccl.so.2", "libnccl.so"];

/// The oldest version that has everything that is called: communicators that are split.
const LEAST: c_int = 21_800;

/// How long the host sleeps between two looks at what goes on in the background.
const NAP: Duration = Duration::from_micros(50);

/// The library.
pub(super) struct Library {
    functions: Functions,
    pub(super) live: Live,
    pub(super) version: String,
    /// It is not unloaded: threads of its own outlive its communicators.
    _library: ManuallyDrop<Loaded>,
}

/// A message of a group: what goes to a member, or comes from one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Passed {
    /// From an address, so many elements, to a member.
    To(u64, u64, usize),
    /// To an address, so many elements, from a member.
    From(u64, u64, usize),
}

/// A collective: what is given, what is gotten, and the elements that the library counts for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Collected {
    pub(super) input: u64,
    pub(super) output: u64,
    pub(super) elements: u64,
    pub(super) dtype: DType,
}

/// What is called of a version in messages, such as 2.18.5.
fn named(version: c_int) -> String {
    // Before 2.9 a minor version had one digit.
    let base = if version < 10_000 { 1000 } else { 10_000 };
    format!("{}.{}.{}", version / base, version % base / 100, version % 100)
}

impl Library {
    /// The library in one of these folders, or where libraries are; refuses one that is too old.
    pub(super) fn load(folders: &[PathBuf]) -> Result<Self, DeviceError> {
        let (functions, library, path) = Functions::load(WHAT, &NAMES, folders)?;
        let mut version = 0;
        #[expect(unsafe_code, reason = "a function of the library is called")]
        // SAFETY: the pointer is to a number that lives through the call.
        let status = unsafe { (functions.version)(&raw mut version) };
        let live = Live::new(functions.abort);
        let made = Self { functions, live, version: named(version), _library: ManuallyDrop::new(library) };
        made.expect("ncclGetVersion", status, ptr::null_mut())?;
        if version < LEAST { Err(too_old(&path, version)) } else { Ok(made) }
    }

    /// A new job: what all of its ranks are told.
    pub(super) fn unique(&self) -> Result<Unique, DeviceError> {
        let mut unique = Unique([0; Unique::BYTES]);
        #[expect(unsafe_code, reason = "a function of the library is called")]
        // SAFETY: the pointer is to a value that lives through the call.
        let status = unsafe { (self.functions.unique)(&raw mut unique) };
        self.expect("ncclGetUniqueId", status, ptr::null_mut())?;
        Ok(unique)
    }

    /// An error if a call has failed, or a communicator is in such a state.
    fn expect(&self, call: &'static str, status: Status, of: Handle) -> Result<(), DeviceError> {
        if status == DONE {
            return Ok(());
        }
        #[expect(unsafe_code, reason = "functions of the library are called")]
        // SAFETY: one takes any number, the other one a communicator that is there or none; the texts
        // live until the next error.
        let texts = unsafe { [(self.functions.error)(status), (self.functions.last_error)(of)] };
        let text = |it: &*const std::ffi::c_char| {
            #[expect(unsafe_code, reason = "a text of the library is read")]
            // SAFETY: it is none, or a text that ends in zero.
            let text = (!it.is_null()).then(|| unsafe { CStr::from_ptr(*it) });
            text.map(|it| it.to_string_lossy().trim().replace('\n', " ")).filter(|it| !it.is_empty())
        };
        let said: Vec<String> = texts.iter().filter_map(text).collect();
        Err(DeviceError::Call { call, code: status, said: said.join(": ") })
    }

    /// What a communicator is in the middle of, if it is not done.
    fn state(&self, of: Handle) -> Status {
        let mut state = DONE;
        #[expect(unsafe_code, reason = "a function of the library is called")]
        // SAFETY: the communicator is there; the pointer is to a number that lives through the call.
        let status = unsafe { (self.functions.state)(of, &raw mut state) };
        if status == DONE { state } else { status }
    }

    /// The communicators that have failed by themselves: the first error.
    pub(super) fn failed(&self) -> Option<(Status, DeviceError)> {
        let calls = self.live.calls();
        calls.handles().find_map(|handle| {
            let state = self.state(handle);
            let error = self.expect("ncclCommGetAsyncError", state, handle).err()?;
            (state != GOES_ON).then_some((state, error))
        })
    }

    /// Waits until a communicator is done with a call; nothing if that takes longer than the limit.
    fn settled(
        &self,
        call: &'static str,
        status: Status,
        of: Handle,
        limit: Duration,
    ) -> Result<Option<()>, DeviceError> {
        if status != GOES_ON {
            return self.expect(call, status, of).map(Some);
        }
        let start = Instant::now();
        loop {
            let calls = self.live.calls();
            let state = self.state(of);
            if state != GOES_ON {
                return self.expect(call, state, of).map(Some);
            }
            drop(calls);
            if start.elapsed() > limit {
                return Ok(None);
            }
            thread::sleep(NAP);
        }
    }

    /// The communicator of all ranks, of which this is one: nothing if that takes too long.
    pub(super) fn join(
        &self,
        unique: Unique,
        rank: u64,
        size: u64,
        limit: Duration,
    ) -> Result<Option<Handle>, DeviceError> {
        let mut handle: Box<Handle> = Box::new(ptr::null_mut());
        let mut how = Configuration::not_blocking();
        let mut calls = self.live.calls();
        #[expect(unsafe_code, reason = "a function of the library is called")]
        // SAFETY: the configuration lives through the call; the handle is written once.
        let status =
            unsafe { (self.functions.join)(&raw mut *handle, int(size), unique, int(rank), &raw mut how) };
        let made = *handle;
        if made.is_null() {
            self.expect("ncclCommInitRankConfig", status, ptr::null_mut())?;
        }
        calls.add(made);
        drop(calls);
        Ok(self.settled("ncclCommInitRankConfig", status, made, limit)?.map(|()| made))
    }

    /// A part of a communicator: of those with the same color, in the order of their keys. All of its
    /// members call this; nothing if that takes too long, no handle for those without a color.
    pub(super) fn split(
        &self,
        of: Handle,
        color: Option<usize>,
        key: usize,
        limit: Duration,
    ) -> Result<Option<Handle>, DeviceError> {
        // The library writes it while the call goes on: it stays where it is whatever happens.
        let handle = Box::leak(Box::new(ptr::null_mut::<c_void>()));
        let number = |it: usize| c_int::try_from(it).unwrap_or(c_int::MAX);
        let calls = self.live.calls();
        #[expect(unsafe_code, reason = "a function of the library is called")]
        // SAFETY: the communicator is there; the handle lives for ever; no configuration is that of the
        // communicator.
        let status = unsafe {
            let color = color.map_or(NO_COLOR, number);
            (self.functions.split)(of, color, number(key), &raw mut *handle, ptr::null_mut())
        };
        drop(calls);
        if self.settled("ncclCommSplit", status, of, limit)?.is_none() {
            return Ok(None);
        }
        let made = *handle;
        if color.is_some() {
            self.live.calls().add(made);
            let done = self.settled("ncclCommSplit", self.state(made), made, limit)?;
            return Ok(done.map(|()| made));
        }
        Ok(Some(made))
    }

    /// Gives communicators back, the newest first, when all of their ranks do.
    pub(super) fn give_back(&self, handles: impl DoubleEndedIterator<Item = Handle>, limit: Duration) {
        for handle in handles.rev() {
            let mut calls = self.live.calls();
            calls.remove(handle);
            drop(calls);
            #[expect(unsafe_code, reason = "functions of the library are called")]
            // SAFETY: the communicator is there, and is not used again.
            let status = unsafe { (self.functions.finalize)(handle) };
            // What cannot be given back goes with the process.
            if matches!(self.settled("ncclCommFinalize", status, handle, limit), Ok(Some(()))) {
                #[expect(unsafe_code, reason = "a function of the library is called")]
                // SAFETY: as above.
                unsafe {
                    (self.functions.destroy)(handle)
                };
            }
        }
    }

    /// Each gets the sum of what all give.
    pub(super) fn all_reduce(&self, on: Handle, it: &Collected, stream: &Stream) -> Made {
        self.called("ncclAllReduce", on, |all| {
            #[expect(unsafe_code, reason = "a function of the library is called")]
            // SAFETY: that both places have so many elements is proved of programs.
            let status = |dtype| unsafe {
                (all.all_reduce)(from(it), to(it), count(it), dtype, SUM, on, stream.handle.cast())
            };
            number(it.dtype).map(status)
        })
    }

    /// Each gets its block of the sum of what all give.
    pub(super) fn reduce_scatter(&self, on: Handle, it: &Collected, stream: &Stream) -> Made {
        self.called("ncclReduceScatter", on, |all| {
            #[expect(unsafe_code, reason = "a function of the library is called")]
            // SAFETY: that both places have so many elements is proved of programs.
            let status = |dtype| unsafe {
                (all.reduce_scatter)(from(it), to(it), count(it), dtype, SUM, on, stream.handle.cast())
            };
            number(it.dtype).map(status)
        })
    }

    /// A member gets the sum of what all give.
    pub(super) fn reduce(&self, on: Handle, root: usize, it: &Collected, stream: &Stream) -> Made {
        self.called("ncclReduce", on, |all| {
            let root = c_int::try_from(root).unwrap_or(c_int::MAX);
            #[expect(unsafe_code, reason = "a function of the library is called")]
            // SAFETY: that both places have so many elements is proved of programs.
            let status = |dtype| unsafe {
                (all.reduce)(from(it), to(it), count(it), dtype, SUM, root, on, stream.handle.cast())
            };
            number(it.dtype).map(status)
        })
    }

    /// Each gets what all give.
    pub(super) fn all_gather(&self, on: Handle, it: &Collected, stream: &Stream) -> Made {
        self.called("ncclAllGather", on, |all| {
            let (count, dtype) = moved(it.elements, it.dtype);
            #[expect(unsafe_code, reason = "a function of the library is called")]
            // SAFETY: that both places have so many elements is proved of programs.
            let status =
                unsafe { (all.all_gather)(from(it), to(it), count, dtype, on, stream.handle.cast()) };
            Some(status)
        })
    }

    /// Each gets what a member gives.
    pub(super) fn broadcast(&self, on: Handle, root: usize, it: &Collected, stream: &Stream) -> Made {
        self.called("ncclBroadcast", on, |all| {
            let (count, dtype) = moved(it.elements, it.dtype);
            let root = c_int::try_from(root).unwrap_or(c_int::MAX);
            #[expect(unsafe_code, reason = "a function of the library is called")]
            // SAFETY: that both places have so many elements is proved of programs.
            let status =
                unsafe { (all.broadcast)(from(it), to(it), count, dtype, root, on, stream.handle.cast()) };
            Some(status)
        })
    }

    /// Messages that are on their way together.
    pub(super) fn pass(&self, on: Handle, dtype: DType, messages: &[Passed], stream: &Stream) -> Made {
        if messages.is_empty() {
            return Ok(());
        }
        self.called("ncclGroupEnd", on, |all| {
            #[expect(unsafe_code, reason = "functions of the library are called")]
            // SAFETY: that places have so many elements is proved of programs; a group that has begun is
            // ended.
            let status = unsafe {
                let mut worst = (all.group_start)();
                for message in messages {
                    let status = match *message {
                        Passed::To(place, elements, member) => {
                            let (count, dtype) = moved(elements, dtype);
                            let place = place as *const c_void;
                            (all.send)(place, count, dtype, place_of(member), on, stream.handle.cast())
                        }
                        Passed::From(place, elements, member) => {
                            let (count, dtype) = moved(elements, dtype);
                            let place = place as *mut c_void;
                            (all.receive)(place, count, dtype, place_of(member), on, stream.handle.cast())
                        }
                    };
                    if !matches!(status, DONE | GOES_ON) {
                        worst = status;
                    }
                }
                let ended = (all.group_end)();
                if worst == DONE { ended } else { worst }
            };
            Some(status)
        })
    }

    /// A call, and what goes on of it in the background on the host: it is soon over.
    fn called(
        &self,
        call: &'static str,
        on: Handle,
        made: impl FnOnce(&Functions) -> Option<Status>,
    ) -> Made {
        let calls = self.live.calls();
        let unknown = || DeviceError::Program(format!("{call} knows no sums of this type"));
        let status = made(&self.functions).ok_or_else(unknown)?;
        drop(calls);
        let late = || DeviceError::Program(format!("{call} is not issued after {} s", ISSUED.as_secs()));
        self.settled(call, status, on, ISSUED)?.ok_or_else(late)
    }
}

/// What a call comes to.
type Made = Result<(), DeviceError>;

/// How long a call may take until it has been issued.
const ISSUED: Duration = Duration::from_secs(60);

fn too_old(path: &Path, version: c_int) -> DeviceError {
    DeviceError::Program(format!(
        "{WHAT} at {} is version {}, expected {} or newer",
        path.display(),
        named(version),
        named(LEAST)
    ))
}

fn int(number: u64) -> c_int {
    c_int::try_from(number).unwrap_or(c_int::MAX)
}

fn place_of(member: usize) -> c_int {
    c_int::try_from(member).unwrap_or(c_int::MAX)
}

fn from(it: &Collected) -> *const c_void {
    it.input as *const c_void
}

fn to(it: &Collected) -> *mut c_void {
    it.output as *mut c_void
}

fn count(it: &Collected) -> usize {
    usize::try_from(it.elements).unwrap_or(usize::MAX)
}

/// How many of what is moved: bytes of types that the library does not know.
fn moved(elements: u64, dtype: DType) -> (usize, c_int) {
    let size = |elements: u64| usize::try_from(elements).unwrap_or(usize::MAX);
    match number(dtype) {
        Some(number) => (size(elements), number),
        None => (size(elements.saturating_mul(dtype.bytes())), 1),
    }
}
