//! Elements that are loaded and stored at once, in C.
//!
//! Several elements are one access of up to 128 bits, of words: what the compiler is told of narrower
//! elements it takes apart into accesses of two or four of them. So words are put together of narrow
//! elements by shifts when they are stored. What is loaded is put together by a union where it is several
//! words: with shifts the assembler keeps more in registers than there are for some kernels of norms.

use planner_ir::DType;

use super::number::{computed, is_covered, loading, narrowing, stored};
use super::text::filled;

/// What is loaded and stored at once: how many elements.
pub(super) const WIDTHS: [u64; 4] = [1, 2, 4, 8];

/// A word (bytes).
const WORD: u64 = 4;

const LOAD_ONE: &str = "
/* $C, as the number that kernels compute with. */
FN void t_load_$D_1(const $C *from, $W *to) { *to = $L(*from); }";

const STORE_ONE: &str = "
FN void t_store_$D_1($C *to, const $W *from) { *to = ($C)$N(*from); }
";

/// By a union of words and elements.
const LOAD_JOINED: &str = "
/* $C: $V at once, as the numbers that kernels compute with. */
FN void t_load_$D_$V(const $C *from, $W *to) {
    union { $R all[$A]; $C one[$V]; } room;
    t_load_words_$A(room.all, from);
    T_UNROLL
    for (int at = 0; at < $V; at++) to[at] = $L(room.one[at]);
}";

const STORE_JOINED: &str = "
FN void t_store_$D_$V($C *to, const $W *from) {
    union { $R all[$A]; $C one[$V]; } room;
    T_UNROLL
    for (int at = 0; at < $V; at++) room.one[at] = ($C)$N(from[at]);
    t_store_words_$A(to, room.all);
}
";

/// By shifts: the first elements are the low bits.
const LOAD_SHIFTED: &str = "
/* $C: $V at once, as the numbers that kernels compute with. */
FN void t_load_$D_$V(const $C *from, $W *to) {
    const $R all = *(const $R *)from;
    T_UNROLL
    for (int at = 0; at < $V; at++) to[at] = $L(($C)(all >> at * $B));
}";

const STORE_SHIFTED: &str = "
FN void t_store_$D_$V($C *to, const $W *from) {
    $R all[$A] = {0};
    T_UNROLL
    for (int at = 0; at < $V; at++) all[at / $P] |= ($R)(($R)($U)($C)$N(from[at]) << at % $P * $B);
    $PUT;
}
";

/// The functions that load and store some elements of a type at once.
pub(super) fn vectors() -> String {
    let types = DType::ALL.into_iter().filter(|&dtype| is_covered(dtype));
    types.flat_map(|dtype| WIDTHS.map(|width| functions(dtype, width))).collect()
}

/// The two functions for so many elements of a type.
fn functions(dtype: DType, width: u64) -> String {
    let (size, total) = (dtype.bytes(), dtype.bytes() * width);
    let word = total.min(WORD);
    let words = total / word;
    let (load, store) = match width {
        1 => (LOAD_ONE, STORE_ONE),
        _ if size >= WORD => (LOAD_JOINED, STORE_JOINED),
        _ if words == 1 => (LOAD_SHIFTED, STORE_SHIFTED),
        _ => (LOAD_JOINED, STORE_SHIFTED),
    };
    let room = if word == WORD { "t_u32" } else { "t_u16" };
    let put =
        if words == 1 { format!("*({room} *)to = *all") } else { format!("t_store_words_{words}(to, all)") };
    let texts = [
        ("C", stored(dtype)),
        ("U", if size == 1 { "t_u8" } else { "t_u16" }),
        ("W", computed(dtype)),
        ("D", dtype.name()),
        ("V", &width.to_string()),
        ("R", room),
        ("A", &words.to_string()),
        ("P", &(word / size).to_string()),
        ("B", &(8 * size).to_string()),
        ("PUT", &put),
        ("L", loading(dtype)),
        ("N", narrowing(dtype)),
    ];
    filled(load, &texts) + &filled(store, &texts)
}
