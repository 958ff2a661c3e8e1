/* Matrix products on a GPU that is not there, for tests: descriptions as the library has them, plain
   loops. Some of the algorithms that it offers do not run, and some use their workspace. `DRIVER` is the
   file of the driver: there may be two in a process. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef uint64_t u64;
enum { FINE = 0, INVALID = 7, UNSUPPORTED = 15, ALGORITHM = 0x414c474f };
enum { F32 = 0, F64 = 1, F16 = 2, BF16 = 14 };
typedef struct { int compute, scale, turned[2]; } operation;
typedef struct { int type; u64 rows, columns; int64_t distance; int count; int64_t batch; } layout;
typedef struct { u64 workspace; unsigned aligned[4]; } wish;
typedef struct { u64 data[8]; } algorithm;
typedef struct { algorithm algorithm; size_t workspace; int state; float waves; int reserved[4]; } offer;
typedef struct { operation op; layout a, b, d; const void *x, *y, *z; void *to, *workspace; size_t used; double alpha, beta; } job;

/* A function of the driver that is beside this library. */
static void *of_driver(const char *name) { return dlsym(dlopen(DRIVER, RTLD_LAZY | RTLD_NOLOAD), name); }

static const char *why = "fine";
static int refused(int code, const char *text) { why = text; return code; }

int cublasLtCreate(void **to) { static int library; *to = &library; return FINE; }
int cublasLtDestroy(void *it) { return it ? FINE : INVALID; }
size_t cublasLtGetVersion(void) { return 130000; }
const char *cublasLtGetStatusString(int status) { return status ? why : "fine"; }
int cublasLtMatmulDescCreate(operation **to, int compute, int scale) {
    *to = calloc(1, sizeof **to);
    **to = (operation){compute, scale, {0, 0}};
    return (compute == 68 && scale == F32) || (compute == 70 && scale == F64) ? FINE : refused(INVALID, "compute type");
}
int cublasLtMatmulDescDestroy(operation *it) { free(it); return FINE; }
int cublasLtMatmulDescSetAttribute(operation *it, int which, const void *value, size_t bytes) {
    if (bytes != 4 || (which != 3 && which != 4)) return refused(INVALID, "attribute of an operation");
    memcpy(&it->turned[which - 3], value, 4);
    return FINE;
}
int cublasLtMatrixLayoutCreate(layout **to, int type, u64 rows, u64 columns, int64_t distance) {
    *to = calloc(1, sizeof **to);
    **to = (layout){type, rows, columns, distance, 1, 0};
    return distance >= (int64_t)rows && rows && columns ? FINE : refused(INVALID, "columns that overlap");
}
int cublasLtMatrixLayoutDestroy(layout *it) { free(it); return FINE; }
int cublasLtMatrixLayoutSetAttribute(layout *it, int which, const void *value, size_t bytes) {
    if (which == 5 && bytes == 4) { memcpy(&it->count, value, 4); return FINE; }
    if (which == 6 && bytes == 8) { memcpy(&it->batch, value, 8); return FINE; }
    return refused(INVALID, "attribute of a layout");
}
int cublasLtMatmulPreferenceCreate(wish **to) {
    *to = calloc(1, sizeof **to);
    for (int at = 0; at < 4; at++) (*to)->aligned[at] = 256;
    return FINE;
}
int cublasLtMatmulPreferenceDestroy(wish *it) { free(it); return FINE; }
int cublasLtMatmulPreferenceSetAttribute(wish *it, int which, const void *value, size_t bytes) {
    if (which == 1 && bytes == 8) { memcpy(&it->workspace, value, 8); return FINE; }
    if (which >= 5 && which <= 8 && bytes == 4) { memcpy(&it->aligned[which - 5], value, 4); return FINE; }
    return refused(INVALID, "attribute of a preference");
}

