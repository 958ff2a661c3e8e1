/* How fast the GPU that is not there is, where a file says so: a number for each name, a line each, and
   `name` with what the GPU calls itself. Then nothing is computed and no memory is touched: a clock goes on
   by what each thing takes, somewhat more or less by chance, and now and then by far more between two events.

   Kernels take what launching takes, and their operands and results, whole, at the rate of memory;
   those of attention what their multiplications take, by the extents among their arguments. Products say
   what they take by themselves, and so do exchanges; a device that has been computing for long is slower.

   The file is that of the process, or that which `EMULATED_SPEEDS` names. */

static char planted_name[128];
static struct { char name[40]; double value; } speeds[64];
static int speed_count;
static double clock_now, marked, busy;

static double speed(const char *name) {
    for (int at = 0; at < speed_count; at++) if (!strcmp(speeds[at].name, name)) return speeds[at].value;
    fprintf(stderr, "emulated driver: no speed `%s` is planted\n", name);
    abort();
}

static void plant(void) {
    char path[512], line[256];
    const char *said = getenv("EMULATED_SPEEDS");
    if (said) snprintf(path, sizeof path, "%s", said); else snprintf(path, sizeof path, FOLDER "/speeds.%d", (int)getpid());
    FILE *file = fopen(path, "rb");
    planted = file != 0;
    /* What is measured is the same whatever was drawn before, for others. */
    if (planted) state = 0x1234567;
    speed_count = 0;
    busy = 0;
    while (file && fgets(line, sizeof line, file) && speed_count < 64) {
        if (sscanf(line, "name %127[^\n]", planted_name) == 1) continue;
        if (sscanf(line, "%39s %lf", speeds[speed_count].name, &speeds[speed_count].value) == 2) speed_count++;
    }
    if (file) fclose(file);
    whole_memory = planted ? (size_t)speed("memory_bytes") : (size_t)4 << 30;
}

/* The host has waited: the device cools down while it does nothing. */
static void rested(void) { busy = 0; }

/* An argument of a kernel that is a number, by its name in the source; none is 0. */
static double extent(const op *it, const char *name) {
    const char *at = it->function->parameters;
    for (int number = 0; *at; number++) {
        const char *end = strchrnul(at, ','), *word = end;
        while (word > at && word[-1] != ' ' && word[-1] != '*') word--;
        if ((size_t)(end - word) == strlen(name) && !strncmp(word, name, strlen(name))) return (double)(int64_t)it->arguments[number];
        at = *end ? end + 1 : end;
    }
    return 0;
}

static double launch_takes(const op *it) {
    const function *of = it->function;
    double bytes = 0, first = 0;
    for (int at = 0; at < of->count; at++) {
        if (!(of->pointers[at / 64] >> at % 64 & 1)) continue;
        double own = (double)piece_of(it->arguments[at], 0)->bytes;
        if (!first) first = own;
        bytes += own;
    }
    double queries = extent(it, "queries"), keys = extent(it, "keys");
    if (strncmp(of->name, "attention", 9) || !queries || !keys) return speed("launch") + bytes / speed("memory");
    /* The first operand is the queries, in 16 bits; half of the scores count. */
    double heads = extent(it, "batches") * extent(it, "heads"), size = first / 2 / (heads * queries);
    double whole = 4 * heads * queries * keys * size, tiles = heads * (double)(((int64_t)queries + 127) / 128);
    double work = whole / 2 + whole / tiles / 2 * speed("processors");
    double rate = strstr(of->name, "gradient") ? speed("attention_gradient") : speed("attention");
    return speed("product_start") + work / rate;
}

static int passed(op *it) {
    double takes = 0;
    switch (it->what) {
    case COPY: takes = speed("copy_start") + 2 * (double)it->bytes / speed("copy"); break;
    case FILL: takes = speed("copy_start") + (double)it->bytes / speed("copy"); break;
    case LAUNCH: takes = launch_takes(it); break;
    case CALLED: {
        double sustained = speed("sustained"), before = busy + it->computing;
        double computing = it->computing * (1 + (1 / sustained - 1) * before / (before + speed("heating")));
        busy += it->computing;
        double a = computing * computing, b = it->moving * it->moving;
        takes = it->starting + pow(a * a + b * b, 0.25);
        break;
    }
    case RECORD:
        /* Now and then something interrupts the device between two events. */
        if ((double)(drawn() >> 11) / 9007199254740992.0 < speed("outliers")) clock_now += (0.5 + (double)(drawn() % 4)) * (clock_now - marked);
        marked = clock_now += speed("event");
        it->moment->over = 1; it->moment->seconds = clock_now; return FINE;
    case AWAITED:
    case WAIT: return FINE;
    }
    double chance = (double)(drawn() >> 11) / 9007199254740992.0;
    takes *= 1 + speed("noise") * (2 * chance - 1);
    clock_now += takes;
    return FINE;
}
