/* The primitives of generated kernels on the host, in C: one thread of a block is a fiber.

   Blocks run one after another, the threads of a block in an order that the seed decides, each
   until it has to wait for others. Shared memory is filled with what no kernel has written
   before each block. Buffers end, or begin, where memory ends that may be touched. */

#define _GNU_SOURCE
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#if !defined(__x86_64__)
#include <ucontext.h>
#endif

#define KERNEL(threads) static void
#define KERNEL_ALONE(threads) static void
#define FN static inline
#define T_ALIGNED(bytes) __attribute__((aligned(bytes)))
#define T_UNROLL
#define T_UNROLL_FEW
#define T_UNROLL_FOUR

typedef int8_t t_i8;
typedef uint8_t t_u8;
typedef int16_t t_i16;
typedef uint16_t t_u16;
typedef int32_t t_i32;
typedef uint32_t t_u32;
typedef int64_t t_i64;
typedef uint64_t t_u64;
typedef struct { t_u32 x, y; } T_ALIGNED(8) t_v8;
typedef struct { t_u32 x, y, z, w; } T_ALIGNED(16) t_v16;

enum { T_THREADS = 1024, T_LANES = 32, T_STACK = (1 << 17) + 320, T_SHARED = 232448, T_PAGE = 4096 };
enum { T_READY, T_AT_BARRIER, T_AT_WARP_BARRIER, T_DONE };

static struct {
#if defined(__x86_64__)
    void *stack;
#else
    ucontext_t context;
#endif
    int state, site;
    int parity;
} t_fibers[T_THREADS];

static unsigned char *t_arena;
static char *t_stacks;
static int t_now, t_count, t_ready_count, t_ready[T_THREADS];
static int t_waiting, t_warp_waiting[T_THREADS / T_LANES];
static t_i64 t_block_number;
static t_u64 t_state;
static const char *t_what = "nothing";
/* What the lanes of a warp show each other, twice: a lane may be one exchange ahead. */
static union { float n[12]; t_u64 l[4]; float f; double d; t_i64 i; } t_shown[2][T_THREADS];
static void (*t_entry)(void **);
static void **t_arguments;

static t_u64 t_random(void) {
    t_u64 x = (t_state += 0x9e3779b97f4a7c15u);
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

static void t_fail(const char *why) {
    fprintf(stderr, "%s, block %lld: %s\n", t_what, (long long)t_block_number, why);
    exit(3);
}

#if defined(__x86_64__)
static void *t_scheduler;
void t_switch(void **from, void *to);
__asm__(".text\n.globl t_switch\n.type t_switch,@function\nt_switch:\n"
        "pushq %rbp\npushq %rbx\npushq %r12\npushq %r13\npushq %r14\npushq %r15\n"
        "movq %rsp, (%rdi)\nmovq %rsi, %rsp\n"
        "popq %r15\npopq %r14\npopq %r13\npopq %r12\npopq %rbx\npopq %rbp\nret\n"
        ".size t_switch, .-t_switch\n");
static void t_leave(void) { t_switch(&t_fibers[t_now].stack, t_scheduler); }
static void t_enter(void) { t_switch(&t_scheduler, t_fibers[t_now].stack); }
#else
static ucontext_t t_scheduler;
static void t_leave(void) { swapcontext(&t_fibers[t_now].context, &t_scheduler); }
static void t_enter(void) { swapcontext(&t_scheduler, &t_fibers[t_now].context); }
#endif

static void t_begin(void) {
    t_entry(t_arguments);
    t_fibers[t_now].state = T_DONE;
    t_leave();
    t_fail("a thread goes on after its end");
}

static void t_prepare(int thread) {
    char *top = t_stacks + (size_t)(thread + 1) * T_STACK;
#if defined(__x86_64__)
    void **stack = (void **)top;
    *--stack = 0;
    *--stack = (void *)t_begin;
    for (int saved = 0; saved < 6; saved++) *--stack = 0;
    t_fibers[thread].stack = stack;
#else
    ucontext_t *context = &t_fibers[thread].context;
    getcontext(context);
    context->uc_stack.ss_sp = top - T_STACK;
    context->uc_stack.ss_size = T_STACK;
    context->uc_link = 0;
    makecontext(context, t_begin, 0);
#endif
    t_fibers[thread].state = T_READY;
    t_fibers[thread].parity = 0;
}

FN int t_thread(void) { return t_now; }
FN t_i64 t_block(void) { return t_block_number; }

/* Wakes threads that waited for each other; they must have waited at one place. */
static void t_wake(int first, int end, int site) {
    for (int thread = first; thread < end; thread++) {
        if (t_fibers[thread].site != site) t_fail("threads meet at different places");
        t_fibers[thread].state = T_READY;
        t_ready[t_ready_count++] = thread;
    }
}

static void t_meet(int site) {
    t_fibers[t_now].state = T_AT_BARRIER;
    t_fibers[t_now].site = site;
    if (++t_waiting == t_count) {
        t_waiting = 0;
        t_wake(0, t_count, site);
    }
    t_leave();
}

static void t_meet_in_warp(int site) {
    int warp = t_now / T_LANES;
    t_fibers[t_now].state = T_AT_WARP_BARRIER;
    t_fibers[t_now].site = site;
    if (++t_warp_waiting[warp] == T_LANES) {
        t_warp_waiting[warp] = 0;
        t_wake(warp * T_LANES, (warp + 1) * T_LANES, site);
    }
    t_leave();
}

#define t_barrier() t_meet(__LINE__)
#define t_warp_barrier() t_meet_in_warp(__LINE__)

FN int t_other(int mask) { return t_now / T_LANES * T_LANES + ((t_now % T_LANES) ^ mask); }
FN int t_turn(void) { return t_fibers[t_now].parity ^= 1; }
#define T_SHUFFLE(S, T, member)                                                                          \
    FN T t_shuffle_at_##S(T x, int mask, int site) {                                                     \
        int turn = t_turn();                                                                             \
        t_shown[turn][t_now].member = x;                                                                 \
        t_meet_in_warp(site);                                                                            \
        return t_shown[turn][t_other(mask)].member;                                                      \
    }
