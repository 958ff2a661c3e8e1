
/* y[o, j, r] = the sum of dy[o, i, r] where indices[i] is j, for every j that is an index. */
KERNEL(256) $NAME(const $L *indices, const $C *dy, const t_i32 *next, const t_i32 *first, $E *y, t_i64 count, t_i64 picked, t_i64 run, t_i64 length, t_i64 extent, t_i64 start) {
    const t_i64 at = t_block() * 256 + t_thread();
    if (at >= count) return;
    const t_i64 r = at % run, o = at / run / picked;
    t_i64 i = at / run % picked, place = (t_i64)indices[i];
    place += (place < 0 ? extent : 0) - start;
    if (!first[i] || place < 0 || place >= length) return;
    $T sum = 0, addend;
    for (; i < picked; i = next[i]) {
        t_load_$D_1(dy + (o * picked + i) * run + r, &addend);
        sum += addend;
    }
    t_store_$F_1(y + (o * length + place) * run + r, &sum);
}
