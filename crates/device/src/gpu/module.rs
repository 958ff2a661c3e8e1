//! Compiled kernels on a GPU, and their launches.

use std::ffi::{CString, c_int, c_uint, c_void};
use std::ptr;
use std::rc::Rc;

use cudarc::driver::sys::{CUfunction, CUfunction_attribute_enum, CUmodule};

use super::{Gpu, Stream};
use crate::error::DeviceError;

/// The shared memory that a block may have without asking (bytes).
const SHARED: u32 = 48 << 10;

/// A compiled program.
pub(crate) struct Module {
    gpu: Rc<Gpu>,
    handle: CUmodule,
}

/// A kernel of a compiled program.
#[derive(Clone)]
pub(crate) struct Function {
    handle: CUfunction,
    /// What it is of, kept while it is launched.
    _module: Rc<Module>,
}

/// How a kernel is launched: a row of blocks, each a row of threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Launched {
    /// How many blocks there are.
    pub(crate) blocks: u32,
    /// How many threads a block has.
    pub(crate) threads: u32,
    /// The shared memory of a block (bytes).
    pub(crate) shared: u32,
}

impl Gpu {
    /// A program that has been compiled for this GPU.
    pub(crate) fn module(self: &Rc<Self>, image: &[u8]) -> Result<Rc<Module>, DeviceError> {
        // Of images that are texts the driver reads to the first zero.
        let mut ended = image.to_vec();
        ended.push(0);
        let mut handle = ptr::null_mut();
        #[expect(unsafe_code, reason = "a function of the driver is called")]
        // SAFETY: the image lives through the call, which copies it; the pointer is to one that does.
        let status = unsafe { (self.functions.module_load)(&raw mut handle, ended.as_ptr().cast()) };
        self.expect("cuModuleLoadData", status)?;
        Ok(Rc::new(Module { gpu: Rc::clone(self), handle }))
    }
}

impl Module {
    /// A kernel by its name, which may be launched with so much shared memory (bytes).
    pub(crate) fn function(self: &Rc<Self>, name: &str, shared: u32) -> Result<Function, DeviceError> {
        let gpu = &self.gpu;
        let named = CString::new(name)
            .map_err(|_| DeviceError::Program(format!("`{name}` is no name of a kernel")))?;
        let mut handle = ptr::null_mut();
        #[expect(unsafe_code, reason = "a function of the driver is called")]
        // SAFETY: the module has not been given back; the name ends in zero; the pointer is to one that
        // lives through the call.
        let status = unsafe { (gpu.functions.module_function)(&raw mut handle, self.handle, named.as_ptr()) };
        gpu.expect("cuModuleGetFunction", status)?;
        if shared > SHARED {
            let which = CUfunction_attribute_enum::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
            let bytes = c_int::try_from(shared).unwrap_or(c_int::MAX);
            #[expect(unsafe_code, reason = "a function of the driver is called")]
            // SAFETY: the function is one of the module.
            let status = unsafe { (gpu.functions.function_attribute)(handle, which as c_uint, bytes) };
            gpu.expect("cuFuncSetAttribute", status)?;
        }
        Ok(Function { handle, _module: Rc::clone(self) })
    }
}

impl Stream {
    /// Launches a kernel with its arguments, each 64 bits, as many as it has.
    pub(crate) fn launch(
        &self,
        function: &Function,
        how: Launched,
        arguments: &mut [u64],
        pointers: &mut Vec<*mut c_void>,
    ) -> Result<(), DeviceError> {
        pointers.clear();
        pointers.extend(arguments.iter_mut().map(|it| ptr::from_mut(it).cast::<c_void>()));
        let Launched { blocks, threads, shared } = how;
        #[expect(unsafe_code, reason = "a function of the driver is called")]
        // SAFETY: the function's module is kept; there is a pointer for each of its arguments, which
        // generated kernels have as they are launched; the driver copies them before it returns.
        let status = unsafe {
            (self.gpu.functions.launch)(
                function.handle,
                blocks,
                1,
                1,
                threads,
                1,
                1,
                shared,
                self.handle,
                pointers.as_mut_ptr(),
                ptr::null_mut(),
            )
        };
        self.gpu.expect("cuLaunchKernel", status)
    }
}

impl Drop for Module {
    fn drop(&mut self) {
        #[expect(unsafe_code, reason = "a function of the driver is called")]
        // SAFETY: it is the driver's, and its functions, which keep it, are gone.
        unsafe {
            (self.gpu.functions.module_unload)(self.handle)
        };
    }
}
