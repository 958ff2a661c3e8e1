/* NCCL between GPUs that are not there: what the product calls of it, for tests. Ranks are processes, which
   meet at a socket whose name is the job's; a thread of the first one (the hub) has all that is exchanged.

   It checks what NCCL would hang on, or never notice. On each communicator all members do the same in the
   same order: kind, count, type, root; what is sent is received with the same count and type. All of a
   communicator is on one stream, whose things are over before the next one begins. What is on several streams
   begins in the order in which it was issued, and ends in any: that is what NCCL promises where kernels of all
   of them have room (`NCCL_LAUNCH_ORDER_IMPLICIT`). When all ranks wait and nothing can be done, the hub says who waits in what. Calls go on in
   the background at random, and nothing may be called of a communicator before that is over. Groups begin
   and end, buffers are memory of the device, and lie as they may.

   Where a speed is planted nothing is exchanged: each device's clock goes on by what an exchange takes by
   the formulas of `cost-models/src/collective.rs`, written again, with the planted numbers.

   `EMULATED_NCCL` has words: `old` is an old version, `never` never connects, `stuck` never ends when it is
   made invalid. `DRIVER` is the file of the driver whose memory and streams these are. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <math.h>
#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

typedef uint64_t u64;
enum { FINE, CUDA = 1, ARGUMENT = 4, USAGE = 5, REMOTE = 6, GOES_ON = 7 };
enum { MOST = 64, UNSET = -2147483647 - 1 };
typedef enum { JOIN, SPLIT, ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER, BROADCAST, REDUCE, SEND, RECEIVE, DONE, WRONG } what;
static const char *NAMES[] = {"init", "split", "all-reduce", "all-gather", "reduce-scatter", "broadcast", "reduce", "send", "receive"};
static const size_t SIZES[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2};

/* What goes to the hub, and back; bytes follow. */
typedef struct { what what; int communicator, member, root, type, more; u64 count, bytes, ticket; } frame;

static int whole(int at, void *to, size_t bytes, int writes) {
    for (size_t done = 0; done < bytes;) {
        ssize_t now = writes ? send(at, (char *)to + done, bytes - done, MSG_NOSIGNAL) : recv(at, (char *)to + done, bytes - done, 0);
        if (now <= 0) return 0;
        done += (size_t)now;
    }
    return 1;
}

/* The hub. */
typedef struct item { frame it; int rank; char *bytes; struct item *next; } item;
typedef struct { int size, ranks[MOST]; item *queue[MOST]; } group;
static group *groups;
static int group_count, listens, peers[MOST], size, waits[MOST], open_[MOST], over;
static item *messages;

static void answer(int rank, frame it, const void *bytes) {
    if (peers[rank] < 0) return;
    if (whole(peers[rank], &it, sizeof it, 1) && it.bytes) whole(peers[rank], (void *)bytes, it.bytes, 1);
}
static void all_wrong(int code, const char *why, ...) {
    char text[1024];
    va_list rest;
    va_start(rest, why);
    vsnprintf(text, sizeof text, why, rest);
    va_end(rest);
    for (int rank = 0; rank < size; rank++) answer(rank, (frame){.what = WRONG, .root = code, .bytes = strlen(text) + 1}, text);
    over = 1;
}
static void done(int rank, const item *it, const void *bytes, u64 count) {
    answer(rank, (frame){.what = DONE, .communicator = it->it.communicator, .ticket = it->it.ticket, .bytes = count}, bytes);
    waits[rank]--;
}

