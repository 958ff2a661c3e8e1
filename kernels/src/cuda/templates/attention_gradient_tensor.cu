
$BLINDROWS/* The gradient of attention towards $DOC on tensor cores: a block computes 64 rows, a warp 16 of them,
   by tiles of 64 rows of the other side, $STEP at a time; the next tile is on its way while one is
   computed. Exponentials are of base 2. */
FN void $NAME_load(t_u16 *to, const t_u16 *from, t_i64 first, t_i64 count, t_i64 apart, int columns) {
    for (int i = t_thread(); i < 64 * columns / 8; i += 128) {
        const int row = i / (columns / 8), column = i % (columns / 8) * 8, there = first + row < count;
        t_copy_async(to + row * (columns + 8) + column, from + (there ? first + row : 0) * apart + column, there);
    }
}
/* Of 64 queries the largest score, above all where nothing is seen, so that nothing weighs; the logarithm
   of the sum to base 2; and dy . y. */
FN void $NAME_rows(float *to, const $PC *stats, const float *own, t_i64 first, t_i64 queries) {
    const t_i64 query = first + t_thread();
    if (t_thread() >= 64) return;
    float pair[2] = {-T_INFINITY_F, 0};
    if (query < queries) t_load_$P_2(stats + 2 * query, pair);
    const int sees = pair[0] != -T_INFINITY_F;
    to[t_thread()] = sees ? pair[0] : T_INFINITY_F;
    to[64 + t_thread()] = sees ? t_log2_f(pair[1]) : 0.0f;
    to[128 + t_thread()] = query < queries ? own[query] : 0.0f;
}
KERNEL_ALONE(128) $NAME($PARAMETERS) {
    t_u16 *own_one = (t_u16 *)t_arena, *own_two = own_one + 64 * ($DE + 8);
    t_u16 *one_rows = own_two + 64 * ($EE + 8), *two_rows = one_rows + 2 * 64 * ($DE + 8);
    float *numbers = (float *)(two_rows + 2 * 64 * ($EE + 8));
    const int lane = t_thread() % 32, warp = t_thread() / 32, pair = lane % 4 * 2;
    /* Where lanes read matrices: of four, rows follow first, or columns. */
    const int down = lane / 8 % 2 * 8 + lane % 8, across = lane / 16 * 8;
    const int down_last = lane / 16 * 8 + lane % 8, across_first = lane / 8 % 2 * 8;
$PLACES    float made_one[$DE / 8][4]$MADE;
    T_UNROLL
    for (int c = 0; c < $DE / 8; c++) made_one[c][0] = made_one[c][1] = made_one[c][2] = made_one[c][3] = 0;
$CLEAR    $NAME_load(own_one, own_d, first_own, own_count, own_d_r, $DE);
    $NAME_load(own_two, own_e, first_own, own_count, own_e_r, $EE);
$ROWS$HEADS$RANGE        if (begin < end) {
            $NAME_load(one_rows, other_d, begin, other_count, other_d_r, $DE);
            $NAME_load(two_rows, other_e, begin, other_count, other_e_r, $EE);
$ROWSFIRST        }
        t_commit();
        int stage = 0;
        t_i64 next = begin;
        for (t_i64 first_other = begin; first_other < end; first_other = next, stage ^= 1) {
$NEXT            const t_i64 first_$OTHER = first_other;
            const t_u16 *one = one_rows + stage * 64 * ($DE + 8), *two = two_rows + stage * 64 * ($EE + 8);
            if (next < end) {
                $NAME_load(one_rows + (stage ^ 1) * 64 * ($DE + 8), other_d, next, other_count, other_d_r, $DE);
                $NAME_load(two_rows + (stage ^ 1) * 64 * ($EE + 8), other_e, next, other_count, other_e_r, $EE);
$ROWSNEXT            }
            t_commit();
            t_wait_but_one();
            t_barrier();
            const int whole = $WHOLE;
            for (int part = 0; part < 64; part += $STEP) {
                float scores[$STEP / 8][4], gradients[$STEP / 8][4];
                T_UNROLL
                for (int n = 0; n < $STEP / 8; n++) {
                    scores[n][0] = scores[n][1] = scores[n][2] = scores[n][3] = 0;
                    gradients[n][0] = gradients[n][1] = gradients[n][2] = gradients[n][3] = 0;
                }
                T_UNROLL_FOUR
                for (int c = 0; c < $DE; c += 16) {
                    t_u32 a[4], b[4];
                    t_load_matrices(a, own_one + (warp * 16 + down) * ($DE + 8) + c + across);
                    T_UNROLL
                    for (int n = 0; n < $STEP / 8; n += 2) {
                        t_load_matrices(b, one + (part + n * 8 + down_last) * ($DE + 8) + c + across_first);
                        t_mma_$D(scores[n], a, b);
                        t_mma_$D(scores[n + 1], a, b + 2);
                    }
                }
                T_UNROLL_FOUR
                for (int c = 0; c < $EE; c += 16) {
                    t_u32 a[4], b[4];
                    t_load_matrices(a, own_two + (warp * 16 + down) * ($EE + 8) + c + across);
                    T_UNROLL
                    for (int n = 0; n < $STEP / 8; n += 2) {
                        t_load_matrices(b, two + (part + n * 8 + down_last) * ($EE + 8) + c + across_first);
                        t_mma_$D(gradients[n], a, b);
                        t_mma_$D(gradients[n + 1], a, b + 2);
                    }
                }
                T_UNROLL
                for (int n = 0; n < $STEP / 8; n++) {
                    T_UNROLL
                    for (int i = 0; i < 4; i++) {
                        const int own_at = warp * 16 + lane / 4 + i / 2 * 8, other_at = part + n * 8 + pair + i % 2;
                        float s = scores[n][i], slope = 1;
                        if (whole) {
                            s *= $SCALE;
                        } else {
                            const t_i64 $OWN = first_own + own_at, $OTHER = first_other + other_at;
$SCORE$BLIND                        }
                        const float weight = t_exp2_f((s - numbers[$AT]) * 1.44269504f - numbers[64 + $AT]);
                        scores[n][i] = weight;
                        gradients[n][i] = weight == 0.0f ? 0.0f : (gradients[n][i] - numbers[128 + $AT]) * weight * slope;
                    }
                }
                T_UNROLL
                for (int t = 0; t < $STEP / 16; t++) {
                    t_u32 a[4], b[4];
                    T_UNROLL
                    for (int i = 0; i < 4; i++) {
                        a[i] = t_pack_$D(gradients[2 * t + i / 2][i % 2 * 2], gradients[2 * t + i / 2][i % 2 * 2 + 1]);
                    }
                    T_UNROLL
                    for (int c = 0; c < $DE / 8; c += 2) {
                        t_load_matrices_turned(b, one + (part + t * 16 + down) * ($DE + 8) + c * 8 + across);
                        t_mma_$D(made_one[c], a, b);
                        t_mma_$D(made_one[c + 1], a, b + 2);
                    }
$SECOND                }
            }
            t_barrier();
        }
$HEADSEND    T_UNROLL
    for (int r = 0; r < 2; r++) {
        const t_i64 place = first_own + warp * 16 + lane / 4 + r * 8;
        if (place >= own_count) continue;
        T_UNROLL
        for (int c = 0; c < $DE / 8; c++) {
            *(t_u32 *)(out_d + place * out_d_r + c * 8 + pair) =
                t_pack_$D(made_one[c][2 * r] * $SCALE, made_one[c][2 * r + 1] * $SCALE);
        }
$STORESECOND    }
}
