
/* Slices of y at places: of all updates at one place, in their order, by the thread of the first. */
KERNEL(256) $NAME($PARAMETERS) {
    const t_i64 at = t_block() * 256 + t_thread();
    if (at >= count) return;
    const t_i64 r = at % run;
    t_i64 i = at / run;
    if (!first[i] || places[i] < 0) return;
    const t_i64 place = places[i] + r;
    $START
    for (; i < tuples; i = next[i]) {
        $STEP
    }
    $END
}