static double number(const char *at, int type, u64 place) {
    union { uint32_t bits; float value; } single;
    _Float16 half;
    switch (type) {
    case 0: return ((const int8_t *)at)[place];
    case 1: return ((const uint8_t *)at)[place];
    case 2: return ((const int32_t *)at)[place];
    case 3: return ((const uint32_t *)at)[place];
    case 4: return (double)((const int64_t *)at)[place];
    case 5: return (double)((const uint64_t *)at)[place];
    case 6: memcpy(&half, at + 2 * place, 2); return half;
    case 7: return ((const float *)at)[place];
    case 8: return ((const double *)at)[place];
    default: single.bits = (uint32_t)((const uint16_t *)at)[place] << 16; return single.value;
    }
}
static void store(char *at, int type, u64 place, double value) {
    union { float value; uint32_t bits; } single = {.value = (float)value};
    _Float16 half = (_Float16)single.value;
    switch (type) {
    case 0: case 1: at[place] = (char)(int64_t)value; break;
    case 2: case 3: ((uint32_t *)at)[place] = (uint32_t)(int64_t)value; break;
    case 4: case 5: ((int64_t *)at)[place] = (int64_t)value; break;
    case 6: memcpy(at + 2 * place, &half, 2); break;
    case 7: ((float *)at)[place] = single.value; break;
    case 8: ((double *)at)[place] = value; break;
    default: ((uint16_t *)at)[place] = value != value ? 0x7fc0 : (uint16_t)((single.bits + 0x7fff + (single.bits >> 16 & 1)) >> 16);
    }
}

static int split(group *of) {
    int made = group_count;
    int numbers[MOST][2];
    for (int a = 0; a < of->size; a++) {
        numbers[a][0] = -1;
        frame *own = &of->queue[a]->it;
        if (own->root < 0) continue;
        int place = 0, first = a;
        for (int b = 0; b < of->size; b++) {
            frame *other = &of->queue[b]->it;
            if (other->root != own->root) continue;
            if (b < first) first = b;
            place += other->type < own->type || (other->type == own->type && b < a);
        }
        if (first == a) {
            groups = realloc(groups, (size_t)(group_count + 1) * sizeof *groups);
            of = &groups[own->communicator];
            memset(&groups[group_count], 0, sizeof *groups);
            numbers[a][0] = group_count++;
        } else numbers[a][0] = numbers[first][0];
        numbers[a][1] = place;
        group *to = &groups[numbers[a][0]];
        to->ranks[place] = of->ranks[a];
        to->size++;
    }
    for (int a = 0; a < of->size; a++) {
        int said[3] = {numbers[a][0], numbers[a][1], numbers[a][0] < 0 ? 0 : groups[numbers[a][0]].size};
        done(of->ranks[a], of->queue[a], said, sizeof said);
    }
    return made;
}

static void collect(group *of) {
    frame first = of->queue[0]->it;
    u64 n = (u64)of->size, block = first.count * SIZES[first.type];
    u64 given = first.what == REDUCE_SCATTER ? n * first.count : first.count;
    char *made = calloc(1, n * block + 1);
    for (u64 at = 0; at < given && first.what != ALL_GATHER && first.what != BROADCAST; at++) {
        double sum = 0;
        for (u64 member = 0; member < n; member++) sum += number(of->queue[member]->bytes, first.type, at);
        store(made, first.type, at, sum);
    }
    for (u64 member = 0; member < n && first.what == ALL_GATHER; member++) memcpy(made + member * block, of->queue[member]->bytes, block);
    if (first.what == BROADCAST) memcpy(made, of->queue[first.root]->bytes, block);
    for (u64 member = 0; member < n; member++) {
        u64 from = first.what == REDUCE_SCATTER ? member * block : 0;
        u64 bytes = first.what == ALL_GATHER ? n * block : first.what == REDUCE && (int)member != first.root ? 0 : block;
        done(of->ranks[member], of->queue[member], made + from, bytes);
    }
    free(made);
}

/* Does what all members of a communicator have come to; whether there was something. */
static int met(int communicator) {
    group *of = &groups[communicator];
    for (int member = 0; member < of->size; member++) if (!of->queue[member]) return 0;
    frame *first = &of->queue[0]->it;
    for (int member = 1; member < of->size; member++) {
        frame *other = &of->queue[member]->it;
        int alike = first->what == other->what && (first->what == SPLIT || (first->count == other->count && first->type == other->type && first->root == other->root));
        if (alike) continue;
        all_wrong(USAGE, "communicator %d: rank %d is in %s of %llu of type %d, root %d, rank %d in %s of %llu of type %d, root %d", communicator,
            of->ranks[0], NAMES[first->what], (unsigned long long)first->count, first->type, first->root, of->ranks[member], NAMES[other->what],
            (unsigned long long)other->count, other->type, other->root);
        return 0;
    }
    if (first->what == SPLIT) split(of); else collect(of);
    of = &groups[communicator];
    for (int member = 0; member < of->size; member++) {
        item *gone = of->queue[member];
        of->queue[member] = gone->next;
        free(gone->bytes);
        free(gone);
    }
    return 1;
}

