
/* The gradient of each gate: a warp to one; 0 where the gate is. */
KERNEL(256) $NAME($PARAMETERS) {
    const t_i64 at = t_block() * 8 + t_thread() / 32;
    if (at >= count) return;
    const t_i64 token = at / experts, expert = at % experts;
    t_i64 slot = 0;
    $T gate, sum = 0;
    for (t_i64 e = 0; e < expert; e++) {
        t_load_$D_1(gates + token * experts + e, &gate);
        slot += gate != ($T)0;
    }
    t_load_$D_1(gates + at, &gate);
    const t_i64 row = token * slots + slot;
    if (gate != ($T)0 && slot < slots)
        for (t_i64 i = t_thread() % 32; i < inner; i += 32) sum += units[row * inner + i] * back[row * inner + i];
    sum = t_warp_sum_$S(sum);
    if (t_thread() % 32 == 0) t_store_$F_1(y + at, &sum);
}
