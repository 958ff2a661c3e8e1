
/* Attention: a block computes 32 queries of a head, a warp 4 of them, by tiles of 32 keys. */
KERNEL_ALONE(256) $NAME($PARAMETERS) {
    $T *q_rows = ($T *)t_arena, *k_rows = q_rows + 32 * $DP, *v_rows = k_rows + 32 * $DP;
    const int lane = t_thread() % 32, warp = t_thread() / 32;
    $T *weights = v_rows + 32 * $EP + warp * 32;
    const t_u32 tiles = (t_u32)(queries + 31) / 32, tile = (t_u32)t_block() % tiles, outer = (t_u32)t_block() / tiles;
    const t_i64 first_query = (t_i64)tile * 32, head = outer % (t_u32)heads, batch = outer / (t_u32)heads;
    const t_i64 group = (t_u32)head / ((t_u32)heads / (t_u32)groups);
    $T most[4], sum[4], made[4][$EC];
    q += batch * q_b + head * q_h + first_query * q_r;
    k += batch * k_b + group * k_h;
    v += batch * v_b + group * v_h;
    y += batch * y_b + head * y_h;
    for (int i = t_thread(); i < 32 * $DE; i += 256) {
        $T x = 0;
        if (first_query + i / $DE < queries) t_load_$D_1(q + i / $DE * q_r + i % $DE, &x);
        q_rows[i / $DE * $DP + i % $DE] = x;
    }
    for (int r = 0; r < 4; r++) {
        most[r] = -T_INFINITY_$U;
        sum[r] = 0;
        for (int c = 0; c < $EC; c++) made[r][c] = 0;
    }
$BEGUN    for (t_i64 first_key = $BEGIN; first_key < $END; first_key += 32) {
        t_barrier();
        for (int i = t_thread(); i < 32 * $DE; i += 256) {
            $T x = 0;
            if (first_key + i / $DE < keys) t_load_$D_1(k + (first_key + i / $DE) * k_r + i % $DE, &x);
            k_rows[i / $DE * $DP + i % $DE] = x;
        }
        for (int i = t_thread(); i < 32 * $EE; i += 256) {
            $T x = 0;
            if (first_key + i / $EE < keys) t_load_$D_1(v + (first_key + i / $EE) * v_r + i % $EE, &x);
            v_rows[i / $EE * $EP + i % $EE] = x;
        }
        t_barrier();
        const t_i64 key = first_key + lane;
        T_UNROLL
        for (int r = 0; r < 4; r++) {
            const t_i64 query = first_query + warp * 4 + r;
            $T s = 0, highest, factor, weight;
            T_UNROLL_FEW for (int c = 0; c < $DE; c++) s += q_rows[(warp * 4 + r) * $DP + c] * k_rows[lane * $DP + c];
$SCORE            highest = t_max_$S(most[r], t_warp_max_$S(s));
            factor = most[r] == highest ? ($T)1 : t_exp_$S(most[r] - highest);
            weight = s == -T_INFINITY_$U ? ($T)0 : t_exp_$S(s - highest);
            most[r] = highest;
            sum[r] = sum[r] * factor + t_warp_sum_$S(weight);
            t_warp_barrier();
            weights[lane] = weight;
            t_warp_barrier();
            T_UNROLL
            for (int c = 0; c < $EC; c++) {
                const int column = lane + 32 * c;
                $T own = made[r][c] * factor;
                if (column < $EE) T_UNROLL_FEW for (int t = 0; t < 32; t++) own += weights[t] * v_rows[t * $EP + column];
                made[r][c] = own;
            }
        }
    }
    T_UNROLL
    for (int r = 0; r < 4; r++) {
        const t_i64 query = first_query + warp * 4 + r, row = (batch * heads + head) * queries + query;
        if (query >= queries) continue;
$BLIND        const int sees = most[r] != -T_INFINITY_$U;
        T_UNROLL
        for (int c = 0; c < $EC; c++) {
            const int column = lane + 32 * c;
            const $T own = sees ? made[r][c] / sum[r] : ($T)0;
            if (column < $EE) t_store_$F_1(y + query * y_r + column, &own);
        }
$STATISTICS    }
}