/* Brings what is sent to who receives it: the first between two members; whether there was something. */
static int brought(void) {
    for (item **at = &messages; *at; at = &(*at)->next) {
        item *to = *at;
        if (to->it.what != RECEIVE) continue;
        for (item **other = &messages; *other; other = &(*other)->next) {
            item *from = *other;
            if (from->it.what != SEND || from->it.communicator != to->it.communicator) continue;
            if (from->it.root != to->it.member || from->it.member != to->it.root) continue;
            if (from->it.count != to->it.count || from->it.type != to->it.type) {
                all_wrong(USAGE, "rank %d sends %llu of type %d, rank %d receives %llu of type %d", from->rank, (unsigned long long)from->it.count,
                    from->it.type, to->rank, (unsigned long long)to->it.count, to->it.type);
                return 0;
            }
            done(to->rank, to, from->bytes, from->it.bytes);
            done(from->rank, from, 0, 0);
            item *gone[2] = {from, to};
            for (int number = 0; number < 2; number++) {
                for (item **place = &messages; *place; place = &(*place)->next) if (*place == gone[number]) { *place = gone[number]->next; break; }
                free(gone[number]->bytes);
                free(gone[number]);
            }
            return 1;
        }
    }
    return 0;
}

/* Where all wait, says in what. */
static void stuck(void) {
    char text[768] = "";
    size_t end = 0;
    for (int rank = 0; rank < size; rank++) if (!waits[rank] || open_[rank]) return;
    for (int number = 0; number < group_count; number++) {
        for (int member = 0; member < groups[number].size && end < sizeof text - 64; member++) {
            item *it = groups[number].queue[member];
            if (it) end += (size_t)sprintf(text + end, "; rank %d in %s of communicator %d", it->rank, NAMES[it->it.what], number);
        }
    }
    for (item *it = messages; it && end < sizeof text - 64; it = it->next) end += (size_t)sprintf(text + end, "; rank %d in %s, member %d", it->rank, NAMES[it->it.what], it->it.root);
    all_wrong(USAGE, "all ranks wait for each other%s", text);
}

static void came(int rank, frame *it, char *bytes) {
    item *new = calloc(1, sizeof *new);
    *new = (item){*it, rank, bytes, 0};
    item **at = it->what == SEND || it->what == RECEIVE ? &messages : &groups[it->communicator].queue[it->member];
    while (*at) at = &(*at)->next;
    *at = new;
    waits[rank]++;
    open_[rank] = it->more;
}

static void *hub(void *given) {
    int devices[MOST];
    (void)given;
    for (int joined = 0; !size || joined < size; joined++) {
        int at = accept(listens, 0, 0);
        frame it;
        if (!whole(at, &it, sizeof it, 0)) return 0;
        if (!size) { size = (int)it.count; memset(peers, -1, sizeof peers); }
        if ((int)it.count != size || it.member < 0 || it.member >= size || peers[it.member] >= 0) abort();
        peers[it.member] = at;
        devices[it.member] = it.type;
    }
    groups = calloc(1, sizeof *groups);
    groups[0].size = size;
    group_count = 1;
    for (int rank = 0; rank < size; rank++) {
        groups[0].ranks[rank] = rank;
        for (int other = 0; other < rank; other++)
            if (devices[rank] == devices[other]) { all_wrong(USAGE, "Duplicate GPU detected: ranks %d and %d", other, rank); return 0; }
    }
    for (int rank = 0; rank < size; rank++) answer(rank, (frame){.what = DONE, .ticket = 0}, 0);
    while (!over) {
        struct pollfd all[MOST];
        for (int rank = 0; rank < size; rank++) all[rank] = (struct pollfd){peers[rank], POLLIN, 0};
        poll(all, (nfds_t)size, -1);
        for (int rank = 0; rank < size; rank++) {
            if (peers[rank] < 0 || !all[rank].revents) continue;
            frame it;
            if (!whole(peers[rank], &it, sizeof it, 0)) {
                close(peers[rank]);
                peers[rank] = -1;
                continue;
            }
            /* Nothing more comes from a rank that has said so. */
            if (it.what == DONE) { close(peers[rank]); peers[rank] = -2; continue; }
            char *bytes = malloc(it.bytes + 1);
            if (!whole(peers[rank], bytes, it.bytes, 0)) continue;
            came(rank, &it, bytes);
        }
        for (int rank = 0, left = 1; rank < size; rank++) {
            if (peers[rank] == -1) { all_wrong(REMOTE, "the connection to rank %d has ended", rank); break; }
            left += peers[rank] >= 0;
            if (rank == size - 1 && left == 1) over = 1;
        }
        for (int any = 1; any && !over;) {
            any = brought();
            for (int number = 0; number < group_count && !over; number++) any |= met(number);
        }
        if (!over) stuck();
    }
    return 0;
}

