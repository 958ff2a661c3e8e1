//! A GPU by its driver: memory, streams, events, modules, graphs, as values that are given back when
//! they are dropped.
//!
//! Nothing waits unless it is said. Every call that fails is an error with the call's name and code.
//! What is safe here is safe only for memory of this process: that a kernel or a copy stays within what
//! it is given is for those who issue it, as lowering and its verifier prove of programs.

mod functions; // the functions of the driver
mod memory; // memory of the device, and of the host that it reads
mod stream; // what is issued one after another, and moments of it
mod module; // compiled kernels
mod graph; // what has been issued, to be issued again at once

use std::cell::OnceCell;
use std::ffi::{CStr, c_int, c_uint};
use std::path::PathBuf;
use std::ptr;
use std::rc::Rc;
use std::time::Duration;

use cudarc::driver::sys::{CUcontext, CUdevice, CUdevice_attribute_enum};
use libloading::os::unix::Library;

use crate::error::DeviceError;
use crate::nvrtc::Architecture;
use functions::{Functions, Status};

pub(crate) use graph::Graph;
pub(crate) use memory::{Memory, Pinned};
pub(crate) use module::{Function, Launched};
pub(crate) use stream::{Event, Priority, Stream, Timing};

/// What the driver is called in messages.
pub(crate) const DRIVER: &str = "the driver (libcuda.so.1)";

/// Its names.
const NAMES: [&str; 2] = ["libcuda.so.1", "libcuda.so"];

/// A wait of the host for a device that may wait for other processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Waiting {
    /// It has been going on for so long.
    For(Duration),
    /// It is over.
    Over,
}

/// What is done while the host waits.
type Watch = Box<dyn Fn(Waiting)>;

/// A GPU with its context.
pub(crate) struct Gpu {
    functions: Functions,
    device: CUdevice,
    context: CUcontext,
    /// What is known of it.
    pub(crate) facts: Facts,
    /// What is done while the host waits, where a device may wait for other processes.
    watch: OnceCell<Watch>,
    /// What the functions are in, kept while they are called.
    _library: Library,
}

/// What is known of a GPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facts {
    /// What the driver calls it.
    pub name: String,
    /// Its compute capability.
    pub capability: (u32, u32),
    /// Its multiprocessors.
    pub processors: u32,
    /// Its memory (bytes).
    pub memory: u64,
    /// The shared memory that a block may ask for (bytes).
    pub shared: u32,
    /// The cache that all multiprocessors share (bytes).
    pub cache: u32,
    /// The highest clock of multiprocessors and that of memory (kilohertz); zero where it is not said.
    pub clocks: [u32; 2],
    /// How many bits memory hands over at once.
    pub bus: u32,
    /// The version of CUDA that the driver is made for: 1000 times the major one and 10 times the minor.
    pub driver: i32,
    /// Where the driver was found.
    pub path: PathBuf,
}

impl Facts {
    /// What is compiled for it.
    pub fn architecture(&self) -> Option<Architecture> {
        let (major, minor) = self.capability;
        // Instructions of one generation alone have names of their own from 9.0 on.
        let own = if major >= 9 { "a" } else { "" };
        Architecture::named(&format!("sm_{major}{minor}{own}"))
    }
}

/// How many GPUs the driver in one of these folders, or where libraries are, has.
pub fn count(folders: &[PathBuf]) -> Result<usize, DeviceError> {
    let (functions, _library, _) = loaded(folders)?;
    let mut count = 0;
    #[expect(unsafe_code, reason = "a function of the driver is called")]
    // SAFETY: the driver has been initialised; the pointer is to a number that lives through the call.
    let status = unsafe { (functions.device_count)(&raw mut count) };
    checked(&functions, "cuDeviceGetCount", status)?;
    Ok(usize::try_from(count).unwrap_or(0))
}

/// What is known of the GPU of that number by the driver in one of these folders, or where libraries are.
pub fn known(folders: &[PathBuf], number: usize) -> Result<Facts, DeviceError> {
    let (functions, _library, path) = loaded(folders)?;
    facts(&functions, device_of(&functions, number)?, path)
}

/// The device of that number.
fn device_of(functions: &Functions, number: usize) -> Result<CUdevice, DeviceError> {
    let ordinal = c_int::try_from(number).unwrap_or(c_int::MAX);
    let mut device = 0;
    #[expect(unsafe_code, reason = "a function of the driver is called")]
    // SAFETY: the driver has been initialised; the pointer is to a number that lives through the call.
    let status = unsafe { (functions.device_get)(&raw mut device, ordinal) };
    checked(functions, "cuDeviceGet", status)?;
    Ok(device)
}

/// The driver, initialised, and where it was found.
fn loaded(folders: &[PathBuf]) -> Result<(Functions, Library, PathBuf), DeviceError> {
    let (functions, library, path) = Functions::load(DRIVER, &NAMES, folders)?;
    #[expect(unsafe_code, reason = "a function of the driver is called")]
    // SAFETY: this is the first call, with the flags that the driver wants: none.
    let status = unsafe { (functions.init)(0) };
    checked(&functions, "cuInit", status)?;
    Ok((functions, library, path))
}

