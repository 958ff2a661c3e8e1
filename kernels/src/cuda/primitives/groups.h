
/* $T numbers of a warp, or of a block of so many threads, made one that all get. */
FN $T t_warp_sum_$S($T x) {
    T_UNROLL
    for (int mask = 16; mask; mask >>= 1) x += t_shuffle_$S(x, mask);
    return x;
}
FN $T t_warp_max_$S($T x) {
    T_UNROLL
    for (int mask = 16; mask; mask >>= 1) x = t_max_$S(x, t_shuffle_$S(x, mask));
    return x;
}
FN $T t_block_sum_$S($T x, int threads) {
    $T *room = ($T *)t_arena, sum = ($T)0;
    x = t_warp_sum_$S(x);
    t_barrier();
    if (t_thread() % 32 == 0) room[t_thread() / 32] = x;
    t_barrier();
    for (int warp = 0; warp < threads / 32; warp++) sum += room[warp];
    return sum;
}
FN $T t_block_max_$S($T x, int threads) {
    $T *room = ($T *)t_arena, most;
    x = t_warp_max_$S(x);
    t_barrier();
    if (t_thread() % 32 == 0) room[t_thread() / 32] = x;
    t_barrier();
    most = room[0];
    for (int warp = 1; warp < threads / 32; warp++) most = t_max_$S(most, room[warp]);
    return most;
}