/* The library in a rank. */
typedef struct { int there, number, rank, size, parent, busy, done; int **to; void *stream; } communicator;
typedef struct pending { frame it; char *from, *to; int begun, over; communicator *on; struct pending *next, *also; } pending;
typedef struct { pending *first; u64 number; } work;
/* The driver calls back while it is called. */
static pthread_mutex_t lock = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
static char message[1200];
static int hub_at = -1, failed, depth;
static u64 tickets, state = 99;
static void *group_stream;
static u64 issued_, begun_;
/* The first of each work that has begun and is not over. */
static pending *all_pending, *grouped;
static communicator *splitting;
static communicator **split_to;
static u64 split_ticket;
static communicator *world;

static int is(const char *word) { const char *said = getenv("EMULATED_NCCL"); return said && strstr(said, word); }
static int wrong(int code, const char *why, ...) {
    va_list rest;
    va_start(rest, why);
    vsnprintf(message, sizeof message, why, rest);
    va_end(rest);
    return code;
}
static u64 drawn(void) { state = state * 6364136223846793005u + 1442695040888963407u; return state >> 33; }
static void *taken(const char *name) { return dlsym(dlopen(DRIVER, RTLD_LAZY | RTLD_NOLOAD), name); }

int ncclGetVersion(int *to) { *to = is("old") ? 21602 : 23007; return FINE; }
const char *ncclGetErrorString(int status) { return status == REMOTE ? "remote process exited or there was a network error" : status == USAGE ? "invalid usage" : "an error"; }
const char *ncclGetLastError(void *of) { (void)of; return message; }

int ncclGetUniqueId(char *to) {
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    pthread_t thread;
    memset(to, 0, 128);
    snprintf(to, 100, "emulated-nccl-%d", (int)getpid());
    strcpy(name.sun_path + 1, to);
    listens = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (bind(listens, (struct sockaddr *)&name, sizeof name) || listen(listens, MOST)) return wrong(2, "bind");
    return pthread_create(&thread, 0, hub, 0) ? wrong(2, "thread") : FINE;
}

/* Takes what has come from the hub. */
static void look(void) {
    frame it;
    while (hub_at >= 0 && !failed) {
        ssize_t now = recv(hub_at, &it, sizeof it, MSG_DONTWAIT | MSG_PEEK);
        if (now < 0) return;
        if (now && now < (ssize_t)sizeof it) continue;
        if (!now || !whole(hub_at, &it, sizeof it, 0)) { failed = wrong(REMOTE, "the connection to the first rank has ended"); return; }
        char *bytes = malloc(it.bytes + 1);
        whole(hub_at, bytes, it.bytes, 0);
        if (it.what == WRONG) {
            failed = wrong(it.root, "%s", bytes);
            fprintf(stderr, "emulated nccl: %s\n", bytes);
        } else if (!it.ticket) {
            world->done = !is("never");
        } else if (it.ticket == split_ticket) {
            int *said = (int *)bytes;
            if (said[0] >= 0) {
                communicator *made = calloc(1, sizeof *made);
                *made = (communicator){.there = 1, .number = said[0], .rank = said[1], .size = said[2], .busy = (int)(drawn() % 4), .done = 1};
                *split_to = made;
            }
            splitting->done = 1;
            split_ticket = 0;
        }
        for (pending *one = all_pending; one; one = one->also) for (pending *own = one; own; own = own->next) {
            if (own->it.ticket != it.ticket || own->over) continue;
            if (it.bytes) memcpy(own->to, bytes, it.bytes);
            own->over = 1;
        }
        free(bytes);
    }
}

