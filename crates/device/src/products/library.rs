//! The functions of cuBLASLt that are called.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::path::PathBuf;
use std::ptr;
use std::rc::Rc;

use cudarc::cublaslt::sys::{
    cublasComputeType_t, cublasLtHandle_t, cublasLtMatmulAlgo_t, cublasLtMatmulDesc_t,
    cublasLtMatmulDescAttributes_t, cublasLtMatmulPreference_t, cublasLtMatmulPreferenceAttributes_t,
    cublasLtMatrixLayout_t, cublasLtMatrixLayoutAttribute_t, cublasStatus_t, cudaDataType_t,
};
use libloading::os::unix::Library as Loaded;

use crate::error::DeviceError;
use crate::gpu::Gpu;
use crate::library::functions;

/// What the library is called in messages.
pub(crate) const WHAT: &str = "cuBLASLt, which computes matrix products (libcublasLt.so)";

/// Its names.
const NAMES: [&str; 3] = ["libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so"];

/// What functions return: 0 if they succeed.
type Status = c_int;

functions! {
    /// The functions of the library that are called.
    pub(super) struct Functions {
        create = cublasLtCreate(*mut cublasLtHandle_t) -> Status;
        destroy = cublasLtDestroy(cublasLtHandle_t) -> Status;
        version = cublasLtGetVersion() -> usize;
        status = cublasLtGetStatusString(Status) -> *const c_char;
        operation_create = cublasLtMatmulDescCreate(*mut cublasLtMatmulDesc_t, c_int, c_int) -> Status;
        operation_destroy = cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t) -> Status;
        operation_set = cublasLtMatmulDescSetAttribute(
            cublasLtMatmulDesc_t,
            c_int,
            *const c_void,
            usize,
        ) -> Status;
        layout_create = cublasLtMatrixLayoutCreate(
            *mut cublasLtMatrixLayout_t,
            c_int,
            u64,
            u64,
            i64,
        ) -> Status;
        layout_destroy = cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t) -> Status;
        layout_set = cublasLtMatrixLayoutSetAttribute(
            cublasLtMatrixLayout_t,
            c_int,
            *const c_void,
            usize,
        ) -> Status;
        wish_create = cublasLtMatmulPreferenceCreate(*mut cublasLtMatmulPreference_t) -> Status;
        wish_destroy = cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t) -> Status;
        wish_set = cublasLtMatmulPreferenceSetAttribute(
            cublasLtMatmulPreference_t,
            c_int,
            *const c_void,
            usize,
        ) -> Status;
        offered = cublasLtMatmulAlgoGetHeuristic(
            cublasLtHandle_t,
            cublasLtMatmulDesc_t,
            cublasLtMatrixLayout_t,
            cublasLtMatrixLayout_t,
            cublasLtMatrixLayout_t,
            cublasLtMatrixLayout_t,
            cublasLtMatmulPreference_t,
            c_int,
            *mut Offer,
            *mut c_int,
        ) -> Status;
        pub(super) compute = cublasLtMatmul(
            cublasLtHandle_t,
            cublasLtMatmulDesc_t,
            *const c_void,
            *const c_void,
            cublasLtMatrixLayout_t,
            *const c_void,
            cublasLtMatrixLayout_t,
            *const c_void,
            *const c_void,
            cublasLtMatrixLayout_t,
            *mut c_void,
            cublasLtMatrixLayout_t,
            *const cublasLtMatmulAlgo_t,
            *mut c_void,
            usize,
            *mut c_void,
        ) -> Status;
    }
}

/// An offer as the library writes it: `cublasLtMatmulHeuristicResult_t` with its state as a number.
#[repr(C)]
#[derive(Clone, Copy)]
struct Offer {
    algorithm: cublasLtMatmulAlgo_t,
    _workspace: usize,
    state: c_int,
    _waves: f32,
    _reserved: [c_int; 4],
}

