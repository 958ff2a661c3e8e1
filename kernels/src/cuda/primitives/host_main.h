/* Runs kernels as the standard input says: for each request the buffers, then the launches. Every
   number is 64 bits wide. What buffers are returned is written to the standard output. */

typedef struct { const char *name; void (*run)(void **); } t_named;

static void t_read(void *to, size_t bytes) {
    if (fread(to, 1, bytes, stdin) != bytes) t_fail("a request ends early");
}

static t_u64 t_number(void) {
    t_u64 number;
    t_read(&number, sizeof number);
    return number;
}

typedef struct { unsigned char *bytes; t_u64 size, flags; char *pages; size_t room; } t_buffer;
enum { T_GIVEN = 1, T_RETURNED = 2 };

/* A buffer that touches memory that may not be touched, behind it or before it. */
static void t_place(t_buffer *buffer) {
    size_t whole = (buffer->size + T_PAGE - 1) / T_PAGE * T_PAGE;
    buffer->room = whole + 2 * T_PAGE;
    buffer->pages = mmap(0, buffer->room, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (buffer->pages == MAP_FAILED) t_fail("no memory for a buffer");
    if (whole && mprotect(buffer->pages + T_PAGE, whole, PROT_READ | PROT_WRITE)) t_fail("no memory");
    size_t behind = t_random() & 1 ? 0 : (whole - buffer->size) / 16 * 16;
    buffer->bytes = (unsigned char *)buffer->pages + T_PAGE + behind;
    for (size_t at = 0; at < whole; at++) buffer->pages[T_PAGE + at] = (char)0xff;
    if (buffer->flags & T_GIVEN) t_read(buffer->bytes, buffer->size);
    if (whole && !(buffer->flags & T_RETURNED) && buffer->flags & T_GIVEN) mprotect(buffer->pages + T_PAGE, whole, PROT_READ);
}

/* What is beside the elements must be as it was. */
static void t_check_margins(const t_buffer *buffer) {
    size_t whole = buffer->room - 2 * T_PAGE, start = (size_t)(buffer->bytes - (unsigned char *)buffer->pages) - T_PAGE;
    for (size_t at = 0; at < whole; at++) {
        if (at == start) at += buffer->size;
        if (at < whole && buffer->pages[T_PAGE + at] != (char)0xff) t_fail("memory beside a buffer is written");
    }
}

/* How eager the warps of a block are. */
static t_u64 t_eager[T_THREADS / T_LANES];

/* Shared memory of a launch ends where memory ends that may be touched, but for what fills a page. */
static t_u64 t_held;
static void t_share(t_u64 shared) {
    t_u64 pages = (shared + T_PAGE - 1) / T_PAGE * T_PAGE;
    if (pages > t_held) mprotect(t_arena + t_held, pages - t_held, PROT_READ | PROT_WRITE);
    if (pages < t_held) mprotect(t_arena + pages, t_held - pages, PROT_NONE);
    t_held = pages;
}

static void t_run_block(t_u64 shared) {
    memset(t_arena, 0xff, shared);
    memset(t_arena + shared, 0x5a, t_held - shared);
    t_ready_count = t_waiting = 0;
    memset(t_warp_waiting, 0, sizeof t_warp_waiting);
    for (int thread = 0; thread < t_count; thread++) {
        t_prepare(thread);
        t_pending_count[thread] = t_groups[thread] = 0;
        t_ready[t_ready_count++] = thread;
    }
    /* In every second block some warps run ahead of others, as far as they can. */
    int looks = t_random() & 1 ? 8 : 1;
    for (int warp = 0; warp < T_THREADS / T_LANES; warp++) t_eager[warp] = t_random();
    while (t_ready_count > 0) {
        int chosen = (int)(t_random() % (t_u64)t_ready_count);
        for (int look = 1; look < looks; look++) {
            int other = (int)(t_random() % (t_u64)t_ready_count);
            if (t_eager[t_ready[other] / T_LANES] > t_eager[t_ready[chosen] / T_LANES]) chosen = other;
        }
        t_now = t_ready[chosen];
        t_ready[chosen] = t_ready[--t_ready_count];
        t_enter();
    }
    for (int thread = 0; thread < t_count; thread++) {
        if (t_fibers[thread].state != T_DONE) t_fail("threads wait for threads that have ended");
    }
    for (t_u64 at = shared; at < t_held; at++) {
        if (t_arena[at] != 0x5a) t_fail("more shared memory is used than the launch asks for");
    }
}

/* Runs a kernel, called so, one block after another. */
static void t_run(const char *what, void (*entry)(void **), void **arguments, t_u64 blocks, t_u64 threads, t_u64 shared) {
    if (!t_arena) {
        t_arena = mmap(0, T_SHARED, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        t_stacks = mmap(0, (size_t)T_THREADS * T_STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (t_arena == MAP_FAILED || t_stacks == MAP_FAILED) t_fail("no memory for threads");
    }
    t_what = what;
    t_entry = entry;
    t_arguments = arguments;
    t_count = (int)threads;
    t_share(shared);
    for (t_u64 block = 0; block < blocks; block++) {
        t_block_number = (t_i64)block;
        t_run_block(shared);
    }
}

static void t_launch(const t_named *entries, t_u64 count, t_buffer *buffers) {
    enum { MOST = 64 };
    static t_u64 numbers[MOST];
    static void *pointers[MOST], *arguments[MOST];
    t_u64 entry = t_number(), blocks = t_number(), threads = t_number(), shared = t_number(), given = t_number();
    if (entry >= count || threads > T_THREADS || shared > T_SHARED || given > MOST) t_fail("a launch is too large");
    for (t_u64 at = 0; at < given; at++) {
        /* 0 for a number, or 1 for a buffer and twice the bytes that are left out of it. */
        t_u64 kind = t_number();
        numbers[at] = t_number();
        if (kind & 1) pointers[at] = buffers[numbers[at]].bytes + kind / 2;
        arguments[at] = kind & 1 ? (void *)&pointers[at] : (void *)&numbers[at];
    }
    t_run(entries[entry].name, entries[entry].run, arguments, blocks, threads, shared);
}

static int t_serve(const t_named *entries, t_u64 count) {
    int next;
    while ((next = getchar()) != EOF) {
        ungetc(next, stdin);
        t_state = t_number();
        t_u64 number = t_number();
        t_buffer *buffers = calloc(number + 1, sizeof *buffers);
        for (t_u64 at = 0; at < number; at++) {
            buffers[at].size = t_number();
            buffers[at].flags = t_number();
            t_place(&buffers[at]);
        }
        for (t_u64 launches = t_number(); launches > 0; launches--) t_launch(entries, count, buffers);
        for (t_u64 at = 0; at < number; at++) {
            t_check_margins(&buffers[at]);
            if (buffers[at].flags & T_RETURNED) fwrite(buffers[at].bytes, 1, buffers[at].size, stdout);
            munmap(buffers[at].pages, buffers[at].room);
        }
        free(buffers);
        fflush(stdout);
    }
    return 0;
}
