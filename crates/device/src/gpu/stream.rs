//! Streams, what is issued one after another, and events, moments of it.

use std::ffi::{c_int, c_uint};
use std::ptr;
use std::rc::Rc;
use std::thread;
use std::time::{Duration, Instant};

use cudarc::driver::sys::{CUevent, CUevent_flags_enum, CUresult, CUstream, CUstream_flags_enum};

use super::{Gpu, Pinned, Waiting};
use crate::error::DeviceError;

/// How long the host sleeps between two looks at a stream, at first and at most.
const SHORTEST: Duration = Duration::from_micros(20);
const LONGEST: Duration = Duration::from_millis(1);

/// A stream.
pub(crate) struct Stream {
    pub(super) gpu: Rc<Gpu>,
    pub(crate) handle: CUstream,
}

/// Whose work goes first where there is not room for all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Priority {
    /// That of others.
    Low,
    /// Its own.
    High,
}

/// A moment: when what was issued before it on its stream is over.
pub(crate) struct Event {
    gpu: Rc<Gpu>,
    handle: CUevent,
}

/// Whether the time of an event is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Timing {
    /// It is not: events are cheaper then.
    No,
    /// It is.
    Yes,
}

impl Gpu {
    /// A stream of its own: it waits for no other unless it is told to.
    pub(crate) fn stream(self: &Rc<Self>, priority: Priority) -> Result<Stream, DeviceError> {
        let (mut least, mut greatest) = (0, 0);
        #[expect(unsafe_code, reason = "a function of the driver is called")]
        // SAFETY: both pointers are to numbers that live through the call.
        let status = unsafe { (self.functions.context_priorities)(&raw mut least, &raw mut greatest) };
        self.expect("cuCtxGetStreamPriorityRange", status)?;
        let level = if priority == Priority::High { greatest } else { least };
        let mut handle = ptr::null_mut();
        let flags = CUstream_flags_enum::CU_STREAM_NON_BLOCKING as c_uint;
        #[expect(unsafe_code, reason = "a function of the driver is called")]
        // SAFETY: the pointer is to one that lives through the call.
        let status = unsafe { (self.functions.stream_create)(&raw mut handle, flags, level) };
        self.expect("cuStreamCreateWithPriority", status)?;
        Ok(Stream { gpu: Rc::clone(self), handle })
    }

    /// An event that has not been.
    pub(crate) fn event(self: &Rc<Self>, timing: Timing) -> Result<Event, DeviceError> {
        let flags = match timing {
            Timing::No => CUevent_flags_enum::CU_EVENT_DISABLE_TIMING,
            Timing::Yes => CUevent_flags_enum::CU_EVENT_DEFAULT,
        };
        let mut handle = ptr::null_mut();
        #[expect(unsafe_code, reason = "a function of the driver is called")]
        // SAFETY: the pointer is to one that lives through the call.
        let status = unsafe { (self.functions.event_create)(&raw mut handle, flags as c_uint) };
        self.expect("cuEventCreate", status)?;
        Ok(Event { gpu: Rc::clone(self), handle })
    }
}

impl Stream {
    /// Records an event: from now on it is the moment when everything issued before is over.
    pub(crate) fn record(&self, event: &Event) -> Result<(), DeviceError> {
        #[expect(unsafe_code, reason = "a function of the driver is called")]
        // SAFETY: both are the driver's and have not been given back.
        let status = unsafe { (self.gpu.functions.event_record)(event.handle, self.handle) };
        self.gpu.expect("cuEventRecord", status)
    }

    /// Lets what is issued from now on wait for an event that has been recorded.
    pub(crate) fn wait(&self, event: &Event) -> Result<(), DeviceError> {
        #[expect(unsafe_code, reason = "a function of the driver is called")]
        // SAFETY: both are the driver's and have not been given back.
        let status = unsafe { (self.gpu.functions.stream_wait)(self.handle, event.handle, 0) };
        self.gpu.expect("cuStreamWaitEvent", status)
    }

    /// Waits on the host for everything that has been issued.
    pub(crate) fn synchronize(&self) -> Result<(), DeviceError> {
        if let Some(watch) = self.gpu.watch.get() {
            let done = self.looked_at(watch);
            watch(Waiting::Over);
            return done;
        }
        #[expect(unsafe_code, reason = "a function of the driver is called")]
        // SAFETY: the stream is the driver's and has not been given back.
        let status = unsafe { (self.gpu.functions.stream_synchronize)(self.handle) };
        self.gpu.expect("cuStreamSynchronize", status)
    }