int ncclCommGetAsyncError(communicator *of, int *to) {
    pthread_mutex_lock(&lock);
    if (!of || !of->there) { pthread_mutex_unlock(&lock); return wrong(ARGUMENT, "no communicator"); }
    look();
    if (of->busy > 0) of->busy--;
    *to = failed ? failed : !of->done || of->busy ? GOES_ON : FINE;
    pthread_mutex_unlock(&lock);
    return FINE;
}

/* Whether something may be called of a communicator. */
static int free_to(communicator *of, const char *call) {
    if (!of || !of->there) return wrong(ARGUMENT, "%s: no communicator", call);
    if (failed) return failed;
    if (of->busy || !of->done) return wrong(USAGE, "%s: the call before is not over", call);
    return FINE;
}
static double speed(const char *name) { return ((double (*)(const char *))taken("emulated_speed"))(name); }
static int is_planted(void) { return speed("planted") != 0; }
static double planted(const char *protocol, const char *name) {
    char whole_[40];
    snprintf(whole_, sizeof whole_, "%s_%s", protocol, name);
    return speed(whole_);
}
/* What an exchange of a value of so many bytes takes: all ranks are on one node. An all-to-all is DONE. */
static double takes(what kind, double bytes, communicator *of) {
    static const char *PROTOCOLS[] = {"bulk", "packed", "eager"};
    double n = of->size, best = 1e30, local = speed("local");
    double rounds = kind == ALL_REDUCE ? 2 : 1, sent = kind == BROADCAST ? 1 : rounds * (n - 1) / n;
    for (int at = 0; at < 3; at++) {
        const char *it = PROTOCOLS[at];
        double start = planted(it, "start"), fill = planted(it, "fill"), hop = planted(it, "hop"), share = planted(it, "share");
        double around = start + rounds * (fill + (n - 1) * hop) + (sent * bytes / speed("ring") + rounds / 2 * bytes / local) / share;
        double message = start + hop + bytes / (share * speed("pair"));
        double all = start + fill + hop + ((n - 1) / n * bytes / speed("exchange") + bytes / local) / share;
        best = fmin(best, kind == SEND ? message : kind == DONE ? all : around);
    }
    return kind == ALL_REDUCE ? fmin(best, speed("switch_start") + bytes / speed("switch")) : best;
}
static int passes(what kind, double bytes, communicator *of, void *on) {
    int (*issued)(void *, double, double, double) = (int (*)(void *, double, double, double))taken("emulated_takes");
    return issued(on, takes(kind, bytes, of), 0, 0) ? wrong(CUDA, "the driver failed") : FINE;
}
static int goes_on(communicator *of) { if (is_planted()) return FINE; of->busy = (int)(drawn() % 3); return of->busy ? GOES_ON : FINE; }

