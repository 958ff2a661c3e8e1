
/* Softmax of rows$DOC: $G threads to a row. */
KERNEL($THREADS) $NAME(const $C *x, $E *y, t_i64 rows, t_i64 length, t_i64 inner) {
    const t_i64 row = t_block() * $R + t_thread() / $G;
    const t_i64 start = (t_thread() % $G) * $V;
    const t_i64 first = (t_i64)(($I)row / ($I)inner) * length * inner + ($I)row % ($I)inner;
    if (row >= rows) return;
    $T most = -T_INFINITY_$U, sum = 0, a[$V];
    for (t_i64 j = start; j < length; j += $G * $V) {
        t_load_$D_$V(x + first + j * $STEP, a);
        T_UNROLL
        for (int k = 0; k < $V; k++) most = t_max_$S(most, a[k]);
    }
    most = $MAX;
    for (t_i64 j = start; j < length; j += $G * $V) {
        t_load_$D_$V(x + first + j * $STEP, a);
        T_UNROLL
        for (int k = 0; k < $V; k++) sum += t_exp_$S(a[k] - most);
    }
    sum = $SUM;
    const $T last = $LAST;
    for (t_i64 j = start; j < length; j += $G * $V) {
        t_load_$D_$V(x + first + j * $STEP, a);
        T_UNROLL
        for (int k = 0; k < $V; k++) a[k] = $WRITTEN;
        t_store_$F_$V(y + first + j * $STEP, a);
    }
}
