/* The driver of a GPU that is not there: what the product calls of it, for tests.

   Memory of the device is memory of the host, filled with what no kernel has written, between pages
   that may not be touched. What is issued on streams is kept, and done when somebody waits, in a random
   order that obeys nothing but the order of each stream and the events that are waited for: a wait that
   is missing shows as a wrong answer. Kernels come as sources; they are compiled by `cc` with the
   primitives of the host, and threads are fibers. What a driver would refuse, or never notice, is an
   error: handles that are none, memory that has been given back, arguments that are not aligned, events
   that were never recorded, waiting on the host for what is being captured.

   Where a file says how fast it is (`planted.h`), nothing is computed: a clock goes on by what that says.

   `DEVICE` and `HOST` are the files of the primitives, `HOST_MAIN` the one that runs blocks, `COMPILED`
   where compiled kernels are kept, and `FOLDER` where this driver has copies of them: there may be two
   drivers in a process, and what a library has of variables is once for each file. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <math.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

typedef uint64_t u64;
enum { FINE, INVALID = 1, NO_MEMORY = 2, UNREADY = 600, ILLEGAL = 700, MISALIGNED = 716, HANDLE = 400, ABSENT = 500, FAILED = 719, CAPTURE = 900 };
enum { FIRST = 7, PAGE = 4096, MOST = 128, PLAIN_SHARED = 48 << 10, MOST_SHARED = 227 << 10 };
#define ANY (u64)1

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char message[1024];
static int sticky, paused;
static u64 state = 0x1234567;
static int planted;

/* What a call fails with, and why. */
static int fail(int code, const char *why, ...) {
    va_list rest;
    va_start(rest, why);
    vsnprintf(message, sizeof message, why, rest);
    va_end(rest);
    return code;
}
#define CALL(body) do { pthread_mutex_lock(&lock); int status_ = sticky; if (!status_) status_ = (body); pthread_mutex_unlock(&lock); return status_; } while (0)

static int devices(void) {
    const char *said = getenv("EMULATED_GPUS");
    return said ? atoi(said) : 1;
}

