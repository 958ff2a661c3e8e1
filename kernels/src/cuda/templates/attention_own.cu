
/* own[row] = dy[row] . y[row]: a warp to a row. */
KERNEL(256) $NAME(const $C *dy, const $C *y, $T *own, t_i64 rows) {
    const t_i64 row = t_block() * 8 + t_thread() / 32;
    if (row >= rows) return;
    $T sum = 0, a, b;
    for (int c = t_thread() % 32; c < $EE; c += 32) {
        t_load_$D_1(dy + row * $EE + c, &a);
        t_load_$D_1(y + row * $EE + c, &b);
        sum += a * b;
    }
    sum = t_warp_sum_$S(sum);
    if (t_thread() % 32 == 0) own[row] = sum;
}
