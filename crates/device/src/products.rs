//! Matrix products, by cuBLASLt.
//!
//! A product is described once, when a program is made ready: layouts and what is computed, an algorithm
//! that has been found the fastest of those that the library offers, on the device and on the places
//! where the matrices are. What has been found is kept by what is computed, the GPU and the version of
//! the library. The library's matrices are by columns: one by rows is to it the transpose.
//!
//! Source: cuBLAS's documentation, chapter 3, and its header.

mod library; // the functions of the library
mod chosen; // which algorithms have been found fastest
mod layout; // products as the library has them

use std::ffi::c_void;
use std::path::{Path, PathBuf};
use std::ptr;
use std::rc::Rc;

use cudarc::cublaslt::sys::{cublasLtMatmulAlgo_t, cublasLtMatmulPreferenceAttributes_t as Wish};
use kernels::cuda::MatrixProduct;
use planner_ir::DType;

use crate::error::DeviceError;
use crate::gpu::{Gpu, Stream, Timing};
use chosen::Chosen;
use layout::{Described, Numbers, Sides};
use library::{Library, Wished};

/// How many algorithms the library is asked for.
const ASKED: usize = 12;

/// How often each is timed, after it has run once.
const TIMED: u32 = 3;

/// What addresses are multiples of (bytes): places in an arena are multiples of more.
const ALIGNED: u32 = 16;

/// The library on a GPU.
pub(crate) struct Products {
    library: Rc<Library>,
    gpu: Rc<Gpu>,
    chosen: Chosen,
    /// What algorithms may use (bytes).
    workspace: u64,
}

/// A product that is ready to be computed.
pub(crate) struct Product {
    library: Rc<Library>,
    described: Described,
    numbers: Numbers,
    algorithm: cublasLtMatmulAlgo_t,
}

/// Where the matrices of a product are, and what the library may use for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Places {
    /// The left operand, the right one, the result.
    pub(crate) matrices: [u64; 3],
    /// What the product is added to, if it is: as the result lies, perhaps there.
    pub(crate) addend: Option<u64>,
    /// The start of what may be used.
    pub(crate) workspace: u64,
}

impl Products {
    /// The library in one of these folders, or where libraries are; algorithms that were found are in a
    /// file of the folder of a cache, if there is one.
    pub(crate) fn load(
        gpu: &Rc<Gpu>,
        folders: &[PathBuf],
        cache: Option<&Path>,
        workspace: u64,
    ) -> Result<Self, DeviceError> {
        let library = Library::load(gpu, folders)?;
        let (major, minor) = gpu.facts.capability;
        let file = cache.map(|it| it.join(format!("products-sm_{major}{minor}-{}.txt", library.version)));
        Ok(Self { library: Rc::new(library), gpu: Rc::clone(gpu), chosen: Chosen::read(file), workspace })
    }

    /// The version of the library.
    pub(crate) fn version(&self) -> usize {
        self.library.version
    }

    /// How many products' algorithms have been timed, not known from before.
    pub(crate) fn timed(&self) -> usize {
        self.chosen.timed
    }

    /// A product made ready, by the algorithm that is fastest at these places; none if the library has
    /// none.
    pub(crate) fn ready(
        &mut self,
        product: &MatrixProduct,
        dtypes: [DType; 2],
        places: Places,
        stream: &Stream,
    ) -> Result<Option<Product>, DeviceError> {
        let Some(numbers) = Numbers::of(dtypes) else { return Ok(None) };
        let Some(sides) = Sides::of(product) else { return Ok(None) };
        let described = Described::new(&self.library, &sides, numbers)?;
        let added = if places.addend.is_some() { " added" } else { "" };
        let key = format!("{sides:?} {numbers:?} {}{added}", self.workspace);
        if let Some(algorithm) = self.chosen.find(&key) {
            return Ok(Some(self.product(described, numbers, algorithm)));
        }
        let offered = self.offered(&described)?;
        let mut best: Option<(f64, cublasLtMatmulAlgo_t)> = None;
        let mut trial = self.product(described, numbers, cublasLtMatmulAlgo_t { data: [0; 8] });
        for algorithm in offered {
            trial.algorithm = algorithm;
            // One that does not run here is none.
            let Ok(seconds) = self.time(&trial, places, stream) else { continue };
            if best.is_none_or(|(least, _)| seconds < least) {
                best = Some((seconds, algorithm));
            }
        }
        let Some((_, algorithm)) = best else { return Ok(None) };
        self.chosen.add(key, algorithm)?;
        trial.algorithm = algorithm;
        Ok(Some(trial))
    }

    fn product(&self, described: Described, numbers: Numbers, algorithm: cublasLtMatmulAlgo_t) -> Product {
        Product { library: Rc::clone(&self.library), described, numbers, algorithm }
    }

    /// The algorithms that the library offers, those that it thinks faster first.
    fn offered(&self, described: &Described) -> Result<Vec<cublasLtMatmulAlgo_t>, DeviceError> {
        let wished = Wished::new(&self.library)?;
        wished.set(Wish::CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &self.workspace.to_ne_bytes())?;
        for which in [
            Wish::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES,
            Wish::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
            Wish::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES,
            Wish::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES,
        ] {
            wished.set(which, &ALIGNED.to_ne_bytes())?;
        }
        self.library.offered(described.operation, described.layouts, &wished, ASKED)
    }

    /// How long a product takes (seconds): the shortest of some times.
    fn time(&self, product: &Product, places: Places, stream: &Stream) -> Result<f64, DeviceError> {
        let workspace = self.workspace;
        product.compute(places, workspace, stream)?;
        let events = [self.gpu.event(Timing::Yes)?, self.gpu.event(Timing::Yes)?];
        let mut least = f64::INFINITY;
        for _ in 0..TIMED {
            stream.record(&events[0])?;
            product.compute(places, workspace, stream)?;
            stream.record(&events[1])?;
            least = least.min(events[1].since(&events[0])?);
        }
        Ok(least)
    }
}

impl Product {
    /// Issues the product, which may use so many bytes of its workspace.
    pub(crate) fn compute(&self, places: Places, workspace: u64, stream: &Stream) -> Result<(), DeviceError> {
        let one = self.numbers.one();
        let kept = if places.addend.is_some() { one } else { self.numbers.zero() };
        let [left, right, result] = places.matrices;
        let [first, second] = if self.described.turned { [right, left] } else { [left, right] };
        let pointer = |address: u64| {
            // What does not fit an address is none, and refused.
            ptr::with_exposed_provenance::<c_void>(usize::try_from(address).unwrap_or(0))
        };
        #[expect(unsafe_code, reason = "a function of the library is called")]
        // SAFETY: descriptions live as long as this value; the factors live through the call, are of the
        // type that the description says and lie on the host; the matrices are memory of the device,
        // which is for those who issue it.
        let status = unsafe {
            (self.library.functions.compute)(
                self.library.handle,
                self.described.operation,
                one.as_ptr().cast(),
                pointer(first),
                self.described.layouts[0],
                pointer(second),
                self.described.layouts[1],
                kept.as_ptr().cast(),
                pointer(places.addend.unwrap_or(result)),
                self.described.layouts[2],
                pointer(result).cast_mut(),
                self.described.layouts[2],
                &raw const self.algorithm,
                pointer(places.workspace).cast_mut(),
                usize::try_from(workspace).unwrap_or(0),
                stream.handle.cast(),
            )
        };
        self.library.expect("cublasLtMatmul", status)
    }
}
