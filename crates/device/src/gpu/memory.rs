//! Memory of the device, and of the host that it reads and writes by itself.

use std::ffi::c_void;
use std::ptr;
use std::rc::Rc;

use super::Gpu;
use crate::error::DeviceError;

/// A piece of the device's memory.
pub(crate) struct Memory {
    gpu: Rc<Gpu>,
    /// Where it starts.
    pub(crate) start: u64,
    /// How large it is (bytes).
    pub(crate) bytes: u64,
}

/// Memory of the host that stays where it is, so that the device copies from it and to it while the
/// host goes on.
pub(crate) struct Pinned {
    gpu: Rc<Gpu>,
    start: *mut c_void,
    bytes: usize,
}

impl Gpu {
    /// So much memory of the device (bytes), which may be none.
    pub(crate) fn memory(self: &Rc<Self>, bytes: u64) -> Result<Memory, DeviceError> {
        let mut start = 0;
        if bytes > 0 {
            let size = usize::try_from(bytes).unwrap_or(usize::MAX);
            #[expect(unsafe_code, reason = "a function of the driver is called")]
            // SAFETY: the pointer is to a number that lives through the call.
            let status = unsafe { (self.functions.memory_allocate)(&raw mut start, size) };
            self.expect("cuMemAlloc", status)?;
        }
        Ok(Memory { gpu: Rc::clone(self), start, bytes })
    }

    /// So much memory of the host (bytes), which may be none; zeros at first.
    pub(crate) fn pinned(self: &Rc<Self>, bytes: usize) -> Result<Pinned, DeviceError> {
        let mut start = ptr::null_mut();
        if bytes > 0 {
            #[expect(unsafe_code, reason = "a function of the driver is called")]
            // SAFETY: the pointer is to one that lives through the call.
            let status = unsafe { (self.functions.host_allocate)(&raw mut start, bytes, 0) };
            self.expect("cuMemHostAlloc", status)?;
            #[expect(unsafe_code, reason = "memory of the driver is written")]
            // SAFETY: so many bytes have been allocated there.
            unsafe {
                ptr::write_bytes(start.cast::<u8>(), 0, bytes);
            };
        }
        Ok(Pinned { gpu: Rc::clone(self), start, bytes })
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        if self.bytes == 0 {
            return;
        }
        #[expect(unsafe_code, reason = "a function of the driver is called")]
        // SAFETY: it has been allocated and is not used again; the driver waits for what uses it.
        unsafe {
            (self.gpu.functions.memory_free)(self.start)
        };
    }
}

impl Pinned {
    /// Its bytes.
    ///
    /// What has been issued to write there must be over.
    pub(crate) fn bytes(&self) -> &[u8] {
        if self.bytes == 0 {
            return &[];
        }
        #[expect(unsafe_code, reason = "memory of the driver is read")]
        // SAFETY: so many bytes have been allocated there, and written; they live as long as this value.
        unsafe {
            std::slice::from_raw_parts(self.start.cast::<u8>(), self.bytes)
        }
    }

    /// Its bytes, to be written.
    ///
    /// What has been issued to read or write there must be over.
    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        if self.bytes == 0 {
            return &mut [];
        }
        #[expect(unsafe_code, reason = "memory of the driver is written")]
        // SAFETY: so many bytes have been allocated there, and written; nobody else of this process has
        // them while this value is borrowed.
        unsafe {
            std::slice::from_raw_parts_mut(self.start.cast::<u8>(), self.bytes)
        }
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        if self.bytes == 0 {
            return;
        }
        #[expect(unsafe_code, reason = "a function of the driver is called")]
        // SAFETY: it has been allocated and is not used again.
        unsafe {
            (self.gpu.functions.host_free)(self.start)
        };
    }
}