T_SHUFFLE(f, float, f)
T_SHUFFLE(d, double, d)
T_SHUFFLE(i, t_i64, i)
T_SHUFFLE(u, t_u64, l[0])
#define t_shuffle_f(x, mask) t_shuffle_at_f(x, mask, __LINE__)
#define t_shuffle_d(x, mask) t_shuffle_at_d(x, mask, __LINE__)
#define t_shuffle_i(x, mask) t_shuffle_at_i(x, mask, __LINE__)
#define t_shuffle_u(x, mask) t_shuffle_at_u(x, mask, __LINE__)

FN t_u32 t_bits(float x) { t_u32 y; memcpy(&y, &x, 4); return y; }
FN float t_of_bits(t_u32 x) { float y; memcpy(&y, &x, 4); return y; }

FN float t_float_of_bf16(t_u16 x) { return t_of_bits((t_u32)x << 16); }
FN t_u16 t_bf16_of_float(float x) {
    t_u32 bits = t_bits(x);
    if (x != x) return (t_u16)(bits >> 16 | 0x40);
    return (t_u16)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}
FN float t_float_of_half(t_u16 x) {
    t_u32 sign = (t_u32)(x & 0x8000) << 16, exponent = x >> 10 & 0x1f, mantissa = x & 0x3ff;
    float size;
    if (exponent == 0x1f) size = t_of_bits(0x7f800000 | mantissa << 13);
    else if (exponent == 0) size = (float)mantissa * 5.9604644775390625e-8f;
    else size = t_of_bits((exponent + 112) << 23 | mantissa << 13);
    return t_of_bits(t_bits(size) | sign);
}
FN t_u16 t_half_of_float(float x) {
    t_u16 sign = (t_u16)(t_bits(x) >> 16 & 0x8000);
    t_u32 bits = t_bits(x) & 0x7fffffff;
    if (bits > 0x7f800000) return sign | 0x7e00;
    if (bits >= 0x477ff000) return sign | 0x7c00;
    /* Below the smallest normal number, a sum with 0.5 rounds to the unit of a half. */
    if (bits < 0x38800000) return sign | (t_u16)(t_bits(t_of_bits(bits) + 0.5f) - 0x3f000000);
    return sign | (t_u16)((bits + 0xfff + (bits >> 13 & 1) - 0x38000000) >> 13);
}

