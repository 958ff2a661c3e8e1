//! Loops compiled for the widest vectors of the processor.
//!
//! The crate is compiled for every processor of its architecture. Here one function is compiled
//! again for newer ones, and the processor picks. No instruction that changes a rounding is
//! used: the numbers are the same on each.

/// `function(arguments)`, with wide vectors in the function's loops.
///
/// The function has to be always inlined. It is called from a closure that is so as well: the
/// compiler would not inline the name of a large function where it is handed over as a value.
macro_rules! wide {
    ($function:expr, $arguments:expr) => {
        $crate::wide::call(
            #[inline(always)]
            |arguments| $function(arguments),
            $arguments,
        )
    };
}

pub(crate) use wide;

/// `function(arguments)`, compiled for the widest vectors.
#[inline]
pub(crate) fn call<A, R>(function: impl Fn(A) -> R, arguments: A) -> R {
    #[cfg(target_arch = "x86_64")]
    {
        if std::arch::is_x86_feature_detected!("avx512f")
            && std::arch::is_x86_feature_detected!("avx512vl")
            && std::arch::is_x86_feature_detected!("avx512dq")
            && std::arch::is_x86_feature_detected!("avx512bw")
        {
            #[expect(unsafe_code, reason = "only here is it known what the processor has")]
            // SAFETY: the processor has been asked for the features that the function needs.
            return unsafe { with_avx512(function, arguments) };
        }
        if std::arch::is_x86_feature_detected!("avx2") {
            #[expect(unsafe_code, reason = "only here is it known what the processor has")]
            // SAFETY: the processor has been asked for the feature that the function needs.
            return unsafe { with_avx2(function, arguments) };
        }
    }
    function(arguments)
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512vl,avx512dq,avx512bw")]
fn with_avx512<A, R>(function: impl Fn(A) -> R, arguments: A) -> R {
    function(arguments)
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn with_avx2<A, R>(function: impl Fn(A) -> R, arguments: A) -> R {
    function(arguments)
}