    /// Waits, and lets somebody look at that.
    fn looked_at(&self, watch: &dyn Fn(Waiting)) -> Result<(), DeviceError> {
        let (start, mut nap) = (Instant::now(), SHORTEST);
        loop {
            #[expect(unsafe_code, reason = "a function of the driver is called")]
            // SAFETY: the stream is the driver's and has not been given back.
            let status = unsafe { (self.gpu.functions.stream_query)(self.handle) };
            if status != CUresult::CUDA_ERROR_NOT_READY as c_int {
                return self.gpu.expect("cuStreamQuery", status);
            }
            watch(Waiting::For(start.elapsed()));
            thread::sleep(nap);
            nap = (2 * nap).min(LONGEST);
        }
    }

    /// Copies within the device (bytes).
    pub(crate) fn copy(&self, to: u64, from: u64, bytes: u64) -> Result<(), DeviceError> {
        if bytes == 0 || to == from {
            return Ok(());
        }
        let size = usize::try_from(bytes).unwrap_or(usize::MAX);
        #[expect(unsafe_code, reason = "a function of the driver is called")]
        // SAFETY: the driver refuses what is no memory of the device; that it is the right memory is for
        // those who issue it.
        let status = unsafe { (self.gpu.functions.copy)(to, from, size, self.handle) };
        self.gpu.expect("cuMemcpyDtoDAsync", status)
    }

    /// Sets bytes of the device.
    pub(crate) fn fill(&self, to: u64, byte: u8, bytes: u64) -> Result<(), DeviceError> {
        if bytes == 0 {
            return Ok(());
        }
        let size = usize::try_from(bytes).unwrap_or(usize::MAX);
        #[expect(unsafe_code, reason = "a function of the driver is called")]
        // SAFETY: as of copies.
        let status = unsafe { (self.gpu.functions.fill)(to, byte, size, self.handle) };
        self.gpu.expect("cuMemsetD8Async", status)
    }

    /// Copies a part of pinned memory to the device; until that is over it must not be changed.
    pub(crate) fn copy_in(
        &self,
        to: u64,
        from: &Pinned,
        part: std::ops::Range<usize>,
    ) -> Result<(), DeviceError> {
        let bytes = from.bytes().get(part).unwrap_or_default();
        self.enqueue_in(to, bytes)
    }

    /// Copies bytes to the device, and waits.
    pub(crate) fn put(&self, to: u64, bytes: &[u8]) -> Result<(), DeviceError> {
        self.enqueue_in(to, bytes)?;
        self.synchronize()
    }

    fn enqueue_in(&self, to: u64, bytes: &[u8]) -> Result<(), DeviceError> {
        if bytes.is_empty() {
            return Ok(());
        }
        #[expect(unsafe_code, reason = "a function of the driver is called")]
        // SAFETY: so many bytes are there; they stay there until the copy is over, because those who call
        // this wait for it, or they are pinned memory that is kept.
        let status =
            unsafe { (self.gpu.functions.copy_in)(to, bytes.as_ptr().cast(), bytes.len(), self.handle) };
        self.gpu.expect("cuMemcpyHtoDAsync", status)
    }

    /// Copies from the device, and waits.
    pub(crate) fn get(&self, from: u64, bytes: &mut [u8]) -> Result<(), DeviceError> {
        if bytes.is_empty() {
            return Ok(());
        }
        #[expect(unsafe_code, reason = "a function of the driver is called")]
        // SAFETY: there is room for so many bytes, which is borrowed until the copy is over: it is waited
        // for.
        let status = unsafe {
            (self.gpu.functions.copy_out)(bytes.as_mut_ptr().cast(), from, bytes.len(), self.handle)
        };
        self.gpu.expect("cuMemcpyDtoHAsync", status)?;
        self.synchronize()
    }
}

impl Event {
    /// How long it was from another event to this one, both with times (seconds); waits for it.
    pub(crate) fn since(&self, other: &Self) -> Result<f64, DeviceError> {
        let mut milliseconds = 0.0;
        #[expect(unsafe_code, reason = "functions of the driver are called")]
        // SAFETY: both events are the driver's; the pointer is to a number that lives through the call.
        let status = unsafe {
            match (self.gpu.functions.event_synchronize)(self.handle) {
                0 => (self.gpu.functions.event_elapsed)(&raw mut milliseconds, other.handle, self.handle),
                failed => failed,
            }
        };
        self.gpu.expect("cuEventElapsedTime", status)?;
        Ok(f64::from(milliseconds) * 1e-3)
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        #[expect(unsafe_code, reason = "a function of the driver is called")]
        // SAFETY: it is the driver's and is not used again; what has been issued is still done.
        unsafe {
            (self.gpu.functions.stream_destroy)(self.handle)
        };
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        #[expect(unsafe_code, reason = "a function of the driver is called")]
        // SAFETY: it is the driver's and is not used again.
        unsafe {
            (self.gpu.functions.event_destroy)(self.handle)
        };
    }
}
