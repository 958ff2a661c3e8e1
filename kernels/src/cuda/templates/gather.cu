
/* y[o, i, r] = data[o, indices[i], r], 0 where the block has no such place. */
KERNEL(256) $NAME(const $C *data, const $L *indices, $E *y, t_i64 count, t_i64 picked, t_i64 run, t_i64 length, t_i64 extent, t_i64 first) {
    const t_i64 at = t_block() * 256 + t_thread();
    if (at >= count) return;
    const t_i64 r = at % run, i = at / run % picked, o = at / run / picked;
    t_i64 place = (t_i64)indices[i];
    place += (place < 0 ? extent : 0) - first;
    $T value = {0};
    if (place >= 0 && place < length) $LOAD
    $STORE
}