/// The library.
pub(crate) struct Library {
    pub(super) functions: Functions,
    pub(super) handle: cublasLtHandle_t,
    /// Its version: 10000 times the major one, 100 times the minor one, and the patch.
    pub(super) version: usize,
    /// Whose context it has been made in.
    _gpu: Rc<Gpu>,
    _library: Loaded,
}

/// What an algorithm is wished to be.
pub(super) struct Wished<'a> {
    library: &'a Library,
    handle: cublasLtMatmulPreference_t,
}

impl Library {
    /// The library in one of these folders, or where libraries are.
    pub(super) fn load(gpu: &Rc<Gpu>, folders: &[PathBuf]) -> Result<Self, DeviceError> {
        let (functions, library, _) = Functions::load(WHAT, &NAMES, folders)?;
        let mut handle = ptr::null_mut();
        #[expect(unsafe_code, reason = "functions of the library are called")]
        // SAFETY: the pointer is to one that lives through the call; a context is current.
        let (status, version) = unsafe { ((functions.create)(&raw mut handle), (functions.version)()) };
        let made = Self { functions, handle, version, _gpu: Rc::clone(gpu), _library: library };
        made.expect("cublasLtCreate", status)?;
        Ok(made)
    }

    /// An error if a call has failed.
    pub(super) fn expect(&self, call: &'static str, status: Status) -> Result<(), DeviceError> {
        if status == 0 {
            return Ok(());
        }
        #[expect(unsafe_code, reason = "a function of the library is called")]
        // SAFETY: the function takes any number, and returns a text that lives as long as the library.
        let said = unsafe {
            let text = (self.functions.status)(status);
            (!text.is_null()).then(|| CStr::from_ptr(text).to_string_lossy().into_owned())
        };
        Err(DeviceError::Call { call, code: status, said: said.unwrap_or_default() })
    }

    pub(super) fn operation(
        &self,
        compute: cublasComputeType_t,
        scale: cudaDataType_t,
    ) -> Result<cublasLtMatmulDesc_t, DeviceError> {
        let mut made = ptr::null_mut();
        #[expect(unsafe_code, reason = "a function of the library is called")]
        // SAFETY: the pointer is to one that lives through the call.
        let status =
            unsafe { (self.functions.operation_create)(&raw mut made, compute as c_int, scale as c_int) };
        self.expect("cublasLtMatmulDescCreate", status)?;
        Ok(made)
    }

    pub(super) fn set_operation(
        &self,
        operation: cublasLtMatmulDesc_t,
        which: cublasLtMatmulDescAttributes_t,
        value: &[u8],
    ) -> Result<(), DeviceError> {
        #[expect(unsafe_code, reason = "a function of the library is called")]
        // SAFETY: the description is the library's; the value has the size that is said.
        let status = unsafe {
            (self.functions.operation_set)(operation, which as c_int, value.as_ptr().cast(), value.len())
        };
        self.expect("cublasLtMatmulDescSetAttribute", status)
    }

    pub(super) fn forget_operation(&self, operation: cublasLtMatmulDesc_t) {
        #[expect(unsafe_code, reason = "a function of the library is called")]
        // SAFETY: it is the library's and is not used again.
        unsafe {
            (self.functions.operation_destroy)(operation)
        };
    }

    pub(super) fn layout(
        &self,
        data: cudaDataType_t,
        [rows, columns]: [u64; 2],
        distance: i64,
    ) -> Result<cublasLtMatrixLayout_t, DeviceError> {
        let mut made = ptr::null_mut();
        #[expect(unsafe_code, reason = "a function of the library is called")]
        // SAFETY: the pointer is to one that lives through the call.
        let status =
            unsafe { (self.functions.layout_create)(&raw mut made, data as c_int, rows, columns, distance) };
        self.expect("cublasLtMatrixLayoutCreate", status)?;
        Ok(made)
    }

