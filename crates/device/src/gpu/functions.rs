//! The functions of the driver that are called, taken from its library by name.
//!
//! Types and constants are those of the bindings of `cudarc`; statuses are numbers, because a library
//! may return some that the bindings do not know. Source: CUDA's driver API reference.

use std::ffi::{c_char, c_int, c_uchar, c_uint, c_ulonglong, c_void};

use cudarc::driver::sys::{
    CUcontext, CUdevice, CUdeviceptr, CUevent, CUfunction, CUgraph, CUgraphExec, CUmodule, CUstream,
};
use libloading::os::unix::Library;

/// What functions return: 0 if they succeed.
pub(super) type Status = c_int;

/// The functions of the driver that are called.
pub(super) struct Functions {
    /// `cuInit`.
    pub(super) init: unsafe extern "C" fn(c_uint) -> Status,
    /// `cuDriverGetVersion`.
    pub(super) driver_version: unsafe extern "C" fn(*mut c_int) -> Status,
    /// `cuDeviceGetCount`.
    pub(super) device_count: unsafe extern "C" fn(*mut c_int) -> Status,
    /// `cuDeviceGet`.
    pub(super) device_get: unsafe extern "C" fn(*mut CUdevice, c_int) -> Status,
    /// `cuDeviceGetName`.
    pub(super) device_name: unsafe extern "C" fn(*mut c_char, c_int, CUdevice) -> Status,
    /// `cuDeviceGetAttribute`.
    pub(super) device_attribute: unsafe extern "C" fn(*mut c_int, c_uint, CUdevice) -> Status,
    /// `cuDeviceTotalMem_v2`.
    pub(super) device_memory: unsafe extern "C" fn(*mut usize, CUdevice) -> Status,
    /// `cuDevicePrimaryCtxRetain`.
    pub(super) context_retain: unsafe extern "C" fn(*mut CUcontext, CUdevice) -> Status,
    /// `cuDevicePrimaryCtxRelease_v2`.
    pub(super) context_release: unsafe extern "C" fn(CUdevice) -> Status,
    /// `cuCtxSetCurrent`.
    pub(super) context_set: unsafe extern "C" fn(CUcontext) -> Status,
    /// `cuCtxSynchronize`.
    pub(super) context_synchronize: unsafe extern "C" fn() -> Status,
    /// `cuCtxGetStreamPriorityRange`.
    pub(super) context_priorities: unsafe extern "C" fn(*mut c_int, *mut c_int) -> Status,
    /// `cuMemGetInfo_v2`.
    pub(super) memory_free_bytes: unsafe extern "C" fn(*mut usize, *mut usize) -> Status,
    /// `cuMemAlloc_v2`.
    pub(super) memory_allocate: unsafe extern "C" fn(*mut CUdeviceptr, usize) -> Status,
    /// `cuMemFree_v2`.
    pub(super) memory_free: unsafe extern "C" fn(CUdeviceptr) -> Status,
    /// `cuMemHostAlloc`.
    pub(super) host_allocate: unsafe extern "C" fn(*mut *mut c_void, usize, c_uint) -> Status,
    /// `cuMemFreeHost`.
    pub(super) host_free: unsafe extern "C" fn(*mut c_void) -> Status,
    /// `cuMemcpyHtoDAsync_v2`.
    pub(super) copy_in: unsafe extern "C" fn(CUdeviceptr, *const c_void, usize, CUstream) -> Status,
    /// `cuMemcpyDtoHAsync_v2`.
    pub(super) copy_out: unsafe extern "C" fn(*mut c_void, CUdeviceptr, usize, CUstream) -> Status,
    /// `cuMemcpyDtoDAsync_v2`.
    pub(super) copy: unsafe extern "C" fn(CUdeviceptr, CUdeviceptr, usize, CUstream) -> Status,
    /// `cuMemsetD8Async`.
    pub(super) fill: unsafe extern "C" fn(CUdeviceptr, c_uchar, usize, CUstream) -> Status,
    /// `cuStreamCreateWithPriority`.
    pub(super) stream_create: unsafe extern "C" fn(*mut CUstream, c_uint, c_int) -> Status,
    /// `cuStreamDestroy_v2`.
    pub(super) stream_destroy: unsafe extern "C" fn(CUstream) -> Status,
    /// `cuStreamSynchronize`.
    pub(super) stream_synchronize: unsafe extern "C" fn(CUstream) -> Status,
    /// `cuStreamWaitEvent`.
    pub(super) stream_wait: unsafe extern "C" fn(CUstream, CUevent, c_uint) -> Status,
    /// `cuEventCreate`.
    pub(super) event_create: unsafe extern "C" fn(*mut CUevent, c_uint) -> Status,
    /// `cuEventDestroy_v2`.
    pub(super) event_destroy: unsafe extern "C" fn(CUevent) -> Status,
    /// `cuEventRecord`.
    pub(super) event_record: unsafe extern "C" fn(CUevent, CUstream) -> Status,
    /// `cuEventSynchronize`.
    pub(super) event_synchronize: unsafe extern "C" fn(CUevent) -> Status,
    /// `cuEventElapsedTime`.
    pub(super) event_elapsed: unsafe extern "C" fn(*mut f32, CUevent, CUevent) -> Status,
    /// `cuModuleLoadData`.
    pub(super) module_load: unsafe extern "C" fn(*mut CUmodule, *const c_void) -> Status,
    /// `cuModuleUnload`.
    pub(super) module_unload: unsafe extern "C" fn(CUmodule) -> Status,
    /// `cuModuleGetFunction`.
    pub(super) module_function: unsafe extern "C" fn(*mut CUfunction, CUmodule, *const c_char) -> Status,
    /// `cuFuncSetAttribute`.
    pub(super) function_attribute: unsafe extern "C" fn(CUfunction, c_uint, c_int) -> Status,
    /// `cuLaunchKernel`.
    pub(super) launch: unsafe extern "C" fn(
        CUfunction,
        c_uint,
        c_uint,
        c_uint,
        c_uint,
        c_uint,
        c_uint,
        c_uint,
        CUstream,
        *mut *mut c_void,
        *mut *mut c_void,
    ) -> Status,
    /// `cuStreamBeginCapture_v2`.
    pub(super) capture_begin: unsafe extern "C" fn(CUstream, c_uint) -> Status,
    /// `cuStreamEndCapture`.
    pub(super) capture_end: unsafe extern "C" fn(CUstream, *mut CUgraph) -> Status,
    /// `cuGraphInstantiateWithFlags`.
    pub(super) graph_instantiate: unsafe extern "C" fn(*mut CUgraphExec, CUgraph, c_ulonglong) -> Status,
    /// `cuGraphLaunch`.
    pub(super) graph_launch: unsafe extern "C" fn(CUgraphExec, CUstream) -> Status,
    /// `cuGraphExecDestroy`.
    pub(super) graph_executable_destroy: unsafe extern "C" fn(CUgraphExec) -> Status,
    /// `cuGraphDestroy`.
    pub(super) graph_destroy: unsafe extern "C" fn(CUgraph) -> Status,
    /// `cuGetErrorString`.
    pub(super) error_string: unsafe extern "C" fn(Status, *mut *const c_char) -> Status,
}

