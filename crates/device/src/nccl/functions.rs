//! The functions of NCCL that are called, taken from its library by name, with their types and numbers.
//!
//! Source: NCCL's user guide, and `nccl.h` of 2.18, whose configuration later versions take too: it says
//! how large it is and of which version.

use std::ffi::{c_char, c_int, c_uint, c_void};
use std::ptr;

use planner_ir::DType;

use crate::library::functions;

/// What functions return.
pub(super) type Status = c_int;

/// It is done.
pub(super) const DONE: Status = 0;
/// A call of the operating system, or what it does for a network, failed.
pub(super) const SYSTEM: Status = 2;
/// Another rank is not reached, or has failed.
pub(super) const REMOTE: Status = 6;
/// It goes on in the background.
pub(super) const GOES_ON: Status = 7;

/// A communicator of the library.
pub(super) type Handle = *mut c_void;

/// What tells the ranks of a job from all others.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct Unique(pub(super) [u8; Self::BYTES]);

impl Unique {
    pub(super) const BYTES: usize = 128;
}

/// How a communicator is: `ncclConfig_t` of 2.18.
#[repr(C)]
pub(super) struct Configuration {
    size: usize,
    magic: c_uint,
    version: c_uint,
    blocking: c_int,
    cluster: c_int,
    least_blocks: c_int,
    most_blocks: c_int,
    network: *const c_char,
    shares: c_int,
}

/// What a field of a configuration is that is left to the library.
const UNSET: c_int = c_int::MIN;

impl Configuration {
    /// One whose calls never wait, and else as the library likes.
    pub(super) fn not_blocking() -> Self {
        Self {
            size: size_of::<Self>(),
            magic: 0xcafe_beef,
            version: 21_800,
            blocking: 0,
            cluster: UNSET,
            least_blocks: UNSET,
            most_blocks: UNSET,
            network: ptr::null(),
            shares: UNSET,
        }
    }
}

/// The color of a rank that no communicator is made for.
pub(super) const NO_COLOR: c_int = -1;

/// How addends become one.
pub(super) const SUM: c_int = 0;

/// What the library calls a type; nothing of those that it does not know.
pub(super) fn number(dtype: DType) -> Option<c_int> {
    Some(match dtype {
        DType::I8 => 0,
        DType::U8 => 1,
        DType::I32 => 2,
        DType::U32 => 3,
        DType::I64 => 4,
        DType::U64 => 5,
        DType::F16 => 6,
        DType::F32 => 7,
        DType::F64 => 8,
        DType::BF16 => 9,
        DType::I16 | DType::U16 | DType::Bool => return None,
        DType::F8E4M3FN | DType::F8E4M3FNUZ | DType::F8E5M2 | DType::F8E5M2FNUZ => return None,
    })
}

functions! {
    /// The functions of the library that are called.
    pub(super) struct Functions {
        pub(super) version = ncclGetVersion(*mut c_int) -> Status;
        pub(super) unique = ncclGetUniqueId(*mut Unique) -> Status;
        pub(super) join = ncclCommInitRankConfig(*mut Handle, c_int, Unique, c_int, *mut Configuration) -> Status;
        pub(super) split = ncclCommSplit(Handle, c_int, c_int, *mut Handle, *mut Configuration) -> Status;
        pub(super) state = ncclCommGetAsyncError(Handle, *mut Status) -> Status;
        pub(super) finalize = ncclCommFinalize(Handle) -> Status;
        pub(super) destroy = ncclCommDestroy(Handle) -> Status;
        pub(super) abort = ncclCommAbort(Handle) -> Status;
        pub(super) error = ncclGetErrorString(Status) -> *const c_char;
        pub(super) last_error = ncclGetLastError(Handle) -> *const c_char;
        pub(super) group_start = ncclGroupStart() -> Status;
        pub(super) group_end = ncclGroupEnd() -> Status;
        pub(super) all_reduce = ncclAllReduce(
            *const c_void, *mut c_void, usize, c_int, c_int, Handle, *mut c_void
        ) -> Status;
        pub(super) all_gather = ncclAllGather(
            *const c_void, *mut c_void, usize, c_int, Handle, *mut c_void
        ) -> Status;
        pub(super) reduce_scatter = ncclReduceScatter(
            *const c_void, *mut c_void, usize, c_int, c_int, Handle, *mut c_void
        ) -> Status;
        pub(super) broadcast = ncclBroadcast(
            *const c_void, *mut c_void, usize, c_int, c_int, Handle, *mut c_void
        ) -> Status;
        pub(super) reduce = ncclReduce(
            *const c_void, *mut c_void, usize, c_int, c_int, c_int, Handle, *mut c_void
        ) -> Status;
        pub(super) send = ncclSend(*const c_void, usize, c_int, c_int, Handle, *mut c_void) -> Status;
        pub(super) receive = ncclRecv(*mut c_void, usize, c_int, c_int, Handle, *mut c_void) -> Status;
    }
}