    pub(super) fn set_layout(
        &self,
        layout: cublasLtMatrixLayout_t,
        which: cublasLtMatrixLayoutAttribute_t,
        value: &[u8],
    ) -> Result<(), DeviceError> {
        #[expect(unsafe_code, reason = "a function of the library is called")]
        // SAFETY: the layout is the library's; the value has the size that is said.
        let status = unsafe {
            (self.functions.layout_set)(layout, which as c_int, value.as_ptr().cast(), value.len())
        };
        self.expect("cublasLtMatrixLayoutSetAttribute", status)
    }

    pub(super) fn forget_layout(&self, layout: cublasLtMatrixLayout_t) {
        #[expect(unsafe_code, reason = "a function of the library is called")]
        // SAFETY: it is the library's and is not used again.
        unsafe {
            (self.functions.layout_destroy)(layout)
        };
    }

    /// So many algorithms at most for a product.
    pub(super) fn offered(
        &self,
        operation: cublasLtMatmulDesc_t,
        layouts: [cublasLtMatrixLayout_t; 3],
        wished: &Wished<'_>,
        most: usize,
    ) -> Result<Vec<cublasLtMatmulAlgo_t>, DeviceError> {
        let none = Offer {
            algorithm: cublasLtMatmulAlgo_t { data: [0; 8] },
            _workspace: 0,
            state: 0,
            _waves: 0.0,
            _reserved: [0; 4],
        };
        let mut offers = vec![none; most];
        let mut count = 0;
        let [first, second, result] = layouts;
        #[expect(unsafe_code, reason = "a function of the library is called")]
        // SAFETY: descriptions and wishes are the library's; there is room for as many offers as are
        // asked for; the last pointer is to a number that lives through the call.
        let status = unsafe {
            (self.functions.offered)(
                self.handle,
                operation,
                first,
                second,
                result,
                result,
                wished.handle,
                c_int::try_from(most).unwrap_or(1),
                offers.as_mut_ptr(),
                &raw mut count,
            )
        };
        // That there is none for a product is said as an error.
        if status == cublasStatus_t::CUBLAS_STATUS_NOT_SUPPORTED as c_int {
            return Ok(Vec::new());
        }
        self.expect("cublasLtMatmulAlgoGetHeuristic", status)?;
        offers.truncate(usize::try_from(count).unwrap_or(0));
        Ok(offers.iter().filter(|it| it.state == 0).map(|it| it.algorithm).collect())
    }
}

impl<'a> Wished<'a> {
    pub(super) fn new(library: &'a Library) -> Result<Self, DeviceError> {
        let mut handle = ptr::null_mut();
        #[expect(unsafe_code, reason = "a function of the library is called")]
        // SAFETY: the pointer is to one that lives through the call.
        let status = unsafe { (library.functions.wish_create)(&raw mut handle) };
        library.expect("cublasLtMatmulPreferenceCreate", status)?;
        Ok(Self { library, handle })
    }

    pub(super) fn set(
        &self,
        which: cublasLtMatmulPreferenceAttributes_t,
        value: &[u8],
    ) -> Result<(), DeviceError> {
        #[expect(unsafe_code, reason = "a function of the library is called")]
        // SAFETY: the wishes are the library's; the value has the size that is said.
        let status = unsafe {
            (self.library.functions.wish_set)(self.handle, which as c_int, value.as_ptr().cast(), value.len())
        };
        self.library.expect("cublasLtMatmulPreferenceSetAttribute", status)
    }
}

impl Drop for Wished<'_> {
    fn drop(&mut self) {
        #[expect(unsafe_code, reason = "a function of the library is called")]
        // SAFETY: they are the library's and are not used again.
        unsafe {
            (self.library.functions.wish_destroy)(self.handle)
        };
    }
}

impl Drop for Library {
    fn drop(&mut self) {
        if self.handle.is_null() {
            return;
        }
        #[expect(unsafe_code, reason = "a function of the library is called")]
        // SAFETY: it is the library's and is not used again.
        unsafe {
            (self.functions.destroy)(self.handle)
        };
    }
}
