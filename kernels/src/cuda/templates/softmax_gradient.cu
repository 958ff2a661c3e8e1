
/* dx = y (dy - sum(y dy)) of rows: $G threads to a row. */
KERNEL($THREADS) $NAME(const $C *y, const $C *dy, $E *dx, t_i64 rows, t_i64 length, t_i64 inner) {
    const t_i64 row = t_block() * $R + t_thread() / $G;
    const t_i64 start = (t_thread() % $G) * $V;
    const t_i64 first = (t_i64)(($I)row / ($I)inner) * length * inner + ($I)row % ($I)inner;
    if (row >= rows) return;
    $T sum = 0, a[$V], b[$V];
    for (t_i64 j = start; j < length; j += $G * $V) {
        t_load_$D_$V(y + first + j * $STEP, a);
        t_load_$D_$V(dy + first + j * $STEP, b);
        T_UNROLL
        for (int k = 0; k < $V; k++) sum += a[k] * b[k];
    }
    sum = $SUM;
    for (t_i64 j = start; j < length; j += $G * $V) {
        t_load_$D_$V(y + first + j * $STEP, a);
        t_load_$D_$V(dy + first + j * $STEP, b);
        T_UNROLL
        for (int k = 0; k < $V; k++) a[k] = a[k] * (b[k] - sum);
        t_store_$F_$V(dx + first + j * $STEP, a);
    }
}
