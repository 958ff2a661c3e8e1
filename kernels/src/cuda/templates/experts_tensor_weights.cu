
/* The gradient of an expert's weights, of all its rows: a block 128 rows and 256 columns of it, on tensor cores,
   by tiles of 32 rows of the expert, three of which are on their way while one is multiplied. */
FN void $NAME_owners(t_i32 *rows, const t_i32 *owners, t_i64 first, t_i64 count) {
    T_UNROLL
    for (int j = 0; j < $SHARE; j++) {
        const t_i64 line = first + t_thread() / $ACROSS + j * (256 / $ACROSS);
        rows[j] = line < count ? owners[line] : 0;
    }
}
FN void $NAME_load(t_u16 *to, const t_u16 *a, const t_u16 *b, const t_i32 *rows, t_i64 first, t_i64 count, t_i64 m_extent, t_i64 n_extent, t_i64 m_first, t_i64 n_first) {
    T_UNROLL
    for (int j = 0; j < 2; j++) {
        const int line = t_thread() / 16 + j * 16, chunk = t_thread() % 16;
        const int there = first + line < count && m_first + chunk * 8 < m_extent;
        t_copy_async(to + line * 128 + (chunk ^ line % 8) * 8, a + (there ? (t_i64)($LEFT) * m_extent + m_first + chunk * 8 : 0), there);
    }
    to += 32 * 128;
    T_UNROLL
    for (int j = 0; j < 4; j++) {
        const int line = t_thread() / 32 + j * 8, chunk = t_thread() % 32;
        const int there = first + line < count && n_first + chunk * 8 < n_extent;
        t_copy_async(to + line * 256 + (chunk ^ line % 8) * 8, b + (there ? (t_i64)($RIGHT) * n_extent + n_first + chunk * 8 : 0), there);
    }
}
KERNEL_ALONE(256) $NAME($PARAMETERS) {
    t_u16 *tiles = (t_u16 *)t_arena;
    const int lane = t_thread() % 32, warp = t_thread() / 32;
    const t_u32 m_tiles = (t_u32)(m_extent + 127) / 128, n_tiles = (t_u32)(n_extent + 255) / 256;
    const t_u32 block = (t_u32)t_block() % (m_tiles * n_tiles), outer = (t_u32)t_block() / (m_tiles * n_tiles);
    const t_i64 m_first = (t_i64)($MTILE) * 128, n_first = (t_i64)($NTILE) * 256;
    const t_i64 expert = $EXPERT, count = counts[expert], start = starts[expert];
    float made[4][8][4];
    t_i32 rows[$SHARE];
    int slot = 0;
    $WHICH
    T_UNROLL
    for (int m = 0; m < 4; m++) {
        T_UNROLL
        for (int c = 0; c < 8; c++) made[m][c][0] = made[m][c][1] = made[m][c][2] = made[m][c][3] = 0;
    }
    T_UNROLL
    for (int ahead = 0; ahead < 3; ahead++) {
        $NAME_owners(rows, owners + start, ahead * 32, count);
        if (ahead * 32 < count) $NAME_load(tiles + ahead * 12288, a, b, rows, ahead * 32, count, m_extent, n_extent, m_first, n_first);
        t_commit();
    }
    $NAME_owners(rows, owners + start, 96, count);
    for (t_i64 first = 0; first < count; first += 32) {
        t_wait_but_two();
        t_barrier();
        if (first + 96 < count) $NAME_load(tiles + (slot + 3) % 4 * 12288, a, b, rows, first + 96, count, m_extent, n_extent, m_first, n_first);
        t_commit();
        $NAME_owners(rows, owners + start, first + 128, count);
        const t_u16 *a_tile = tiles + slot * 12288, *b_tile = a_tile + 32 * 128;
        T_UNROLL
        for (int half = 0; half < 2; half++) {
            t_u32 left[4][4];
            T_UNROLL
            for (int m = 0; m < 4; m++) {
                const int line = half * 16 + lane / 16 * 8 + lane % 8, chunk = warp / 4 * 8 + m * 2 + lane / 8 % 2;
                t_load_matrices_turned(left[m], a_tile + line * 128 + (chunk ^ lane % 8) * 8);
            }
            T_UNROLL
            for (int c = 0; c < 8; c += 2) {
                const int line = half * 16 + lane % 16, chunk = c / 4 * 16 + warp % 4 * 4 + c % 4 + lane / 16;
                t_u32 right[4];
                t_load_matrices_turned(right, b_tile + line * 256 + (chunk ^ lane % 8) * 8);
                T_UNROLL
                for (int m = 0; m < 4; m++) {
                    t_mma_$D(made[m][c], left[m], right);
                    t_mma_$D(made[m][c + 1], left[m], right + 2);
                }
            }
        }
        slot = (slot + 1) % 4;
    }
    T_UNROLL
    for (int m = 0; m < 4; m++) {
        T_UNROLL
        for (int r = 0; r < 2; r++) {
            const t_i64 line = m_first + warp / 4 * 64 + m * 16 + lane / 4 + r * 8;
            T_UNROLL
            for (int c = 0; c < 8; c++) {
                const t_i64 n = n_first + c / 4 * 128 + warp % 4 * 32 + c % 4 * 8 + lane % 4 * 2;
                if (line < m_extent && n < n_extent) $STORE
            }
        }
    }
}
