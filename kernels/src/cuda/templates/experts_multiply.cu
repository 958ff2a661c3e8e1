
/* Adds 128 rows times 256 columns of weights, by tiles of 32 of what is summed, three of which are on their way
   while one is multiplied. A warp makes 64 rows, and 32 columns of each half. Pieces of 8 elements lie in
   shared memory so that neither copies nor matrices meet in one bank. */
FN void $NAME_load_$X(t_u16 *to, const t_u16 *const *a, const t_u16 *const *b, const int *b_there, int a_there, t_i64 start, t_i64 summed, t_i64 apart) {
    const int chunk = t_thread() % 4, row = t_thread() / 4, there = start + chunk * 8 < summed;
    T_UNROLL
    for (int j = 0; j < 2; j++) {
        t_copy_async(to + (row + j * 64) * 32 + (chunk ^ row / 2 % 4) * 8, a[j] + (there ? start : 0), there && a_there >> j & 1);
    }
    to += 128 * 32;
    T_UNROLL
    for (int j = 0; j < 4; j++) {
$COPY    }
}
FN void $NAME_$X(float (*made)[8][4], const t_u16 *a, $OWNERS int height, const t_u16 *first_weights, const t_u16 *second_weights, int first_width, int second_width, t_i64 summed, t_i64 apart) {
    t_u16 *tiles = (t_u16 *)t_arena;
    const int lane = t_thread() % 32, warp = t_thread() / 32;
    const t_u16 *a_from[2], *b_from[4];
    int a_there = 0, b_there[4], slot = 0;
    T_UNROLL
    for (int j = 0; j < 2; j++) {
        const int row = t_thread() / 4 + j * 64, there = row < height;
        a_there |= there << j;
        a_from[j] = a + (t_i64)($ROW) * summed + t_thread() % 4 * 8;
    }
    T_UNROLL
    for (int j = 0; j < 4; j++) {
$PLACE    }
    T_UNROLL
    for (int ahead = 0; ahead < 3; ahead++) {
        if (ahead * 32 < summed) $NAME_load_$X(tiles + ahead * 12288, a_from, b_from, b_there, a_there, ahead * 32, summed, apart);
        t_commit();
    }
    for (t_i64 start = 0; start < summed; start += 32) {
        t_wait_but_two();
        t_barrier();
        if (start + 96 < summed) $NAME_load_$X(tiles + (slot + 3) % 4 * 12288, a_from, b_from, b_there, a_there, start + 96, summed, apart);
        t_commit();
        const t_u16 *a_tile = tiles + slot * 12288, *b_tile = a_tile + 128 * 32;
        T_UNROLL
        for (int half = 0; half < 2; half++) {
            t_u32 left[4][4];
            T_UNROLL
            for (int m = 0; m < 4; m++) {
                const int row = warp / 4 * 64 + m * 16 + lane % 16, chunk = half * 2 + lane / 16;
                t_load_matrices(left[m], a_tile + row * 32 + (chunk ^ lane / 2 % 4) * 8);
            }
            T_UNROLL
            for (int c = 0; c < 8; c += 2) {
                t_u32 right[4];
$RIGHT                T_UNROLL
                for (int m = 0; m < 4; m++) {
                    t_mma_$D(made[m][c], left[m], right);
                    t_mma_$D(made[m][c + 1], left[m], right + 2);
                }
            }
        }
        slot = (slot + 1) % 4;
    }
}
