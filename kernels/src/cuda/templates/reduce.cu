
/* $DOC: a block makes $K results, each by $R threads; a part of what is reduced to each block. */
KERNEL(256) $NAME($PARAMETERS) {
    $A *room = ($A *)t_arena;
    const int own = t_thread() % $K, lane = t_thread() / $K;
    const t_i64 groups = (results + $K - 1) / $K, chunk = t_block() / groups;
    const t_i64 result = t_block() % groups * $K + own;
    const t_i64 end = (chunk + 1) * part < length ? (chunk + 1) * part : length;
    $A total = $IDENTITY;
    if (result < results) {
$KEPT        const t_i64 base = $BASE$SECOND;
        for (t_i64 j = chunk * part + lane; j < end; j += $R) {
$REDUCED            $A next;
            t_load_$D_1(x + base + ($OFFSET), &next);
$FACTOR            total = $COMBINED;
        }
    }
    room[lane * $K + own] = total;
    for (int half = $R / 2; half; half /= 2) {
        t_barrier();
        if (lane < half) {
            $A next = room[(lane + half) * $K + own];
            total = $COMBINED;
            room[lane * $K + own] = total;
        }
    }
    if (lane == 0 && result < results) {
        total = $FINISHED;
        t_store_$F_1(y + chunk * results + result, &total);
    }
}