/// An error if a call has failed.
fn checked(functions: &Functions, call: &'static str, status: Status) -> Result<(), DeviceError> {
    if status == 0 {
        return Ok(());
    }
    let mut text = ptr::null();
    #[expect(unsafe_code, reason = "a function of the driver is called")]
    // SAFETY: the pointer is to one that lives through the call; a text that is returned lives as long
    // as the library.
    let said = unsafe {
        let found = (functions.error_string)(status, &raw mut text);
        let there = found == 0 && !text.is_null();
        there.then(|| CStr::from_ptr(text).to_string_lossy().into_owned())
    };
    Err(DeviceError::Call { call, code: status, said: said.unwrap_or_default() })
}

impl Gpu {
    /// The GPU of that number, with its primary context, by the driver in one of these folders, or where
    /// libraries are.
    pub(crate) fn open(folders: &[PathBuf], number: usize) -> Result<Rc<Self>, DeviceError> {
        let (functions, library, path) = loaded(folders)?;
        let device = device_of(&functions, number)?;
        let facts = facts(&functions, device, path)?;
        let mut context = ptr::null_mut();
        #[expect(unsafe_code, reason = "functions of the driver are called")]
        // SAFETY: the device is one of the driver's; the context is that which the first call returns.
        let status = unsafe {
            match (functions.context_retain)(&raw mut context, device) {
                0 => (functions.context_set)(context),
                failed => failed,
            }
        };
        checked(&functions, "cuDevicePrimaryCtxRetain", status)?;
        Ok(Rc::new(Self { functions, device, context, facts, watch: OnceCell::new(), _library: library }))
    }

    /// From now on the host looks at something while it waits for streams.
    pub(crate) fn watch(&self, watch: Watch) {
        // There is one transport: nobody has said this before.
        let _ = self.watch.set(watch);
    }

    /// What tells this GPU from all others.
    pub(crate) fn identity(&self) -> Result<[u8; 16], DeviceError> {
        let mut uuid = [0; 16];
        #[expect(unsafe_code, reason = "a function of the driver is called")]
        // SAFETY: the pointer is to as many bytes as the driver writes.
        let status = unsafe { (self.functions.device_uuid)(&raw mut uuid, self.device) };
        self.expect("cuDeviceGetUuid", status)?;
        Ok(uuid)
    }

    /// Waits for everything that has been issued.
    pub(crate) fn synchronize(&self) -> Result<(), DeviceError> {
        #[expect(unsafe_code, reason = "a function of the driver is called")]
        // SAFETY: the context is this thread's.
        let status = unsafe { (self.functions.context_synchronize)() };
        self.expect("cuCtxSynchronize", status)
    }

    /// The memory that is free (bytes).
    pub(crate) fn free_memory(&self) -> Result<u64, DeviceError> {
        let (mut free, mut all) = (0, 0);
        #[expect(unsafe_code, reason = "a function of the driver is called")]
        // SAFETY: both pointers are to numbers that live through the call.
        let status = unsafe { (self.functions.memory_free_bytes)(&raw mut free, &raw mut all) };
        self.expect("cuMemGetInfo", status)?;
        Ok(u64::try_from(free).unwrap_or(u64::MAX))
    }

    /// An error if a call has failed.
    fn expect(&self, call: &'static str, status: Status) -> Result<(), DeviceError> {
        checked(&self.functions, call, status)
    }
}

impl Drop for Gpu {
    fn drop(&mut self) {
        if self.context.is_null() {
            return;
        }
        #[expect(unsafe_code, reason = "a function of the driver is called")]
        // SAFETY: everything of the context keeps this value, so that nothing of it is left.
        unsafe {
            (self.functions.context_release)(self.device)
        };
    }
}

/// What is known of a device.
fn facts(functions: &Functions, device: CUdevice, path: PathBuf) -> Result<Facts, DeviceError> {
    let attribute = |which: CUdevice_attribute_enum| -> Result<u32, DeviceError> {
        let mut value = 0;
        #[expect(unsafe_code, reason = "a function of the driver is called")]
        // SAFETY: the device is one of the driver's, the pointer to a number that lives through the call.
        let status = unsafe { (functions.device_attribute)(&raw mut value, which as c_uint, device) };
        checked(functions, "cuDeviceGetAttribute", status)?;
        Ok(u32::try_from(value).unwrap_or(0))
    };
    let mut name = [0_u8; 256];
    let (mut memory, mut version) = (0, 0);
    #[expect(unsafe_code, reason = "functions of the driver are called")]
    // SAFETY: the name has the room that is said, and ends in zero; the other pointers are to numbers
    // that live through the calls.
    let statuses = unsafe {
        [
            ("cuDeviceGetName", (functions.device_name)(name.as_mut_ptr().cast(), 255, device)),
            ("cuDeviceTotalMem", (functions.device_memory)(&raw mut memory, device)),
            ("cuDriverGetVersion", (functions.driver_version)(&raw mut version)),
        ]
    };
    for (call, status) in statuses {
        checked(functions, call, status)?;
    }
    let name = CStr::from_bytes_until_nul(&name).unwrap_or_default();
    use CUdevice_attribute_enum as Attribute;
    Ok(Facts {
        name: name.to_string_lossy().into_owned(),
        capability: (
            attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?,
            attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?,
        ),
        processors: attribute(Attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?,
        memory: u64::try_from(memory).unwrap_or(u64::MAX),
        shared: attribute(Attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN)?,
        cache: attribute(Attribute::CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE)?,
        clocks: [
            attribute(Attribute::CU_DEVICE_ATTRIBUTE_CLOCK_RATE)?,
            attribute(Attribute::CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE)?,
        ],
        bus: attribute(Attribute::CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH)?,
        driver: version,
        path,
    })
}
