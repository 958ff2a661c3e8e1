
/* Attention on tensor cores: a block computes 64 queries of a head, a warp 16 of them, by tiles of 64
   keys, the next of which are on their way while one is computed. Exponentials are of base 2; scores are
   not, as those of the lowest finite mask would be lower than any number. */
FN void $LOAD(t_u16 *to, const t_u16 *from, t_i64 first, t_i64 keys, t_i64 apart, int columns, int pitch) {
    for (int i = t_thread(); i < 64 * columns / 8; i += 128) {
        const int row = i / (columns / 8), column = i % (columns / 8) * 8, there = first + row < keys;
        t_copy_async(to + row * pitch + column, from + (there ? first + row : 0) * apart + column, there);
    }
}
KERNEL_ALONE(128) $NAME($PARAMETERS) {
    t_u16 *k_rows = (t_u16 *)t_arena, *v_rows = k_rows + 2 * 64 * ($DE + 8);
    const int lane = t_thread() % 32, warp = t_thread() / 32, pair = lane % 4 * 2;
    const t_u32 tiles = (t_u32)(queries + 63) / 64, tile = (t_u32)t_block() % tiles, outer = (t_u32)t_block() / tiles;
    const t_i64 first_query = (t_i64)(tiles - 1 - tile) * 64, head = outer % (t_u32)heads, batch = outer / (t_u32)heads;
    const t_i64 group = (t_u32)head / ((t_u32)heads / (t_u32)groups);
    const t_i64 own = first_query + warp * 16 + lane / 4, rows = (batch * heads + head) * queries;
    const t_i64 begin = $BEGIN, end = $END;
    t_u32 q_parts[$DE / 16][4];
    float made[$EE / 8][4], most[2] = {-T_INFINITY_F, -T_INFINITY_F}, sum[2] = {0, 0};
    q += batch * q_b + head * q_h;
    k += batch * k_b + group * k_h;
    v += batch * v_b + group * v_h;
    y += batch * y_b + head * y_h;
$BEGUN    T_UNROLL
    for (int c = 0; c < $DE / 16; c++) {
        T_UNROLL
        for (int i = 0; i < 4; i++) {
            const t_i64 row = own + i % 2 * 8;
            q_parts[c][i] = row < queries ? *(const t_u32 *)(q + row * q_r + c * 16 + i / 2 * 8 + pair) : 0;
        }
    }
    T_UNROLL
    for (int c = 0; c < $EE / 8; c++) made[c][0] = made[c][1] = made[c][2] = made[c][3] = 0;
    if (begin < end) {
        $LOAD(k_rows, k, begin, keys, k_r, $DE, $DE + 8);
        $LOAD(v_rows, v, begin, keys, v_r, $EE, $EE + 8);
    }
    t_commit();
    int stage = 0;
    for (t_i64 first_key = begin; first_key < end; first_key += 64, stage ^= 1) {
        const t_u16 *k_tile = k_rows + stage * 64 * ($DE + 8), *v_tile = v_rows + stage * 64 * ($EE + 8);
        if (first_key + 64 < end) {
            $LOAD(k_rows + (stage ^ 1) * 64 * ($DE + 8), k, first_key + 64, keys, k_r, $DE, $DE + 8);
            $LOAD(v_rows + (stage ^ 1) * 64 * ($EE + 8), v, first_key + 64, keys, v_r, $EE, $EE + 8);
        }
        t_commit();
        t_wait_but_one();
        t_barrier();
        float scores[8][4];
        T_UNROLL
        for (int n = 0; n < 8; n++) scores[n][0] = scores[n][1] = scores[n][2] = scores[n][3] = 0;
        T_UNROLL
        for (int c = 0; c < $DE / 16; c++) {
            T_UNROLL
            for (int n = 0; n < 8; n += 2) {
                t_u32 b[4];
                t_load_matrices(b, k_tile + (n * 8 + lane / 16 * 8 + lane % 8) * ($DE + 8) + c * 16 + lane / 8 % 2 * 8);
                t_mma_$D(scores[n], q_parts[c], b);
                t_mma_$D(scores[n + 1], q_parts[c], b + 2);
            }
        }
        const int whole = $WHOLE;
        T_UNROLL
        for (int n = 0; n < 8; n++) {
            T_UNROLL
            for (int i = 0; i < 4; i++) {
                float s = scores[n][i];
                if (whole) {
                    s *= $SCALE;
                } else {
                    const t_i64 query = own + i / 2 * 8, key = first_key + n * 8 + pair + i % 2;
$SCORE                }
                scores[n][i] = s;
            }
        }
        T_UNROLL
        for (int r = 0; r < 2; r++) {
            float highest = most[r], base, factor;
            T_UNROLL
            for (int n = 0; n < 8; n++) highest = t_max_f(highest, t_max_f(scores[n][2 * r], scores[n][2 * r + 1]));
            highest = t_max_f(highest, t_shuffle_f(highest, 1));
            highest = t_max_f(highest, t_shuffle_f(highest, 2));
            base = highest == -T_INFINITY_F ? 0.0f : highest;
            factor = t_exp2_f((most[r] - base) * 1.44269504f);
            most[r] = highest;
            sum[r] *= factor;
            T_UNROLL
            for (int n = 0; n < 8; n++) {
                T_UNROLL
                for (int i = 2 * r; i < 2 * r + 2; i++) {
                    scores[n][i] = t_exp2_f((scores[n][i] - base) * 1.44269504f);
                    sum[r] += scores[n][i];
                }
            }
            T_UNROLL
            for (int c = 0; c < $EE / 8; c++) {
                made[c][2 * r] *= factor;
                made[c][2 * r + 1] *= factor;
            }
        }
        T_UNROLL
        for (int part = 0; part < 4; part++) {
            t_u32 weights[4];
            T_UNROLL
            for (int i = 0; i < 4; i++) {
                weights[i] = t_pack_$D(scores[2 * part + i / 2][i % 2 * 2], scores[2 * part + i / 2][i % 2 * 2 + 1]);
            }
            T_UNROLL
            for (int c = 0; c < $EE / 8; c += 2) {
                t_u32 b[4];
                t_load_matrices_turned(b, v_tile + (part * 16 + lane / 8 % 2 * 8 + lane % 8) * ($EE + 8) + c * 8 + lane / 16 * 8);
                t_mma_$D(made[c], weights, b);
                t_mma_$D(made[c + 1], weights, b + 2);
            }
        }
        t_barrier();
    }
    T_UNROLL
    for (int r = 0; r < 2; r++) {
        const t_i64 query = own + r * 8;
        sum[r] += t_shuffle_f(sum[r], 1);
        sum[r] += t_shuffle_f(sum[r], 2);
        const int sees = most[r] != -T_INFINITY_F;
        const float factor = sees ? 1.0f / sum[r] : 0.0f;
        if (query < queries) {
            T_UNROLL
            for (int c = 0; c < $EE / 8; c++) {
                *(t_u32 *)(y + query * y_r + c * 8 + pair) =
                    t_pack_$D(made[c][2 * r] * factor, made[c][2 * r + 1] * factor);
            }
$BLIND$STATISTICS        }
    }
}
