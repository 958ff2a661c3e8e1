
$BLINDROWS/* The gradient of attention towards $DOC: a block computes 32 rows, a warp 4 of them, by tiles of
   32 rows of the other side. */
KERNEL_ALONE(256) $NAME($PARAMETERS) {
    $T *one_rows = ($T *)t_arena, *two_rows = one_rows + 32 * $DP;
    $T *own_one = two_rows + 32 * $EP, *own_two = own_one + 32 * $DP;
    const int lane = t_thread() % 32, warp = t_thread() / 32;
    $T *weights = own_two + 32 * $EP + warp * 64;
$PLACES    $T made_one[4][$DC]$MADE;
    for (int r = 0; r < 4; r++) {
        for (int c = 0; c < $DC; c++) made_one[r][c] = 0;
$CLEAR    }
    for (int i = t_thread(); i < 32 * $DE; i += 256) {
        $T x = 0;
        if (first_own + i / $DE < own_count) t_load_$D_1(own_d + (first_own + i / $DE) * own_d_r + i % $DE, &x);
        own_one[i / $DE * $DP + i % $DE] = x;
    }
    for (int i = t_thread(); i < 32 * $EE; i += 256) {
        $T x = 0;
        if (first_own + i / $EE < own_count) t_load_$D_1(own_e + (first_own + i / $EE) * own_e_r + i % $EE, &x);
        own_two[i / $EE * $EP + i % $EE] = x;
    }
$HEADS        for (t_i64 first_other = $BEGIN; first_other < $END; first_other += 32) {
$SKIP            t_barrier();
            for (int i = t_thread(); i < 32 * $DE; i += 256) {
                $T x = 0;
                if (first_other + i / $DE < other_count) t_load_$D_1(other_d + (first_other + i / $DE) * other_d_r + i % $DE, &x);
                one_rows[i / $DE * $DP + i % $DE] = x;
            }
            for (int i = t_thread(); i < 32 * $EE; i += 256) {
                $T x = 0;
                if (first_other + i / $EE < other_count) t_load_$D_1(other_e + (first_other + i / $EE) * other_e_r + i % $EE, &x);
                two_rows[i / $EE * $EP + i % $EE] = x;
            }
            t_barrier();
            T_UNROLL
            for (int r = 0; r < 4; r++) {
                const t_i64 $OWN = first_own + warp * 4 + r, $OTHER = first_other + lane;
                const int inside = query < queries && key < keys;
                const t_i64 row = (batch * heads + head) * queries + (query < queries ? query : 0);
                $T s = 0, gradient = 0, slope = 1, weight = 0, pair[2] = {-T_INFINITY_$U, 0};
                T_UNROLL_FEW for (int c = 0; c < $DE; c++) s += own_one[(warp * 4 + r) * $DP + c] * one_rows[lane * $DP + c];
                T_UNROLL_FEW for (int c = 0; c < $EE; c++) gradient += own_two[(warp * 4 + r) * $EP + c] * two_rows[lane * $EP + c];
$SCORE                if (inside) t_load_$P_2(stats + 2 * row, pair);
$BLIND                if (pair[0] != -T_INFINITY_$U && s != -T_INFINITY_$U) weight = t_exp_$S(s - pair[0]) / pair[1];
                gradient = weight == ($T)0 ? ($T)0 : (gradient - (inside ? own[row] : ($T)0)) * weight * slope;
                t_warp_barrier();
                weights[lane] = gradient;
                weights[32 + lane] = weight;
                t_warp_barrier();
                T_UNROLL
                for (int c = 0; c < $DC; c++) {
                    const int column = lane + 32 * c;
                    if (column < $DE) T_UNROLL_FEW for (int t = 0; t < 32; t++) made_one[r][c] += weights[t] * one_rows[t * $DP + column];
                }
$SECOND            }
        }
$HEADSEND    T_UNROLL
    for (int r = 0; r < 4; r++) {
        const t_i64 place = first_own + warp * 4 + r;
        if (place >= own_count) continue;
        T_UNROLL
        for (int c = 0; c < $DC; c++) {
            const int column = lane + 32 * c;
            const $T value = made_one[r][c] * $SCALE;
            if (column < $DE) t_store_$F_1(out_d + place * out_d_r + column, &value);
        }
$STORESECOND    }
}
