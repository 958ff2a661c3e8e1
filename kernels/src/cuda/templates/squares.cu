
/* Sums of the squares of several values' elements: a block to a part of one. */
KERNEL(256) $NAME($PARAMETERS) {
    const $C *x = x0;
    t_i64 length = length0, first = 0;
$FOUND    const t_i64 start = (t_block() - first) * part, end = start + part < length ? start + part : length;
    float sum = 0, next[$V];
    for (t_i64 at = start + t_thread() * $V; at < end; at += 256 * $V) {
        if (at + $V <= end) {
            t_load_$D_$V(x + at, next);
            T_UNROLL
            for (int i = 0; i < $V; i++) sum += next[i] * next[i];
        } else {
            for (t_i64 i = at; i < end; i++) {
                t_load_$D_1(x + i, next);
                sum += next[0] * next[0];
            }
        }
    }
    sum = t_block_sum_f(sum, 256);
    if (t_thread() == 0) parts[before + t_block()] = sum;
}