impl Functions {
    /// Those of a library that is the driver.
    pub(super) fn of(library: &Library) -> Result<Self, libloading::Error> {
        #[expect(unsafe_code, reason = "functions of a C library are taken by name")]
        // SAFETY: the types are those that the driver's header declares; the functions are called only
        // while the library is loaded, since `Driver` has both.
        unsafe {
            Ok(Self {
                init: *library.get(b"cuInit\0")?,
                driver_version: *library.get(b"cuDriverGetVersion\0")?,
                device_count: *library.get(b"cuDeviceGetCount\0")?,
                device_get: *library.get(b"cuDeviceGet\0")?,
                device_name: *library.get(b"cuDeviceGetName\0")?,
                device_attribute: *library.get(b"cuDeviceGetAttribute\0")?,
                device_memory: *library.get(b"cuDeviceTotalMem_v2\0")?,
                context_retain: *library.get(b"cuDevicePrimaryCtxRetain\0")?,
                context_release: *library.get(b"cuDevicePrimaryCtxRelease_v2\0")?,
                context_set: *library.get(b"cuCtxSetCurrent\0")?,
                context_synchronize: *library.get(b"cuCtxSynchronize\0")?,
                context_priorities: *library.get(b"cuCtxGetStreamPriorityRange\0")?,
                memory_free_bytes: *library.get(b"cuMemGetInfo_v2\0")?,
                memory_allocate: *library.get(b"cuMemAlloc_v2\0")?,
                memory_free: *library.get(b"cuMemFree_v2\0")?,
                host_allocate: *library.get(b"cuMemHostAlloc\0")?,
                host_free: *library.get(b"cuMemFreeHost\0")?,
                copy_in: *library.get(b"cuMemcpyHtoDAsync_v2\0")?,
                copy_out: *library.get(b"cuMemcpyDtoHAsync_v2\0")?,
                copy: *library.get(b"cuMemcpyDtoDAsync_v2\0")?,
                fill: *library.get(b"cuMemsetD8Async\0")?,
                stream_create: *library.get(b"cuStreamCreateWithPriority\0")?,
                stream_destroy: *library.get(b"cuStreamDestroy_v2\0")?,
                stream_synchronize: *library.get(b"cuStreamSynchronize\0")?,
                stream_wait: *library.get(b"cuStreamWaitEvent\0")?,
                event_create: *library.get(b"cuEventCreate\0")?,
                event_destroy: *library.get(b"cuEventDestroy_v2\0")?,
                event_record: *library.get(b"cuEventRecord\0")?,
                event_synchronize: *library.get(b"cuEventSynchronize\0")?,
                event_elapsed: *library.get(b"cuEventElapsedTime\0")?,
                module_load: *library.get(b"cuModuleLoadData\0")?,
                module_unload: *library.get(b"cuModuleUnload\0")?,
                module_function: *library.get(b"cuModuleGetFunction\0")?,
                function_attribute: *library.get(b"cuFuncSetAttribute\0")?,
                launch: *library.get(b"cuLaunchKernel\0")?,
                capture_begin: *library.get(b"cuStreamBeginCapture_v2\0")?,
                capture_end: *library.get(b"cuStreamEndCapture\0")?,
                graph_instantiate: *library.get(b"cuGraphInstantiateWithFlags\0")?,
                graph_launch: *library.get(b"cuGraphLaunch\0")?,
                graph_executable_destroy: *library.get(b"cuGraphExecDestroy\0")?,
                graph_destroy: *library.get(b"cuGraphDestroy\0")?,
                error_string: *library.get(b"cuGetErrorString\0")?,
            })
        }
    }
}