typedef struct { size_t size; unsigned magic, version; int blocking, cluster, least, most; const char *network; int shares; } configuration;
typedef struct { char bytes[128]; } unique;
int ncclCommInitRankConfig(communicator **to, int count, unique job, int rank, configuration *how) {
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    int (*device)(void) = (int (*)(void))taken("emulated_device");
    if (!how || how->size != 48 || how->magic != 0xcafebeef || how->version < 21800) return wrong(ARGUMENT, "the configuration");
    if (how->blocking || how->cluster != UNSET || how->shares != UNSET || how->network) return wrong(ARGUMENT, "the configuration blocks");
    if (world || count > MOST || rank < 0 || rank >= count || !device) return wrong(USAGE, "a rank joins once");
    state += (u64)rank;
    strcpy(name.sun_path + 1, job.bytes);
    hub_at = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (connect(hub_at, (struct sockaddr *)&name, sizeof name)) return wrong(2, "the first rank is not there");
    frame it = {.what = JOIN, .member = rank, .count = (u64)count, .type = device()};
    whole(hub_at, &it, sizeof it, 1);
    *to = world = calloc(1, sizeof *world);
    *world = (communicator){.there = 1, .rank = rank, .size = count};
    return GOES_ON;
}
int ncclCommSplit(communicator *of, int color, int key, communicator **to, void *how) {
    pthread_mutex_lock(&lock);
    int status = free_to(of, "split");
    if (!status && (how || depth)) status = wrong(USAGE, "split: a configuration, or a group");
    if (!status) {
        split_ticket = ++tickets;
        frame it = {.what = SPLIT, .communicator = of->number, .member = of->rank, .root = color, .type = key, .ticket = split_ticket};
        whole(hub_at, &it, sizeof it, 1);
        of->done = 0;
        splitting = of;
        split_to = to;
        status = GOES_ON;
    }
    pthread_mutex_unlock(&lock);
    return status;
}
int ncclCommFinalize(communicator *of) {
    int status = free_to(of, "finalize");
    if (!status && all_pending) status = wrong(USAGE, "finalize: something is not over");
    return status ? status : goes_on(of);
}
int ncclCommDestroy(communicator *of) {
    int status = free_to(of, "destroy");
    if (status) return status;
    of->there = 0;
    frame bye = {.what = DONE};
    if (of == world) whole(hub_at, &bye, sizeof bye, 1);
    return FINE;
}
int ncclCommAbort(communicator *of) {
    if (is("stuck")) for (;;) pause();
    of->there = 0;
    return FINE;
}

/* What is issued on the stream: given to the hub when its turn comes, and over when all of it is. */
static int awaited(void *given) {
    work *own = given;
    pthread_mutex_lock(&lock);
    if (!own->first->begun && own->number != begun_ && !failed) { pthread_mutex_unlock(&lock); return 0; }
    if (!own->first->begun) {
        begun_ = own->number + 1;
        own->first->also = all_pending;
        all_pending = own->first;
    }
    for (pending *it = own->first; it && !failed; it = it->next) {
        if (it->begun) continue;
        it->begun = 1;
        it->it.more = it->next != 0;
        whole(hub_at, &it->it, sizeof it->it, 1);
        whole(hub_at, it->from, it->it.bytes, 1);
    }
    look();
    int over_ = !failed;
    for (pending *it = own->first; it; it = it->next) over_ &= it->over;
    for (pending **at = &all_pending; over_ && *at; at = &(*at)->also) if (*at == own->first) { *at = own->first->also; break; }
    pthread_mutex_unlock(&lock);
    return over_;
}
static int issue(pending *first, void *on) {
    int (*await)(void *, int (*)(void *), const void *, int) = (int (*)(void *, int (*)(void *), const void *, int))taken("emulated_await");
    work own = {first, issued_++};
    return await(on, awaited, &own, sizeof own) ? wrong(CUDA, "the driver failed") : FINE;
}

