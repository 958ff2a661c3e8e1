//! The functions of the driver that are called, taken from its library by name.
//!
//! Types and constants are those of the bindings of `cudarc`; statuses are numbers, because a library
//! may return some that the bindings do not know. Source: CUDA's driver API reference.

use std::ffi::{c_char, c_int, c_uchar, c_uint, c_ulonglong, c_void};

use cudarc::driver::sys::{
    CUcontext, CUdevice, CUdeviceptr, CUevent, CUfunction, CUgraph, CUgraphExec, CUmodule, CUstream,
};

use crate::library::functions;

/// What functions return: 0 if they succeed.
pub(super) type Status = c_int;

/// What tells a device from all others.
pub(super) type Uuid = [u8; 16];

functions! {
    /// The functions of the driver that are called.
    pub(super) struct Functions {
        pub(super) init = cuInit(c_uint) -> Status;
        pub(super) driver_version = cuDriverGetVersion(*mut c_int) -> Status;
        pub(super) device_count = cuDeviceGetCount(*mut c_int) -> Status;
        pub(super) device_get = cuDeviceGet(*mut CUdevice, c_int) -> Status;
        pub(super) device_name = cuDeviceGetName(*mut c_char, c_int, CUdevice) -> Status;
        pub(super) device_uuid = cuDeviceGetUuid_v2(*mut Uuid, CUdevice) -> Status;
        pub(super) device_attribute = cuDeviceGetAttribute(*mut c_int, c_uint, CUdevice) -> Status;
        pub(super) device_memory = cuDeviceTotalMem_v2(*mut usize, CUdevice) -> Status;
        pub(super) context_retain = cuDevicePrimaryCtxRetain(*mut CUcontext, CUdevice) -> Status;
        pub(super) context_release = cuDevicePrimaryCtxRelease_v2(CUdevice) -> Status;
        pub(super) context_set = cuCtxSetCurrent(CUcontext) -> Status;
        pub(super) context_synchronize = cuCtxSynchronize() -> Status;
        pub(super) context_priorities = cuCtxGetStreamPriorityRange(*mut c_int, *mut c_int) -> Status;
        pub(super) memory_free_bytes = cuMemGetInfo_v2(*mut usize, *mut usize) -> Status;
        pub(super) memory_allocate = cuMemAlloc_v2(*mut CUdeviceptr, usize) -> Status;
        pub(super) memory_free = cuMemFree_v2(CUdeviceptr) -> Status;
        pub(super) host_allocate = cuMemHostAlloc(*mut *mut c_void, usize, c_uint) -> Status;
        pub(super) host_free = cuMemFreeHost(*mut c_void) -> Status;
        pub(super) copy_in = cuMemcpyHtoDAsync_v2(CUdeviceptr, *const c_void, usize, CUstream) -> Status;
        pub(super) copy_out = cuMemcpyDtoHAsync_v2(*mut c_void, CUdeviceptr, usize, CUstream) -> Status;
        pub(super) copy = cuMemcpyDtoDAsync_v2(CUdeviceptr, CUdeviceptr, usize, CUstream) -> Status;
        pub(super) fill = cuMemsetD8Async(CUdeviceptr, c_uchar, usize, CUstream) -> Status;
        pub(super) stream_create = cuStreamCreateWithPriority(*mut CUstream, c_uint, c_int) -> Status;
        pub(super) stream_destroy = cuStreamDestroy_v2(CUstream) -> Status;
        pub(super) stream_synchronize = cuStreamSynchronize(CUstream) -> Status;
        pub(super) stream_query = cuStreamQuery(CUstream) -> Status;
        pub(super) stream_wait = cuStreamWaitEvent(CUstream, CUevent, c_uint) -> Status;
        pub(super) event_create = cuEventCreate(*mut CUevent, c_uint) -> Status;
        pub(super) event_destroy = cuEventDestroy_v2(CUevent) -> Status;
        pub(super) event_record = cuEventRecord(CUevent, CUstream) -> Status;
        pub(super) event_synchronize = cuEventSynchronize(CUevent) -> Status;
        pub(super) event_elapsed = cuEventElapsedTime(*mut f32, CUevent, CUevent) -> Status;
        pub(super) module_load = cuModuleLoadData(*mut CUmodule, *const c_void) -> Status;
        pub(super) module_unload = cuModuleUnload(CUmodule) -> Status;
        pub(super) module_function = cuModuleGetFunction(*mut CUfunction, CUmodule, *const c_char) -> Status;
        pub(super) function_attribute = cuFuncSetAttribute(CUfunction, c_uint, c_int) -> Status;
        pub(super) launch = cuLaunchKernel(
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
        ) -> Status;
        pub(super) capture_begin = cuStreamBeginCapture_v2(CUstream, c_uint) -> Status;
        pub(super) capture_end = cuStreamEndCapture(CUstream, *mut CUgraph) -> Status;
        pub(super) graph_instantiate = cuGraphInstantiateWithFlags(
            *mut CUgraphExec,
            CUgraph,
            c_ulonglong,
        ) -> Status;
        pub(super) graph_launch = cuGraphLaunch(CUgraphExec, CUstream) -> Status;
        pub(super) graph_executable_destroy = cuGraphExecDestroy(CUgraphExec) -> Status;
        pub(super) graph_destroy = cuGraphDestroy(CUgraph) -> Status;
        pub(super) error_string = cuGetErrorString(Status, *mut *const c_char) -> Status;
    }
}
