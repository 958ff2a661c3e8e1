/* What generated kernels are made of besides the primitives; the same text everywhere. */

/* Several words of 32 bits, by accesses of 128 bits at most. */
FN void t_load_words_2(t_u32 *to, const void *from) {
    const t_v8 all = *(const t_v8 *)from;
    to[0] = all.x; to[1] = all.y;
}
FN void t_load_words_4(t_u32 *to, const void *from) {
    const t_v16 all = *(const t_v16 *)from;
    to[0] = all.x; to[1] = all.y; to[2] = all.z; to[3] = all.w;
}
FN void t_load_words_8(t_u32 *to, const void *from) {
    t_load_words_4(to, from);
    t_load_words_4(to + 4, (const t_u32 *)from + 4);
}
FN void t_load_words_16(t_u32 *to, const void *from) {
    t_load_words_8(to, from);
    t_load_words_8(to + 8, (const t_u32 *)from + 8);
}
FN void t_store_words_2(void *to, const t_u32 *from) {
    t_v8 all;
    all.x = from[0]; all.y = from[1];
    *(t_v8 *)to = all;
}
FN void t_store_words_4(void *to, const t_u32 *from) {
    t_v16 all;
    all.x = from[0]; all.y = from[1]; all.z = from[2]; all.w = from[3];
    *(t_v16 *)to = all;
}
FN void t_store_words_8(void *to, const t_u32 *from) {
    t_store_words_4(to, from);
    t_store_words_4((t_u32 *)to + 4, from + 4);
}
FN void t_store_words_16(void *to, const t_u32 *from) {
    t_store_words_8(to, from);
    t_store_words_8((t_u32 *)to + 8, from + 8);
}

#define T_INFINITY_F t_of_bits(0x7f800000u)
#define T_INFINITY_D ((double)t_of_bits(0x7f800000u))

/* Conversion between the numbers that kernels compute with: float to integer toward zero and at
   most to the outermost, what is not a number to 0. */
FN t_i64 t_i64_of_d(double x) {
    if (x != x) return 0;
    if (x >= 9223372036854775808.0) return 0x7fffffffffffffffll;
    if (x <= -9223372036854775808.0) return -0x7fffffffffffffffll - 1;
    return (t_i64)x;
}
FN t_u64 t_u64_of_d(double x) {
    if (!(x > 0.0)) return 0;
    return x >= 18446744073709551616.0 ? 0xffffffffffffffffull : (t_u64)x;
}
FN t_i64 t_clamp(t_i64 x, t_i64 low, t_i64 high) { return x < low ? low : x > high ? high : x; }
/* A neighbour that rounds to the same shorter number: of two the odd one. */
FN float t_odd(double x) {
    float nearest = (float)x;
    double size = x < 0.0 ? -x : x, made = nearest < 0.0f ? -(double)nearest : (double)nearest;
    t_u32 bits = t_bits(nearest);
    if (bits & 1u) return nearest;
    if (made > size) return t_of_bits(bits - 1u);
    return made < size ? t_of_bits(bits + 1u) : nearest;
}

/* Integer arithmetic that wraps, and remainders. */
FN t_i64 t_mod_i(t_i64 a, t_i64 b) {
    t_i64 rest = b == -1 ? 0 : a % b;
    return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}
/* Where a place is that is mirrored at the first and the last of an extent. */
FN t_i64 t_mirrored(t_i64 at, t_i64 extent) {
    if (extent < 2) return 0;
    at = t_mod_i(at, 2 * (extent - 1));
    return at < extent ? at : 2 * (extent - 1) - at;
}
FN t_i64 t_fmod_i(t_i64 a, t_i64 b) { return b == -1 ? 0 : a % b; }
FN t_i64 t_div_i(t_i64 a, t_i64 b) { return b == -1 ? (t_i64)(0ull - (t_u64)a) : a / b; }
FN t_u64 t_power(t_u64 base, t_u64 exponent) {
    t_u64 power = 1;
    for (; exponent; exponent >>= 1, base *= base) power *= exponent & 1 ? base : 1;
    return power;
}
FN t_i64 t_pow_i(t_i64 a, t_i64 b) {
    if (b >= 0) return (t_i64)t_power((t_u64)a, (t_u64)b);
    return a == 1 ? 1 : a == -1 ? (b & 1 ? -1 : 1) : 0;
}
FN t_i64 t_abs_i(t_i64 x) { return x < 0 ? (t_i64)(0ull - (t_u64)x) : x; }
FN t_i64 t_sign_i(t_i64 x) { return (x > 0) - (x < 0); }
FN t_i64 t_max_i(t_i64 a, t_i64 b) { return a > b ? a : b; }
FN t_i64 t_min_i(t_i64 a, t_i64 b) { return a < b ? a : b; }
FN t_u64 t_max_u(t_u64 a, t_u64 b) { return a > b ? a : b; }
FN t_u64 t_min_u(t_u64 a, t_u64 b) { return a < b ? a : b; }

/* What lanes before this one have of a number that each lane has, and what all have together. */
FN int t_warp_before(int own, int *all) {
    int before = 0;
    *all = own;
    T_UNROLL
    for (int mask = 1; mask < 32; mask <<= 1) {
        const int other = (int)t_shuffle_i(*all, mask);
        before += t_thread() & mask ? other : 0;
        *all += other;
    }
    return before;
}

/* Numbers that depend on a seed and a position alone: SplitMix64's output function, twice. */
FN t_u64 t_mixed(t_u64 x) {
    x += 0x9e3779b97f4a7c15ull;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
    return x ^ (x >> 31);
}
/* One of the two bf16 next to a number: what it has beyond a bf16 is so many 65536ths of the way to
   the next one away from zero, and as many of the numbers that 16 bits may be carry into it. A finite
   number stays finite. */
FN float t_bf16_by_chance(float x, t_u64 random) {
    t_u32 bits = t_bits(x), size = bits & 0x7fffffffu;
    if (size >= 0x7f800000u) return x;
    size += (t_u32)random & 0xffffu;
    return t_of_bits((bits & 0x80000000u) | ((size < 0x7f7f0000u ? size : 0x7f7f0000u) & 0xffff0000u));
}
/* From 0 to below 1. */
FN double t_chance(t_u64 seed, t_u64 position) {
    return (double)(t_mixed(t_mixed(seed) + position) >> 11) * (1.0 / 9007199254740992.0);
}