static int added(communicator *of, frame it, const void *from, void *to, u64 given, u64 gotten, void *on) {
    int (*touched)(u64, size_t, const char *) = (int (*)(u64, size_t, const char *))taken("emulated_touched");
    const char *name = NAMES[it.what];
    pthread_mutex_lock(&lock);
    int status = free_to(of, name);
    if (!status && (it.type < 0 || it.type > 9)) status = wrong(ARGUMENT, "%s: type %d", name, it.type);
    if (!status && it.what != ALL_REDUCE && it.what != ALL_GATHER && it.what != REDUCE_SCATTER && (it.root < 0 || it.root >= of->size)) status = wrong(ARGUMENT, "%s: root or member %d", name, it.root);
    if (!status && (it.what == SEND || it.what == RECEIVE) && it.root == of->rank) status = wrong(USAGE, "a rank sends to itself");
    if (!status && of->stream && of->stream != on) status = wrong(USAGE, "%s: on another stream than before: nothing orders them", name);
    if (!status) of->stream = group_stream = on;
    size_t size_ = status ? 0 : SIZES[it.type];
    if (!status && ((given && touched((u64)from, given * size_, name)) || (gotten && touched((u64)to, gotten * size_, name)))) status = wrong(ARGUMENT, "%s: what is given or gotten is no memory of the device", name);
    u64 a = (u64)from, b = (u64)to, of_own = (u64)of->rank * it.count * size_;
    int meet = given && gotten && a < b + gotten * size_ && b < a + given * size_;
    int place = it.what == ALL_GATHER ? a == b + of_own : it.what == REDUCE_SCATTER ? b == a + of_own : a == b;
    if (!status && meet && !place) status = wrong(USAGE, "%s: what is gotten lies over what is given", name);
    if (!status && is_planted() && !depth) {
        u64 blocks = it.what == ALL_GATHER || it.what == REDUCE_SCATTER ? (u64)of->size : 1;
        status = passes(it.what, (double)(blocks * it.count * size_), of, on);
    } else if (!status) {
        pending *new = calloc(1, sizeof *new);
        it.communicator = of->number;
        it.member = of->rank;
        it.bytes = given * size_;
        it.ticket = ++tickets;
        *new = (pending){.it = it, .from = (char *)from, .to = to, .on = of};
        if (depth) {
            pending **at = &grouped;
            while (*at) at = &(*at)->next;
            *at = new;
        } else {
            status = issue(new, on);
            if (!status) status = goes_on(of);
        }
    }
    pthread_mutex_unlock(&lock);
    return status;
}
#define N (of ? (u64)of->size : 1)
int ncclAllReduce(const void *from, void *to, size_t count, int type, int how, communicator *of, void *on) { return how ? wrong(ARGUMENT, "no sum") : added(of, (frame){.what = ALL_REDUCE, .type = type, .count = count}, from, to, count, count, on); }
int ncclAllGather(const void *from, void *to, size_t count, int type, communicator *of, void *on) { return added(of, (frame){.what = ALL_GATHER, .type = type, .count = count}, from, to, count, N * count, on); }
int ncclReduceScatter(const void *from, void *to, size_t count, int type, int how, communicator *of, void *on) { return how ? wrong(ARGUMENT, "no sum") : added(of, (frame){.what = REDUCE_SCATTER, .type = type, .count = count}, from, to, N * count, count, on); }
int ncclBroadcast(const void *from, void *to, size_t count, int type, int root, communicator *of, void *on) { return added(of, (frame){.what = BROADCAST, .type = type, .count = count, .root = root}, from, to, count, count, on); }
int ncclReduce(const void *from, void *to, size_t count, int type, int how, int root, communicator *of, void *on) { return how ? wrong(ARGUMENT, "no sum") : added(of, (frame){.what = REDUCE, .type = type, .count = count, .root = root}, from, to, count, of && of->rank == root ? count : 0, on); }
int ncclSend(const void *from, size_t count, int type, int peer, communicator *of, void *on) { return added(of, (frame){.what = SEND, .type = type, .count = count, .root = peer}, from, 0, count, 0, on); }
int ncclRecv(void *to, size_t count, int type, int peer, communicator *of, void *on) { return added(of, (frame){.what = RECEIVE, .type = type, .count = count, .root = peer}, 0, to, 0, count, on); }

int ncclGroupStart(void) { depth++; return FINE; }
int ncclGroupEnd(void) {
    if (!depth) return wrong(USAGE, "a group ends that has not begun");
    if (--depth || !grouped) return FINE;
    pthread_mutex_lock(&lock);
    pending *first = grouped;
    grouped = 0;
    int status = FINE;
    for (pending *it = first; it; it = it->next) if (it->on != first->on) status = wrong(USAGE, "a group of two communicators");
    if (!status && is_planted()) {
        /* One message for each, or one for each of the others. */
        u64 sends = 0;
        for (pending *it = first; it; it = it->next) sends += it->it.what == SEND;
        double one = (double)(first->it.count * SIZES[first->it.type]);
        communicator *on = first->on;
        if (sends != 1 && sends + 1 != (u64)on->size) status = wrong(USAGE, "a planted group of %d messages", (int)sends);
        else status = sends == 1 ? passes(SEND, one, on, group_stream) : passes(DONE, one * on->size, on, group_stream);
    } else if (!status) {
        communicator *on = first->on;
        status = issue(first, group_stream);
        if (!status) status = goes_on(on);
    }
    pthread_mutex_unlock(&lock);
    return status;
}