static int fits(const operation *op, const layout *a, const layout *b, const layout *d) {
    u64 rows = op->turned[0] ? a->columns : a->rows, length = op->turned[0] ? a->rows : a->columns;
    u64 columns = op->turned[1] ? b->rows : b->columns, other = op->turned[1] ? b->columns : b->rows;
    return rows == d->rows && columns == d->columns && length == other && a->type == b->type && a->count == d->count && b->count == d->count;
}
int cublasLtMatmulAlgoGetHeuristic(void *library, operation *op, layout *a, layout *b, layout *c, layout *d, wish *wished, int most, offer *to, int *count) {
    if (!library || c != d || !fits(op, a, b, d)) return refused(INVALID, "shapes");
    int alike = a->type == d->type || ((a->type == BF16 || a->type == F16) && d->type == F32);
    if (!alike) return refused(UNSUPPORTED, "types");
    *count = 0;
    for (int number = 0; number < 3 && *count < most; number++) {
        size_t used = number == 2 ? 4096 : 0;
        if (used > wished->workspace) continue;
        to[*count] = (offer){.algorithm = {{ALGORITHM, (u64)number, used, wished->aligned[0]}}, .workspace = used};
        (*count)++;
    }
    return FINE;
}

static double number(const void *from, int type, int64_t at) {
    union { uint32_t bits; float value; } single;
    if (type == F64) return ((const double *)from)[at];
    if (type == F32) return ((const float *)from)[at];
    uint16_t half = ((const uint16_t *)from)[at];
    if (type == BF16) { single.bits = (uint32_t)half << 16; return single.value; }
    int exponent = half >> 10 & 31, mantissa = half & 1023;
    double size = exponent == 31 ? (mantissa ? NAN : INFINITY) : exponent ? ldexp(1024 + mantissa, exponent - 25) : ldexp(mantissa, -24);
    return half & 0x8000 ? -size : size;
}
static void store(void *to, int type, int64_t at, double value) {
    union { uint32_t bits; float value; } single = {.value = (float)value};
    if (type == F64) ((double *)to)[at] = value;
    else if (type == F32) ((float *)to)[at] = single.value;
    else if (type == BF16) {
        uint32_t bits = single.bits;
        ((uint16_t *)to)[at] = value != value ? 0x7fc0 : (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
    } else {
        _Float16 half = (_Float16)single.value;
        memcpy((uint16_t *)to + at, &half, 2);
    }
}

static void computed(void *given) {
    const job *it = given;
    u64 length = it->op.turned[0] ? it->a.rows : it->a.columns;
    for (int batch = 0; batch < it->d.count; batch++) {
        for (u64 column = 0; column < it->d.columns; column++) {
            for (u64 row = 0; row < it->d.rows; row++) {
                double wide = 0;
                float narrow = 0;
                int64_t a = batch * it->a.batch + (int64_t)row * (it->op.turned[0] ? it->a.distance : 1);
                int64_t b = batch * it->b.batch + (int64_t)column * (it->op.turned[1] ? 1 : it->b.distance);
                int64_t a_step = it->op.turned[0] ? 1 : it->a.distance, b_step = it->op.turned[1] ? it->b.distance : 1;
                for (u64 k = 0; k < length; k++, a += a_step, b += b_step) {
                    if (it->a.type == F64) wide += ((const double *)it->x)[a] * ((const double *)it->y)[b];
                    else if (it->a.type == F32) narrow += ((const float *)it->x)[a] * ((const float *)it->y)[b];
                    else narrow += (float)number(it->x, it->a.type, a) * (float)number(it->y, it->b.type, b);
                }
                int64_t at = batch * it->d.batch + (int64_t)row + (int64_t)column * it->d.distance;
                double sum = it->alpha * (it->a.type == F64 ? wide : narrow);
                /* What is there is not read where nothing of it counts. */
                if (it->beta != 0) sum += it->beta * number(it->z, it->d.type, at);
                store(it->to, it->d.type, at, sum);
            }
        }
    }
    if (it->used) memset(it->workspace, 0x5a, it->used);
}

/* What a product takes on a GPU whose speed has been planted: in tiles of 128 by 128, 256 by 128 and smaller,
   a wave at a time, sums in one, two or four parts; the best of them. */
static int taken(void *stream, const operation *op, const layout *a, const layout *b, const layout *d, double slower, double kept) {
    double (*speed)(const char *) = of_driver("emulated_speed");
    int (*takes)(void *, double, double, double) = of_driver("emulated_takes");
    static const int tiles[][2] = {{256, 128}, {128, 256}, {128, 128}, {128, 64}, {64, 128}, {64, 64}};
    /* By columns: what a product by rows has as its rows is here the columns of the second operand. */
    double m = (double)d->columns, n = (double)d->rows, k = (double)(op->turned[0] ? a->rows : a->columns), batch = d->count;
    double size = a->type == F64 ? 8 : a->type == F32 ? 4 : 2, out = d->type == F64 ? 8 : d->type == F32 ? 4 : 2;
    double rate = speed(a->type == F64 ? "f64" : a->type == F32 ? "f32" : a->type == F16 ? "f16" : "bf16");
    double role = op->turned[1] ? speed("weight_gradient") : op->turned[0] ? 1 : speed("input_gradient");
    double processors = speed("processors"), best = INFINITY, computing = 0, moving = 0;
    double traffic = batch * ((m * k + k * n) * size + m * n * out * (1 + kept)) / speed("memory");
    for (int at = 0; at < 6; at++) for (int parts = 1; parts <= 4; parts *= 2) {
        double x = 2.0 * tiles[at][0] * tiles[at][1] * processors / rate, y = (tiles[at][0] + tiles[at][1]) * size / speed("feed");
        double step = pow(x * x * x * x + y * y * y * y, 0.25) / role;
        double waves = ceil(parts * batch * ceil(m / tiles[at][0]) * ceil(n / tiles[at][1]) / processors);
        double one = waves * (ceil(k / parts) * step + speed("tile_start"));
        double other = traffic + (parts > 1 ? parts * 8 * batch * m * n / speed("memory") : 0);
        double both = pow(pow(one, 4) + pow(other, 4), 0.25);
        if (both < best) { best = both; computing = one; moving = other; }
    }
    return takes(stream, speed("product_start"), computing * slower, moving * slower);
}

static size_t spanned(const layout *it) {
    size_t size = it->type == F64 ? 8 : it->type == F32 ? 4 : 2;
    return size * (size_t)((it->count - 1) * it->batch + (int64_t)(it->columns - 1) * it->distance + (int64_t)it->rows);
}

int cublasLtMatmul(void *library, operation *op, const void *alpha, const void *x, layout *a, const void *y, layout *b, const void *beta, const void *z, layout *c, void *to, layout *d, const algorithm *how, void *workspace, size_t room, void *stream) {
    int (*issue)(void *, void (*)(void *), const void *, int) = of_driver("emulated_issue");
    int (*touched)(u64, size_t, const char *) = of_driver("emulated_touched");
    if (!library || !issue || c != d || !fits(op, a, b, d)) return refused(INVALID, "a product that was not described");
    if (how->data[0] != ALGORITHM) return refused(INVALID, "no algorithm");
    if (how->data[1] == 1) return refused(UNSUPPORTED, "this algorithm does not run here");
    if (how->data[2] > room) return refused(INVALID, "too little workspace");
    u64 aligned = how->data[3];
    if ((u64)x % aligned || (u64)y % aligned || (u64)to % aligned) return refused(INVALID, "a matrix is not aligned as was said");
    if (touched((u64)x, spanned(a), "a product") || touched((u64)y, spanned(b), "a product") || touched((u64)to, spanned(d), "a product")) return refused(INVALID, "a matrix is no memory of the device");
    if (how->data[2] && touched((u64)workspace, how->data[2], "a workspace")) return refused(INVALID, "the workspace is no memory of the device");
    double one = op->scale == F64 ? *(const double *)alpha : *(const float *)alpha;
    double kept = op->scale == F64 ? *(const double *)beta : *(const float *)beta;
    if (kept != 0 && kept != 1) return refused(INVALID, "a part of what is there");
    if (kept == 0 && z != to) return refused(INVALID, "something is given that nothing is added to");
    if ((u64)z % aligned) return refused(INVALID, "a matrix is not aligned as was said");
    if (touched((u64)z, spanned(d), "a product")) return refused(INVALID, "a matrix is no memory of the device");
    u64 from = (u64)z, end = from + spanned(d), place = (u64)to;
    if (z != to && from < place + spanned(d) && place < end) return refused(INVALID, "a sum is made over a part of what it is added to");
    double (*speed)(const char *) = of_driver("emulated_speed");
    /* Of algorithms that run, that which needs room is slower. */
    if (speed && speed("planted") > 0) return taken(stream, op, a, b, d, how->data[1] ? 1.2 : 1, kept) ? refused(14, "the driver failed") : FINE;
    job it = {*op, *a, *b, *d, x, y, z, to, workspace, how->data[2], one, kept};
    return issue(stream, computed, &it, sizeof it) ? refused(14, "the driver failed") : FINE;
}
