
/* Attention to some keys and to others, made attention to all of them: $V elements of a row to a thread. */
KERNEL(256) $NAME($PARAMETERS) {
    const t_i64 at = t_block() * 256 + t_thread(), row = at / size;
    if (at >= count) return;
    $T a[$V], b[$V], one[2], two[2], pair[2];
    t_load_$ONE_$V(y1 + at * $V, a);
    t_load_$TWO_$V(y2 + at * $V, b);
    t_load_$P_2(s1 + 2 * row, one);
    t_load_$Q_2(s2 + 2 * row, two);
    pair[0] = t_max_$S(one[0], two[0]);
    const int sees = pair[0] != -T_INFINITY_$U;
    const $T first = sees ? t_exp_$S(one[0] - pair[0]) * one[1] : ($T)0;
    const $T second = sees ? t_exp_$S(two[0] - pair[0]) * two[1] : ($T)0;
    pair[1] = first + second;
    T_UNROLL
    for (int k = 0; k < $V; k++) a[k] = sees ? (first * a[k] + second * b[k]) / pair[1] : ($T)0;
    t_store_$MADE_$V(y + at * $V, a);
    if (at % size == 0) t_store_$PAIR_2(s + 2 * row, pair);
}
