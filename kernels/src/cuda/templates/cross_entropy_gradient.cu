
/* dloss (softmax(scores) - onehot(label)) of rows, 0 where the label is ignored: $G threads to a
   row. A label that the block does not have makes what is not a number. */
KERNEL($THREADS) $NAME(const $C *x, const $L *labels, const $C *dloss, $E *y, t_i64 rows, t_i64 length, t_i64 first, t_i64 ignored) {
    const t_i64 row = t_block() * $R + t_thread() / $G;
    const t_i64 start = (t_thread() % $G) * $V;
    if (row >= rows) return;
    const t_i64 label = (t_i64)labels[row], place = label - first;
    x += row * length;
    y += row * length;
    $T most = -T_INFINITY_$U, sum = 0, factor, a[$V];
    t_load_$D_1(dloss + row, &factor);
    if (place < 0 || place >= length) factor = T_INFINITY_$U - T_INFINITY_$U;
    for (t_i64 j = start; j < length; j += $G * $V) {
        t_load_$D_$V(x + j, a);
        T_UNROLL
        for (int k = 0; k < $V; k++) most = t_max_$S(most, a[k]);
    }
    most = $MAX;
    for (t_i64 j = start; j < length; j += $G * $V) {
        t_load_$D_$V(x + j, a);
        T_UNROLL
        for (int k = 0; k < $V; k++) sum += t_exp_$S(a[k] - most);
    }
    sum = ($T)1 / $SUM;
$TOWARDS}
