
/* -log softmax(scores)[label] of rows, and its gradient dloss (softmax(scores) - onehot(label)); both 0
   where the label is ignored: $G threads to a row. The largest score and the sum are found in one pass. A
   label that the block does not have makes what is not a number. */
KERNEL($THREADS) $NAME(const $C *x, const $L *labels, const $B *dloss, $P *losses, $E *y, t_i64 rows, t_i64 length, t_i64 first, t_i64 ignored) {
    const t_i64 row = t_block() * $R + t_thread() / $G;
    const t_i64 start = (t_thread() % $G) * $V;
    if (row >= rows) return;
    const t_i64 label = (t_i64)labels[row], place = label - first;
    const int inside = place >= 0 && place < length;
    x += row * length;
    y += row * length;
    $T most = -T_INFINITY_$U, sum = 0, before, own = 0, factor, a[$V];
    t_load_$H_1(dloss + row, &factor);
    /* The gradient may be made where scores are: this one is read before any is written over. */
    if (inside) t_load_$D_1(x + place, &own);
    else factor = T_INFINITY_$U - T_INFINITY_$U;
    for (t_i64 j = start; j < length; j += $G * $V) {
        t_load_$D_$V(x + j, a);
        before = most;
        T_UNROLL
        for (int k = 0; k < $V; k++) most = t_max_$S(most, a[k]);
        if (before != most) sum *= t_exp_$S(before - most);
        T_UNROLL
        for (int k = 0; k < $V; k++) sum += a[k] == -T_INFINITY_$U ? ($T)0 : t_exp_$S(a[k] - most);
    }
    before = most;
    most = $MAX;
    if (before != most) sum *= t_exp_$S(before - most);
    sum = $SUM;
    if (start == 0) {
        const $T loss = label == ignored ? ($T)0 : inside ? t_log_$S(sum) - (own - most) : T_INFINITY_$U - T_INFINITY_$U;
        t_store_$Q_1(losses + row, &loss);
    }
    sum = ($T)1 / sum;
$TOWARDS}
