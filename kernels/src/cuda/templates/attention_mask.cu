
/* The gradient of attention towards its mask: a thread to an element, over all scores that it is
   repeated for. */
KERNEL_ALONE(256) $NAME($PARAMETERS) {
    const t_i64 at = t_block() * 256 + t_thread();
    if (at >= count) return;
    const t_i64 key_at = at % mask_keys, query_at = at / mask_keys % mask_queries;
    const t_i64 head_at = at / mask_keys / mask_queries % mask_heads, batch_at = at / mask_keys / mask_queries / mask_heads;
    $T sum = 0;
    for (t_i64 batch = batch_at; batch < batches; batch += mask_batches)
    for (t_i64 head = head_at; head < heads; head += mask_heads)
    for (t_i64 query = query_at; query < queries; query += mask_queries)
    for (t_i64 key = key_at; key < keys; key += mask_keys) {
        const t_i64 row = (batch * heads + head) * queries + query;
        const t_i64 group = (t_u32)head / ((t_u32)heads / (t_u32)groups);
        const $C *q_row = q + batch * q_b + head * q_h + query * q_r, *dy_row = dy + batch * dy_b + head * dy_h + query * dy_r;
        const $C *k_row = k + batch * k_b + group * k_h + key * k_r, *v_row = v + batch * v_b + group * v_h + key * v_r;
        $T s = 0, gradient = 0, slope = 1, pair[2], a, b;
        T_UNROLL_FEW for (int c = 0; c < $DE; c++) {
            t_load_$D_1(q_row + c, &a);
            t_load_$D_1(k_row + c, &b);
            s += a * b;
        }
        T_UNROLL_FEW for (int c = 0; c < $EE; c++) {
            t_load_$D_1(dy_row + c, &a);
            t_load_$D_1(v_row + c, &b);
            gradient += a * b;
        }
$SCORE        t_load_$P_2(stats + 2 * row, pair);
$BLIND        if (pair[0] == -T_INFINITY_$U || s == -T_INFINITY_$U) continue;
        sum += (gradient - own[row]) * t_exp_$S(s - pair[0]) / pair[1];
    }
    t_store_$F_1(dmask + at, &sum);
}