static u64 drawn(void) {
    u64 x = (state += 0x9e3779b97f4a7c15u);
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

/* Memory. */
typedef struct { unsigned char *start; size_t bytes; int there, host; } piece;
static piece *pieces;
static size_t piece_count;

static piece *piece_of(u64 address, int host) {
    for (size_t at = 0; at < piece_count; at++) {
        piece *it = &pieces[at];
        if (it->host == host && address >= (u64)it->start && address < (u64)it->start + it->bytes) return it;
    }
    return 0;
}

/* Whether bytes are memory of the device. */
static int touched(u64 address, size_t bytes, const char *what) {
    piece *it = piece_of(address, 0);
    if (!it) return fail(ILLEGAL, "%s: %llx is no memory of the device", what, (unsigned long long)address);
    if (!it->there) return fail(ILLEGAL, "%s: memory that has been given back", what);
    if (address + bytes > (u64)it->start + it->bytes) return fail(ILLEGAL, "%s: %zu bytes leave their piece", what, bytes);
    return FINE;
}

static size_t whole_memory = (size_t)4 << 30;
static size_t allocated(void) {
    size_t all = 0;
    for (size_t at = 0; at < piece_count; at++) if (pieces[at].there && !pieces[at].host) all += pieces[at].bytes;
    return all;
}
static int allocate(void **to, size_t bytes, int host) {
    if (!host && bytes > whole_memory - allocated()) return fail(NO_MEMORY, "%zu bytes", bytes);
    size_t whole = (bytes + PAGE - 1) / PAGE * PAGE;
    unsigned char *pages = mmap(0, whole + 2 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (!bytes) return fail(INVALID, "no bytes are asked for");
    if (pages == MAP_FAILED || mprotect(pages + PAGE, whole, PROT_READ | PROT_WRITE)) return fail(NO_MEMORY, "%zu bytes", bytes);
    if (!planted) memset(pages + PAGE, 0xff, whole);
    pieces = realloc(pieces, (piece_count + 1) * sizeof *pieces);
    pieces[piece_count++] = (piece){pages + PAGE, bytes, 1, host};
    *to = pages + PAGE;
    return FINE;
}

/* Streams and what is issued on them. */
typedef struct { int over; double seconds; struct capture *in; int number, awaited; } moment;
typedef struct { u64 kind; moment *last; int timed; } event;
typedef struct { void *entry, *run; char name[128], parameters[4096]; int count, threads, shared; u64 pointers[MOST / 64]; int aligned[MOST]; } function;
typedef enum { COPY, FILL, LAUNCH, RECORD, WAIT, CALLED, AWAITED } what;
typedef struct op {
    what what;
    double starting, computing, moving;
    struct op *next;
    struct stream *stream;
    u64 to, from;
    size_t bytes;
    int byte;
    moment *moment;
    function *function;
    u64 blocks, threads, shared, *arguments;
    void (*called)(void *);
    int (*awaited)(void *);
    void *data;
    int data_bytes;
} op;
typedef struct stream { u64 kind; op *first, **last; struct capture *capture; struct stream *next; int own; } stream;
typedef struct capture { stream *origin; op **ops; int count, moments; } capture;
enum { STREAM = 0x57524541, EVENT = 0x4556454e, DEAD = 0xdead };
static stream *streams;

static stream *made_stream(int own) {
    stream *it = calloc(1, sizeof *it);
    it->kind = STREAM;
    it->last = &it->first;
    it->own = own;
    it->next = streams;
    return streams = it;
}

typedef int (*runner)(const char *, void *, u64, u64, u64, u64 *, int, u64);

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

#include PLANTED

static int done(op *it) {
    if (planted) return passed(it);
    switch (it->what) {
    case COPY: memmove((void *)it->to, (void *)it->from, it->bytes); return FINE;
    case FILL: memset((void *)it->to, it->byte, it->bytes); return FINE;
    case RECORD: it->moment->over = 1; it->moment->seconds = now(); return FINE;
    case CALLED: it->called(it->data); return FINE;
    case WAIT: case AWAITED: return FINE;
    case LAUNCH:
        for (int at = 0; at < it->function->count; at++) {
            if (!(it->function->pointers[at / 64] >> at % 64 & 1)) continue;
            int status = touched(it->arguments[at], ANY, it->function->name);
            if (status) return status;
        }
        if (((runner)it->function->run)(it->function->name, it->function->entry, it->blocks, it->threads, it->shared, it->arguments, it->function->count, drawn()))
            return fail(FAILED, "%s failed: the standard error says why", it->function->name);
        return FINE;
    }
    return FAILED;
}

/* Whether the first thing of a stream may be done. */
static int may_be_done(const op *it) {
    if (it->what == WAIT) return it->moment->over;
    return it->what != AWAITED || it->awaited(it->data);
}

/* Whether something is awaited that comes from elsewhere. */
static int awaits(void) {
    for (stream *it = streams; it; it = it->next) if (it->first && it->first->what == AWAITED) return 1;
    return 0;
}

/* Does one thing that may be done next; whether there was one. */
static int one(void) {
    stream *ready[256];
    int count = 0;
    for (stream *it = streams; it && count < 256; it = it->next) {
        if (it->first && may_be_done(it->first)) ready[count++] = it;
    }
    if (!count) return 0;
    stream *chosen = ready[drawn() % (u64)count];
    op *first = chosen->first;
    int status = done(first);
    if (status) { sticky = status; fprintf(stderr, "emulated driver: %s\n", message); }
    chosen->first = first->next;
    if (!chosen->first) chosen->last = &chosen->first;
    free(first->arguments);
    free(first->data_bytes ? first->data : 0);
    free(first);
    /* Streams of a replay are gone with what is on them. */
    if (!chosen->own && !chosen->first && !paused) {
        for (stream **at = &streams; *at; at = &(*at)->next) if (*at == chosen) { *at = chosen->next; break; }
        free(chosen);
    }
    return 1;
}

static int emptied(stream *only) {
    for (;;) {
        int left = 0;
        for (stream *it = streams; it; it = it->next) left |= it->first && (!only || it == only);
        if (!left) return sticky;
        if (!one()) {
            if (!awaits()) return fail(FAILED, "streams wait for each other");
            usleep(100);
        }
        if (sticky) return sticky;
    }
}

static int issued(stream *on, op given) {
    if (!on || on->kind != STREAM) return fail(HANDLE, "no stream");
    op *it = malloc(sizeof *it);
    *it = given;
    it->stream = on;
    it->next = 0;
    if (on->capture) {
        capture *in = on->capture;
        in->ops = realloc(in->ops, (size_t)(in->count + 1) * sizeof *in->ops);
        in->ops[in->count++] = it;
        return FINE;
    }
    *on->last = it;
    on->last = &it->next;
    /* Sometimes a device is fast. */
    if (!paused && drawn() % 8 == 0) one();
    return sticky;
}

/* For libraries that issue work that takes so long, apart from what it computes. */
int emulated_takes(void *on, double starting, double computing, double moving) {
    CALL(issued(on, (op){.what = CALLED, .starting = starting, .computing = computing, .moving = moving}));
}
double emulated_speed(const char *what) { return planted ? speed(what) : 0; }

/* For libraries that issue work of their own: what is called with a copy of so many bytes, once, or again
   and again until it says that it is over. */
int emulated_await(void *on, int (*awaited)(void *), const void *data, int bytes) {
    void *copy = malloc((size_t)bytes);
    memcpy(copy, data, (size_t)bytes);
    CALL(((stream *)on)->capture ? fail(CAPTURE, "what is awaited is captured") : issued(on, (op){.what = AWAITED, .awaited = awaited, .data = copy, .data_bytes = bytes}));
}
int emulated_issue(void *on, void (*called)(void *), const void *data, int bytes) {
    void *copy = malloc((size_t)bytes);
    memcpy(copy, data, (size_t)bytes);
    CALL(issued(on, (op){.what = CALLED, .called = called, .data = copy, .data_bytes = bytes}));
}
int emulated_touched(u64 address, size_t bytes, const char *what) { CALL(touched(address, bytes, what)); }

/* A driver that is begun anew has forgotten what was wrong, and everything that was to be done. */
static int initialised(unsigned flags) {
    sticky = 0;
    plant();
    for (stream *it = streams; it; it = it->next) { it->first = 0; it->last = &it->first; it->capture = 0; }
    return flags ? fail(INVALID, "flags") : FINE;
}
int cuInit(unsigned flags) { pthread_mutex_lock(&lock); int status = initialised(flags); pthread_mutex_unlock(&lock); return status; }
int cuDriverGetVersion(int *to) { *to = 13000; return FINE; }
/* As many devices as the environment says, or one; a process uses one of them. */
static int own = FIRST;
static int there(int device) { return device >= FIRST && device < FIRST + devices() ? FINE : fail(101, "no device"); }
int emulated_device(void) { return own - FIRST; }
int cuDeviceGetCount(int *to) { *to = devices(); return FINE; }
int cuDeviceGet(int *to, int number) { *to = own = FIRST + number; return there(own); }
int cuDeviceGetName(char *to, int room, int device) { snprintf(to, (size_t)room, "%s", planted ? planted_name : "emulated GPU"); return there(device); }
int cuDeviceGetUuid_v2(unsigned char *to, int device) { memset(to, device, 16); return there(device); }
int cuDeviceGetAttribute(int *to, int which, int device) {
    int others[][2] = {{75, 9}, {76, 0}, {16, planted ? (int)speed("processors") : 4}, {97, MOST_SHARED}, {13, 1500000}, {36, 2000000}, {37, 1024}, {38, 1 << 17}};
    *to = -1;
    for (int at = 0; at < 8; at++) if (others[at][0] == which) *to = others[at][1];
    return there(device) ? 101 : *to < 0 ? fail(INVALID, "attribute %d", which) : FINE;
}
int cuDeviceTotalMem_v2(size_t *to, int device) { (void)device; *to = whole_memory; return FINE; }
int cuDevicePrimaryCtxRetain(void **to, int device) { *to = &pieces; return there(device); }
int cuDevicePrimaryCtxRelease_v2(int device) { (void)device; return FINE; }
int cuCtxSetCurrent(void *context) { return context == &pieces ? FINE : fail(201, "no context"); }
int cuCtxGetStreamPriorityRange(int *least, int *greatest) { *least = 0; *greatest = -5; return FINE; }
int cuMemGetInfo_v2(size_t *free_, size_t *all) {
    pthread_mutex_lock(&lock);
    *all = whole_memory;
    *free_ = whole_memory - allocated();
    pthread_mutex_unlock(&lock);
    return FINE;
}
int cuCtxSynchronize(void) { CALL(emptied(0)); }
int cuMemAlloc_v2(u64 *to, size_t bytes) { CALL(allocate((void **)to, bytes, 0)); }
int cuMemHostAlloc(void **to, size_t bytes, unsigned flags) { (void)flags; CALL(allocate(to, bytes, 1)); }

static int forgotten(u64 start, int host) {
    int status = emptied(0);
    piece *it = piece_of(start, host);
    if (status) return status;
    if (!it || !it->there || (u64)it->start != start) return fail(INVALID, "what is given back is no memory");
    it->there = 0;
    size_t whole = (it->bytes + PAGE - 1) / PAGE * PAGE;
    madvise(it->start, whole, MADV_DONTNEED);
    return mprotect(it->start, whole, PROT_NONE) ? fail(INVALID, "mprotect") : FINE;
}
int cuMemFree_v2(u64 start) { CALL(forgotten(start, 0)); }
int cuMemFreeHost(void *start) { CALL(forgotten((u64)start, 1)); }

static int copied(u64 to, u64 from, size_t bytes, void *on, int to_device, int from_device) {
    int status = to_device ? touched(to, bytes, "a copy") : FINE;
    if (!status && from_device) status = touched(from, bytes, "a copy");
    return status ? status : issued(on, (op){.what = COPY, .to = to, .from = from, .bytes = bytes});
}
int cuMemcpyHtoDAsync_v2(u64 to, const void *from, size_t bytes, void *on) { CALL(copied(to, (u64)from, bytes, on, 1, 0)); }
int cuMemcpyDtoHAsync_v2(void *to, u64 from, size_t bytes, void *on) { CALL(copied((u64)to, from, bytes, on, 0, 1)); }
int cuMemcpyDtoDAsync_v2(u64 to, u64 from, size_t bytes, void *on) { CALL(copied(to, from, bytes, on, 1, 1)); }
static int filled(u64 to, int byte, size_t bytes, void *on) {
    int status = touched(to, bytes, "filling");
    return status ? status : issued(on, (op){.what = FILL, .to = to, .byte = byte, .bytes = bytes});
}
int cuMemsetD8Async(u64 to, unsigned char byte, size_t bytes, void *on) { CALL(filled(to, byte, bytes, on)); }

int cuStreamCreateWithPriority(stream **to, unsigned flags, int priority) {
    pthread_mutex_lock(&lock);
    *to = made_stream(1);
    pthread_mutex_unlock(&lock);
    return flags == 1 && priority <= 0 && priority >= -5 ? FINE : fail(INVALID, "flags or priority");
}
static int dropped(stream *it) {
    if (!it || it->kind != STREAM) return fail(HANDLE, "no stream");
    int status = emptied(it);
    it->kind = DEAD;
    for (stream **at = &streams; *at; at = &(*at)->next) if (*at == it) { *at = it->next; break; }
    return status;
}
int cuStreamDestroy_v2(stream *it) { CALL(dropped(it)); }
static int waited(stream *it) {
    if (!it || it->kind != STREAM) return fail(HANDLE, "no stream");
    if (it->capture) return fail(CAPTURE, "the host waits for what is captured");
    int status = emptied(it);
    rested();
    return status;
}
int cuStreamSynchronize(stream *it) { CALL(waited(it)); }
static int asked(stream *it) {
    if (!it || it->kind != STREAM) return fail(HANDLE, "no stream");
    if (it->capture) return fail(CAPTURE, "the host looks at what is captured");
    while (it->first && one()) if (sticky) return sticky;
    if (!it->first) return sticky;
    return awaits() ? fail(UNREADY, "not ready") : fail(FAILED, "streams wait for each other");
}
int cuStreamQuery(stream *it) { CALL(asked(it)); }

int cuEventCreate(event **to, unsigned flags) {
    *to = calloc(1, sizeof **to);
    (*to)->kind = EVENT;
    (*to)->timed = flags == 0;
    return flags == 0 || flags == 2 ? FINE : fail(INVALID, "flags");
}
int cuEventDestroy_v2(event *it) { if (!it || it->kind != EVENT) return fail(HANDLE, "no event"); it->kind = DEAD; return FINE; }
static int recorded(event *it, stream *on) {
    if (!it || it->kind != EVENT) return fail(HANDLE, "no event");
    if (!on || on->kind != STREAM) return fail(HANDLE, "no stream");
    moment *new = calloc(1, sizeof *new);
    new->in = on->capture;
    if (new->in) new->number = new->in->moments++;
    it->last = new;
    return issued(on, (op){.what = RECORD, .moment = new});
}
int cuEventRecord(event *it, stream *on) { CALL(recorded(it, on)); }
static int told(stream *on, event *it, unsigned flags) {
    if (!it || it->kind != EVENT) return fail(HANDLE, "no event");
    if (!on || on->kind != STREAM || flags) return fail(HANDLE, "no stream");
    if (!it->last) return fail(INVALID, "an event is waited for that was never recorded");
    it->last->awaited = 1;
    if (it->last->in) {
        if (on->capture && on->capture != it->last->in) return fail(CAPTURE, "two captures meet");
        on->capture = it->last->in;
    } else if (on->capture) {
        return fail(CAPTURE, "what is captured waits for what is not");
    }
    return issued(on, (op){.what = WAIT, .moment = it->last});
}
int cuStreamWaitEvent(stream *on, event *it, unsigned flags) { CALL(told(on, it, flags)); }
static int reached(event *it) {
    if (!it || it->kind != EVENT || !it->last) return fail(HANDLE, "no event, or one never recorded");
    while (!it->last->over) if (!one() || sticky) return sticky ? sticky : fail(FAILED, "streams wait for each other");
    rested();
    return FINE;
}
int cuEventSynchronize(event *it) { CALL(reached(it)); }
int cuEventElapsedTime(float *to, event *from, event *until) {
    if (!from->timed || !until->timed || !from->last || !until->last) return fail(HANDLE, "events without times");
    *to = (float)(1e3 * (until->last->seconds - from->last->seconds));
    return FINE;
}

/* Modules: sources, compiled with the primitives of the host in place of those of the device. */
typedef struct { u64 kind; void *library; char *source; } module;
enum { MODULE = 0x4d4f4455 };

static char *read_all(const char *path) {
    FILE *file = fopen(path, "rb");
    if (!file) return 0;
    fseek(file, 0, SEEK_END);
    long bytes = ftell(file);
    rewind(file);
    char *text = calloc(1, (size_t)bytes + 1);
    if (fread(text, 1, (size_t)bytes, file) != (size_t)bytes) text[0] = 0;
    fclose(file);
    return text;
}

static const char *BEFORE =
    "#define _GNU_SOURCE\n#include <stdlib.h>\n#include <stdio.h>\n"
    "static void t_gone(void) __attribute__((noreturn));\n#define exit(code) t_gone()\n";
static const char *BETWEEN = "\n#undef KERNEL\n#define KERNEL(threads) void\n"
                             "#undef KERNEL_ALONE\n#define KERNEL_ALONE(threads) void\n";
static const char *AFTER =
    "\nstatic void *t_back[5];\nstatic void t_gone(void) { __builtin_longjmp(t_back, 1); }\n"
    "typedef void (*t_called)();\nstatic void *t_which;\n"
    "#define A8(n) g[n], g[n+1], g[n+2], g[n+3], g[n+4], g[n+5], g[n+6], g[n+7]\n"
    "static void t_go(void **given) { t_u64 *g = (t_u64 *)given;\n"
    "    ((t_called)t_which)(A8(0), A8(8), A8(16), A8(24), A8(32), A8(40), A8(48), A8(56), A8(64), A8(72), A8(80), A8(88)); }\n"
    "int emulated_run(const char *what, void *entry, t_u64 blocks, t_u64 threads, t_u64 shared, t_u64 *given, int count, t_u64 seed) {\n"
    "    static t_u64 all[128];\n"
    "    memcpy(all, given, sizeof(t_u64) * (size_t)count);\n"
    "    t_which = entry; t_state = seed;\n"
    "    if (__builtin_setjmp(t_back)) return 1;\n"
    "    t_run(what, t_go, (void **)all, blocks, threads, shared);\n"
    "    return 0;\n}\n";

static u64 hashed(const char *text, u64 hash) {
    for (; *text; text++) hash = (hash ^ (unsigned char)*text) * 0x100000001b3u;
    return hash;
}

static int loaded(module **to, const char *image) {
    char *device = read_all(DEVICE), *host = read_all(HOST), *main_ = read_all(HOST_MAIN);
    if (!device || !host || !main_) return fail(INVALID, "the primitives are not there");
    size_t prefix = strlen(device);
    if (strncmp(image, device, prefix)) return fail(INVALID, "an image that does not begin with the primitives");
    const char *parts[] = {BEFORE, host, BETWEEN, image + prefix, main_, AFTER};
    u64 hash[2] = {0xcbf29ce484222325u, 0x9ae16a3b2f90404fu};
    for (int at = 0; at < 6; at++) { hash[0] = hashed(parts[at], hash[0]); hash[1] = hashed(parts[at], hash[1]); }
    char path[512], kept[512], other[600], command[2048];
    snprintf(path, sizeof path, FOLDER "/%016llx%016llx.so", (unsigned long long)hash[0], (unsigned long long)hash[1]);
    snprintf(kept, sizeof kept, COMPILED "/%016llx%016llx.so", (unsigned long long)hash[0], (unsigned long long)hash[1]);
    snprintf(other, sizeof other, "%s.%d", path, (int)getpid());
    if (access(kept, R_OK)) {
        char source[620];
        snprintf(source, sizeof source, "%s.c", other);
        FILE *file = fopen(source, "wb");
        if (!file) return fail(INVALID, "%s cannot be written", source);
        for (int at = 0; at < 6; at++) fputs(parts[at], file);
        fclose(file);
        snprintf(command, sizeof command, "cc -O1 -std=gnu11 -fwrapv -fno-strict-aliasing -w -fPIC -shared -Wl,-Bsymbolic -o '%s' '%s' -lm", other, source);
        if (system(command)) return fail(INVALID, "%s does not compile", source);
        unlink(source);
        if (rename(other, kept)) return fail(INVALID, "%s cannot be renamed", other);
    }
    if (access(path, R_OK)) {
        snprintf(command, sizeof command, "cp '%s' '%s'", kept, other);
        if (system(command) || rename(other, path)) return fail(INVALID, "%s cannot be copied", kept);
    }
    module *it = calloc(1, sizeof *it);
    it->kind = MODULE;
    it->library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    it->source = strdup(image + prefix);
    free(device); free(host); free(main_);
    *to = it;
    return it->library ? FINE : fail(INVALID, "%s", dlerror());
}
int cuModuleLoadData(module **to, const char *image) { CALL(loaded(to, image)); }
int cuModuleUnload(module *it) {
    if (!it || it->kind != MODULE) return fail(HANDLE, "no module");
    it->kind = DEAD;
    return FINE;
}

static int found(function **to, module *of, const char *name) {
    char named[160];
    if (!of || of->kind != MODULE) return fail(HANDLE, "no module");
    snprintf(named, sizeof named, " %s(", name);
    char *at = strstr(of->source, named);
    void *entry = dlsym(of->library, name);
    if (!at || !entry) return fail(ABSENT, "no kernel %s", name);
    function *it = calloc(1, sizeof *it);
    it->entry = entry;
    it->run = dlsym(of->library, "emulated_run");
    snprintf(it->name, sizeof it->name, "%s", name);
    char *kernel = at;
    while (kernel > of->source && strncmp(kernel, "KERNEL", 6)) kernel--;
    kernel = strchr(kernel, '(');
    it->threads = kernel ? atoi(kernel + 1) : 0;
    char *closed = strchr(at, ')');
    snprintf(it->parameters, sizeof it->parameters, "%.*s", closed ? (int)(closed - at) : 0, at);
    it->count = 1;
    /* Elements of values are loaded several at once; numbers of 32 bits are counts in a work's room. */
    int single = 0;
    for (at += strlen(named); *at && *at != ')' && it->count < MOST; at++) {
        if (*at == ',') { it->count++; single = 0; }
        if (!strncmp(at, "t_i32 *", 7)) single = 1;
        if (*at != '*') continue;
        it->pointers[(it->count - 1) / 64] |= (u64)1 << (it->count - 1) % 64;
        it->aligned[it->count - 1] = single ? 4 : 16;
    }
    *to = it;
    return it->count <= 96 ? FINE : fail(INVALID, "%s has too many arguments", name);
}
int cuModuleGetFunction(function **to, module *of, const char *name) { CALL(found(to, of, name)); }
int cuFuncSetAttribute(function *it, int which, int value) {
    if (which != 8 || value > MOST_SHARED) return fail(INVALID, "attribute %d is %d", which, value);
    it->shared = value;
    return FINE;
}
static int launched(function *it, unsigned x, unsigned y, unsigned z, unsigned threads, unsigned t, unsigned u, unsigned shared, stream *on, void **given, void **extra) {
    if (y != 1 || z != 1 || t != 1 || u != 1 || extra || !x || !threads || x > 0x7fffffff) return fail(INVALID, "%s: the launch", it->name);
    if ((int)threads > it->threads) return fail(INVALID, "%s: %u threads, it is made for %d", it->name, threads, it->threads);
    if (shared > PLAIN_SHARED && (int)shared > it->shared) return fail(INVALID, "%s: %u bytes of shared memory were not asked for", it->name, shared);
    u64 *arguments = malloc(sizeof(u64) * (size_t)it->count);
    for (int at = 0; at < it->count; at++) {
        arguments[at] = *(u64 *)given[at];
        if (!(it->pointers[at / 64] >> at % 64 & 1)) continue;
        if (arguments[at] % (u64)it->aligned[at]) return fail(MISALIGNED, "%s: argument %d", it->name, at);
        int status = touched(arguments[at], ANY, it->name);
        if (status) return status;
    }
    return issued(on, (op){.what = LAUNCH, .function = it, .blocks = x, .threads = threads, .shared = shared, .arguments = arguments});
}
int cuLaunchKernel(function *it, unsigned x, unsigned y, unsigned z, unsigned threads, unsigned t, unsigned u, unsigned shared, stream *on, void **given, void **extra) {
    CALL(launched(it, x, y, z, threads, t, u, shared, on, given, extra));
}

/* Captured work: issued again on streams of its own, which begin and end with the stream it is on. */
static int begun(stream *on, int mode) {
    if (!on || on->kind != STREAM || on->capture || mode > 2) return fail(CAPTURE, "nothing can be captured there");
    on->capture = calloc(1, sizeof *on->capture);
    on->capture->origin = on;
    return FINE;
}
int cuStreamBeginCapture_v2(stream *on, int mode) { CALL(begun(on, mode)); }
static int ended(stream *on, capture **to) {
    if (!on || on->kind != STREAM || !on->capture || on->capture->origin != on) return fail(CAPTURE, "nothing is captured there");
    capture *it = on->capture;
    for (stream *other = streams; other; other = other->next) {
        if (other->capture != it) continue;
        op *last = 0;
        for (int at = 0; at < it->count; at++) if (it->ops[at]->stream == other) last = it->ops[at];
        other->capture = 0;
        if (other != on && last && (last->what != RECORD || !last->moment->awaited)) return fail(CAPTURE, "a stream has not been joined");
    }
    *to = it;
    return FINE;
}
int cuStreamEndCapture(stream *on, capture **to) { CALL(ended(on, to)); }
int cuGraphInstantiateWithFlags(capture **to, capture *of, u64 flags) { *to = of; return flags ? fail(INVALID, "flags") : FINE; }
int cuGraphDestroy(capture *it) { return it ? FINE : fail(HANDLE, "no graph"); }
int cuGraphExecDestroy(capture *it) { return it ? FINE : fail(HANDLE, "no graph"); }

static int replayed(capture *it, stream *on) {
    if (!it || !on || on->kind != STREAM || on->capture) return fail(HANDLE, "no graph, or no stream");
    stream *from[256], *to[256];
    int count = 0, status = FINE;
    moment **moments = calloc((size_t)it->moments + 1, sizeof *moments), *start = calloc(1, sizeof *start);
    for (int at = 0; at < it->moments; at++) moments[at] = calloc(1, sizeof **moments);
    status = issued(on, (op){.what = RECORD, .moment = start});
    for (int at = 0; at < it->count && !status; at++) {
        op copy = *it->ops[at];
        int place = 0;
        while (place < count && from[place] != copy.stream) place++;
        if (place == 256) return fail(CAPTURE, "too many streams");
        if (place == count) {
            from[count] = copy.stream;
            to[count++] = made_stream(0);
            status = issued(to[place], (op){.what = WAIT, .moment = start});
        }
        if (copy.what == RECORD || copy.what == WAIT) copy.moment = moments[copy.moment->number];
        if (copy.what == LAUNCH) {
            size_t bytes = sizeof(u64) * (size_t)copy.function->count;
            copy.arguments = memcpy(malloc(bytes), copy.arguments, bytes);
        }
        if (copy.what == CALLED) copy.data = memcpy(malloc((size_t)copy.data_bytes), copy.data, (size_t)copy.data_bytes);
        if (!status) status = issued(to[place], copy);
    }
    for (int place = 0; place < count && !status; place++) {
        moment *end = calloc(1, sizeof *end);
        status = issued(to[place], (op){.what = RECORD, .moment = end});
        if (!status) status = issued(on, (op){.what = WAIT, .moment = end});
    }
    return status;
}
static int replayed_at_once(capture *it, stream *on) {
    paused = 1;
    int status = replayed(it, on);
    paused = 0;
    return status;
}
int cuGraphLaunch(capture *it, stream *on) { CALL(replayed_at_once(it, on)); }

int cuGetErrorString(int status, const char **to) { *to = message; return status ? FINE : INVALID; }

