
/* $DOC: (x - centre) / sqrt(mean((x - centre)^2) + epsilon), scaled. $G threads to a row. */
KERNEL($THREADS) $NAME($PARAMETERS) {
    const t_i64 row = t_block() * $R + t_thread() / $G;
    const t_i64 start = (t_thread() % $G) * $V;
    if (row >= rows) return;
    x += row * length;
    y += row * length;
    $T sum = 0, middle = 0, a[$V];
$MIDDLE    for (t_i64 j = start; j < length; j += $G * $V) {
        t_load_$D_$V(x + j, a);
        T_UNROLL
        for (int k = 0; k < $V; k++) sum += (a[k] - middle) * (a[k] - middle);
    }
    sum = $SUM;
    const $T factor = ($T)1 / t_sqrt_$S(sum / ($T)length + $EPSILON);
    for (t_i64 j = start; j < length; j += $G * $V) {
        t_load_$D_$V(x + j, a);
$FACTORS        T_UNROLL
        for (int k = 0; k < $V; k++) a[k] = (a[k] - middle) * factor$SCALED;
        t_store_$F_$V(y + j, a);
    }
}
