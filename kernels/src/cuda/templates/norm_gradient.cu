
/* $DOC towards x: $G threads to a row. */
KERNEL($THREADS) $NAME($PARAMETERS) {
    const t_i64 row = t_block() * $R + t_thread() / $G;
    const t_i64 start = (t_thread() % $G) * $V;
    if (row >= rows) return;
    x += row * length;
    dy += row * length;
    dx += row * length;
    $T sum = 0, middle = 0, mean = 0, product = 0, a[$V], g[$V];
$MIDDLE    for (t_i64 j = start; j < length; j += $G * $V) {
        t_load_$D_$V(x + j, a);
        t_load_$D_$V(dy + j, g);
$FACTORS        T_UNROLL
        for (int k = 0; k < $V; k++) {
            sum += (a[k] - middle) * (a[k] - middle);
            product += (a[k] - middle) * (g[k]$SCALED);
        }
    }
    sum = $SUM;
    product = $PRODUCT;
    const $T factor = ($T)1 / t_sqrt_$S(sum / ($T)length + $EPSILON);
    const $T bend = product / ($T)length * factor * factor;
    for (t_i64 j = start; j < length; j += $G * $V) {
        t_load_$D_$V(x + j, a);
        t_load_$D_$V(dy + j, g);
$FACTORS        T_UNROLL
        for (int k = 0; k < $V; k++) a[k] = ((g[k]$SCALED) - mean - (a[k] - middle) * bend) * factor;
        t_store_$F_$V(dx + j, a);
    }
}
