
/* The gradient of an expert's weights, of all its tokens in their order: a block 32 rows and columns. */
KERNEL_ALONE(256) $NAME($PARAMETERS) {
    $T *left = ($T *)t_arena, *right = left + 32 * 33;
    const t_i64 n_tiles = (n_extent + 31) / 32, m_tiles = (m_extent + 31) / 32;
    const t_i64 n_first = t_block() % n_tiles * 32, m_first = t_block() / n_tiles % m_tiles * 32;
    const t_i64 expert = t_block() / n_tiles / m_tiles, count = counts[expert];
    const int lane = t_thread() % 32, warp = t_thread() / 32;
    rows += expert * tokens;
    $T made[4] = {0, 0, 0, 0};
    for (t_i64 first = 0; first < count; first += 32) {
        t_barrier();
        for (int i = t_thread(); i < 1024; i += 256) {
            const t_i64 line = first + i / 32, m = m_first + lane, n = n_first + lane;
            $T x = 0, y = 0;
            if (line < count) {
                const t_i64 row = rows[line], token = (t_u32)row / (t_u32)slots;
                if (m < m_extent) t_load_$L_1(a + $LEFT * m_extent + m, &x);
                if (n < n_extent) t_load_$R_1(b + $RIGHT * n_extent + n, &y);
$SCALE            }
            left[i / 32 * 33 + lane] = x;
            right[i / 32 * 33 + lane] = y;
        }
        t_barrier();
        T_UNROLL_FEW
        for (int t = 0; t < 32; t++) {
            T_UNROLL
            for (int r = 0; r < 4; r++) made[r] += left[t * 33 + warp * 4 + r] * right[t * 33 + lane];
        }
    }
    T_UNROLL
    for (int r = 0; r < 4; r++) {
        const t_i64 m = m_first + warp * 4 + r, n = n_first + lane;
        if (m < m_extent && n < n_extent) $STORE
    }
}
