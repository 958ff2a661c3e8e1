
/* Running sums along lines: a thread to a line. */
KERNEL(256) $NAME(const $C *x, $E *y, t_i64 lines, t_i64 length, t_i64 inner) {
    const t_i64 line = t_block() * 256 + t_thread();
    if (line >= lines) return;
    const t_i64 base = line / inner * length * inner + line % inner;
    $T sum = 0, own, before;
    for (t_i64 step = 0; step < length; step++) {
        const t_i64 at = base + ($AT) * inner;
        t_load_$D_1(x + at, &own);
        before = sum;
        sum += own;
        t_store_$F_1(y + at, &$KEPT);
    }
}
