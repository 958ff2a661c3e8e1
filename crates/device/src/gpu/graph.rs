//! What has been issued, captured so that it is issued again at once.

use std::ffi::c_uint;
use std::ptr;
use std::rc::Rc;

use cudarc::driver::sys::{CUgraphExec, CUstreamCaptureMode_enum};

use super::{Gpu, Stream};
use crate::error::DeviceError;

/// Everything that was issued while it was captured, ready to be issued again.
pub(crate) struct Graph {
    gpu: Rc<Gpu>,
    handle: CUgraphExec,
}

impl Stream {
    /// Begins to capture what is issued on this stream, and on those that wait for what is.
    pub(crate) fn begin_capture(&self) -> Result<(), DeviceError> {
        let mode = CUstreamCaptureMode_enum::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL as c_uint;
        #[expect(unsafe_code, reason = "a function of the driver is called")]
        // SAFETY: the stream is the driver's and has not been given back.
        let status = unsafe { (self.gpu.functions.capture_begin)(self.handle, mode) };
        self.gpu.expect("cuStreamBeginCapture", status)
    }

    /// Ends it; this stream has to wait for all others that take part.
    pub(crate) fn end_capture(&self) -> Result<Graph, DeviceError> {
        let gpu = &self.gpu;
        let mut graph = ptr::null_mut();
        #[expect(unsafe_code, reason = "a function of the driver is called")]
        // SAFETY: the stream is the driver's; the pointer is to one that lives through the call.
        let status = unsafe { (gpu.functions.capture_end)(self.handle, &raw mut graph) };
        gpu.expect("cuStreamEndCapture", status)?;
        let mut handle = ptr::null_mut();
        #[expect(unsafe_code, reason = "functions of the driver are called")]
        // SAFETY: the graph is the one that has been captured; it is given back once what is launched has
        // been made of it.
        let status = unsafe {
            let made = (gpu.functions.graph_instantiate)(&raw mut handle, graph, 0);
            let given_back = (gpu.functions.graph_destroy)(graph);
            if made == 0 { given_back } else { made }
        };
        gpu.expect("cuGraphInstantiate", status)?;
        Ok(Graph { gpu: Rc::clone(gpu), handle })
    }

    /// Issues a graph.
    pub(crate) fn replay(&self, graph: &Graph) -> Result<(), DeviceError> {
        #[expect(unsafe_code, reason = "a function of the driver is called")]
        // SAFETY: both are the driver's and have not been given back.
        let status = unsafe { (self.gpu.functions.graph_launch)(graph.handle, self.handle) };
        self.gpu.expect("cuGraphLaunch", status)
    }
}

impl Drop for Graph {
    fn drop(&mut self) {
        #[expect(unsafe_code, reason = "a function of the driver is called")]
        // SAFETY: it is the driver's and is not used again.
        unsafe {
            (self.gpu.functions.graph_executable_destroy)(self.handle)
        };
    }
}