/* The element of a matrix that lies in the lane's registers as PTX says of `mma.m16n8k16`. */
static void t_mma(float *d, const t_u32 *a, const t_u32 *b, float (*number)(t_u16), int site) {
    int turn = t_turn(), lane = t_now % T_LANES, first = t_now - lane;
    for (int at = 0; at < 12; at++) {
        t_shown[turn][t_now].n[at] = number((t_u16)((at < 8 ? a[at / 2] : b[at / 2 - 4]) >> at % 2 * 16));
    }
    t_meet_in_warp(site);
    for (int element = 0; element < 4; element++) {
        int row = lane / 4 + element / 2 * 8, column = lane % 4 * 2 + element % 2;
        float sum = d[element];
        for (int k = 0; k < 16; k++) {
            const float *left = t_shown[turn][first + row % 8 * 4 + k % 8 / 2].n;
            const float *right = t_shown[turn][first + column * 4 + k % 8 / 2].n + 8;
            sum += left[(row / 8 + k / 8 * 2) * 2 + k % 2] * right[k / 8 * 2 + k % 2];
        }
        d[element] = sum;
    }
}
#define t_mma_bf16(d, a, b) t_mma(d, a, b, t_float_of_bf16, __LINE__)
#define t_mma_f16(d, a, b) t_mma(d, a, b, t_float_of_half, __LINE__)

/* Rows of matrices that lanes say the places of: each gets its part of four. */
static void t_matrices(t_u32 *to, const t_u16 *row, int turned, int site) {
    int turn = t_turn(), lane = t_now % T_LANES, first = t_now - lane;
    t_shown[turn][t_now].l[0] = (t_u64)(uintptr_t)row;
    t_meet_in_warp(site);
    for (int matrix = 0; matrix < 4; matrix++) {
        t_u16 pair[2];
        for (int k = 0; k < 2; k++) {
            int down = turned ? lane % 4 * 2 + k : lane / 4, across = turned ? lane / 4 : lane % 4 * 2 + k;
            pair[k] = ((const t_u16 *)(uintptr_t)t_shown[turn][first + matrix * 8 + down].l[0])[across];
        }
        to[matrix] = pair[0] | (t_u32)pair[1] << 16;
    }
    t_meet_in_warp(site);
}
#define t_load_matrices(to, row) t_matrices(to, row, 0, __LINE__)
#define t_load_matrices_turned(to, row) t_matrices(to, row, 1, __LINE__)
FN t_u32 t_pack_bf16(float a, float b) { return t_bf16_of_float(a) | (t_u32)t_bf16_of_float(b) << 16; }
FN t_u32 t_pack_f16(float a, float b) { return t_half_of_float(a) | (t_u32)t_half_of_float(b) << 16; }

/* Copies are made when they are waited for; until then no number is there. */
enum { T_PENDING = 64 };
static struct { void *to; const void *from; int there, group; } t_pending[T_THREADS][T_PENDING];
static int t_pending_count[T_THREADS], t_groups[T_THREADS];
static void t_copy_async(void *to, const void *from, int there) {
    int count = t_pending_count[t_now]++;
    if (count >= T_PENDING) t_fail("too many copies are on their way");
    t_pending[t_now][count].to = to;
    t_pending[t_now][count].from = from;
    t_pending[t_now][count].there = there;
    t_pending[t_now][count].group = t_groups[t_now];
    memset(to, 0xff, 16);
}
static void t_commit(void) { t_groups[t_now]++; }
static void t_wait_but(int newest) {
    int kept = 0;
    for (int at = 0; at < t_pending_count[t_now]; at++) {
        if (t_pending[t_now][at].group >= t_groups[t_now] - newest) {
            t_pending[t_now][kept++] = t_pending[t_now][at];
        } else if (t_pending[t_now][at].there) {
            memcpy(t_pending[t_now][at].to, t_pending[t_now][at].from, 16);
        } else {
            memset(t_pending[t_now][at].to, 0, 16);
        }
    }
    t_pending_count[t_now] = kept;
}
FN void t_wait_but_one(void) { t_wait_but(1); }
FN void t_wait_but_two(void) { t_wait_but(2); }

#define T_MATHS(name, c)                                                                                 \
    FN float t_##name##_f(float x) { return c##f(x); }                                                   \
    FN double t_##name##_d(double x) { return c(x); }
T_MATHS(exp, exp) T_MATHS(log, log) T_MATHS(log1p, log1p) T_MATHS(tanh, tanh) T_MATHS(erf, erf)
T_MATHS(erfc, erfc) T_MATHS(sqrt, sqrt) T_MATHS(sin, sin) T_MATHS(cos, cos) T_MATHS(floor, floor)
T_MATHS(ceil, ceil) T_MATHS(round, rint)
T_MATHS(expm1, expm1)
FN float t_exp2_f(float x) { return exp2f(x); }
FN float t_log2_f(float x) { return log2f(x); }
FN float t_pow_f(float x, float y) { return powf(x, y); }
FN double t_pow_d(double x, double y) { return pow(x, y); }
FN float t_fmod_f(float x, float y) { return fmodf(x, y); }
FN double t_fmod_d(double x, double y) { return fmod(x, y); }
