
/* A state that goes from token to token: a thread to one of its columns, which lies where the last state is made. */
KERNEL(128) $NAME($PARAMETERS) {
    const t_i64 line = t_block() * 128 + t_thread();
    if (line >= lines) return;
    const t_i64 column = line % columns, state = line / columns, batch = state / heads;
    const t_i64 head = state % heads, group = head / (heads / groups), first = state * rows * columns + column;
    $T held, key, query, value, sum, decay, left = 0;
    for (t_i64 row = 0; row < rows; row++) {
        t_load_$STATE_1(start + first + row * columns, &held);
        t_store_$STATE_1(last + first + row * columns, &held);
    }
    for (t_i64 token = 0; token < tokens; token++) {
        const t_i64 own = (batch * tokens + token) * heads + head;
        const t_i64 keys = ((batch * tokens + token) * groups + group) * rows;
        t_load_$D_1(v + own * columns + column, &value);
$ONCE$FOUND        sum = 0;
        for (t_i64 row = 0; row < rows; row++) {
            t_load_$STATE_1(last + first + row * columns, &held);
            t_load_$D_1(k + keys + row, &key);
            t_load_$D_1(q + keys + row, &query);
$EACH            held = held$LEFT + key * value;
            sum += query * held;
            t_store_$STATE_1(last + first + row * columns, &held);
        }
        t_store_$MADE_1(y + own * columns + column, &sum);
    }
}
