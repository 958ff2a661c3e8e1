/* The primitives of generated kernels on a CUDA device. No header of CUDA is needed. */

#define KERNEL(threads) extern "C" __global__ void __launch_bounds__(threads)
/* The same for one that may have all registers: without it, the assembler spills some to have more
   blocks at a time. */
#define KERNEL_ALONE(threads) extern "C" __global__ void __launch_bounds__(threads, 1)
#define FN static __device__ __forceinline__
#define T_ALIGNED(bytes) __align__(bytes)
#define T_UNROLL _Pragma("unroll")
/* Of a long loop a few iterations at a time: all of them take registers that others need. */
#define T_UNROLL_FEW _Pragma("unroll 8")
#define T_UNROLL_FOUR _Pragma("unroll 4")

typedef signed char t_i8;
typedef unsigned char t_u8;
typedef short t_i16;
typedef unsigned short t_u16;
typedef int t_i32;
typedef unsigned int t_u32;
typedef long long t_i64;
typedef unsigned long long t_u64;
/* What one access loads or stores: types of CUDA, because the compiler takes structures of others apart
   when it stores them. */
typedef uint2 t_v8;
typedef uint4 t_v16;

/* The shared memory of a block; a launch says how large it is. */
extern __shared__ T_ALIGNED(16) unsigned char t_arena[];

FN int t_thread(void) { return (int)threadIdx.x; }
FN t_i64 t_block(void) { return (t_i64)blockIdx.x; }

/* All threads of the block meet. */
FN void t_barrier(void) { __syncthreads(); }
/* All threads of the warp meet. */
FN void t_warp_barrier(void) { __syncwarp(); }

/* The number of another thread of the warp: that whose lane differs in the bits of the mask. */
FN float t_shuffle_f(float x, int mask) { return __shfl_xor_sync(0xffffffffu, x, mask); }
FN double t_shuffle_d(double x, int mask) { return __shfl_xor_sync(0xffffffffu, x, mask); }
FN t_i64 t_shuffle_i(t_i64 x, int mask) { return __shfl_xor_sync(0xffffffffu, x, mask); }
FN t_u64 t_shuffle_u(t_u64 x, int mask) { return __shfl_xor_sync(0xffffffffu, x, mask); }

FN t_u32 t_bits(float x) { return __float_as_uint(x); }
FN float t_of_bits(t_u32 x) { return __uint_as_float(x); }

FN float t_float_of_half(t_u16 x) { float y; asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x)); return y; }
FN t_u16 t_half_of_float(float x) { t_u16 y; asm("cvt.rn.f16.f32 %0, %1;" : "=h"(y) : "f"(x)); return y; }
FN float t_float_of_bf16(t_u16 x) { return __uint_as_float((t_u32)x << 16); }
FN t_u16 t_bf16_of_float(float x) { t_u16 y; asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(y) : "f"(x)); return y; }

/* d += a b with a: [16, 16] by rows, b: [16, 8] by columns, d: [16, 8], spread over the warp as
   `mma.sync.aligned.m16n8k16` has them. */
FN void t_mma_bf16(float *d, const t_u32 *a, const t_u32 *b) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
        "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
FN void t_mma_f16(float *d, const t_u32 *a, const t_u32 *b) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
        "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

/* Four matrices of 8 rows of 8 elements of 16 bits, from shared memory: the lanes say where the rows
   are, and get two neighbours of a row each, or, turned, of a column. */
FN void t_load_matrices(t_u32 *to, const t_u16 *row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
        : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
        : "r"((t_u32)__cvta_generic_to_shared(row)) : "memory");
}
FN void t_load_matrices_turned(t_u32 *to, const t_u16 *row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
        : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
        : "r"((t_u32)__cvta_generic_to_shared(row)) : "memory");
}
/* Two numbers as neighbours of 16 bits, the first one low. */
FN t_u32 t_pack_bf16(float a, float b) {
    t_u32 y;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(y) : "f"(b), "f"(a));
    return y;
}
FN t_u32 t_pack_f16(float a, float b) {
    t_u32 y;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(y) : "f"(b), "f"(a));
    return y;
}

/* 16 bytes to shared memory, or zeros, on their way until they are waited for. */
FN void t_copy_async(void *to, const void *from, int there) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
        :: "r"((t_u32)__cvta_generic_to_shared(to)), "l"(__cvta_generic_to_global(from)), "r"(there ? 16 : 0)
        : "memory");
}
/* What is on its way is a group. */
FN void t_commit(void) { asm volatile("cp.async.commit_group;" ::: "memory"); }
/* All groups but the newest, or the newest two, are there. */
FN void t_wait_but_one(void) { asm volatile("cp.async.wait_group 1;" ::: "memory"); }
FN void t_wait_but_two(void) { asm volatile("cp.async.wait_group 2;" ::: "memory"); }

FN float t_exp2_f(float x) { float y; asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x)); return y; }
FN float t_log2_f(float x) { return log2f(x); }
FN float t_exp_f(float x) { return expf(x); }
FN float t_log_f(float x) { return logf(x); }
FN float t_log1p_f(float x) { return log1pf(x); }
FN float t_expm1_f(float x) { return expm1f(x); }
FN double t_expm1_d(double x) { return expm1(x); }
FN float t_tanh_f(float x) { return tanhf(x); }
FN float t_erf_f(float x) { return erff(x); }
FN float t_erfc_f(float x) { return erfcf(x); }
FN float t_sqrt_f(float x) { return sqrtf(x); }
FN float t_sin_f(float x) { return sinf(x); }
FN float t_cos_f(float x) { return cosf(x); }
FN float t_pow_f(float x, float y) { return powf(x, y); }
FN float t_fmod_f(float x, float y) { return fmodf(x, y); }
FN float t_floor_f(float x) { return floorf(x); }
FN float t_ceil_f(float x) { return ceilf(x); }
FN float t_round_f(float x) { return rintf(x); }
FN double t_exp_d(double x) { return exp(x); }
FN double t_log_d(double x) { return log(x); }
FN double t_log1p_d(double x) { return log1p(x); }
FN double t_tanh_d(double x) { return tanh(x); }
FN double t_erf_d(double x) { return erf(x); }
FN double t_erfc_d(double x) { return erfc(x); }
FN double t_sqrt_d(double x) { return sqrt(x); }
FN double t_sin_d(double x) { return sin(x); }
FN double t_cos_d(double x) { return cos(x); }
FN double t_pow_d(double x, double y) { return pow(x, y); }
FN double t_fmod_d(double x, double y) { return fmod(x, y); }
FN double t_floor_d(double x) { return floor(x); }
FN double t_ceil_d(double x) { return ceil(x); }
FN double t_round_d(double x) { return rint(x); }
