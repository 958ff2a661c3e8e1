
/* The sums of each expert's rows of two values: a block 64 columns of one, each warp every eighth row. */
KERNEL(256) $NAME($PARAMETERS) {
    float *room = (float *)t_arena, sum[2] = {0, 0}, x[2];
    const int lane = t_thread() % 32, warp = t_thread() / 32;
    const t_u32 tiles = (t_u32)(inner + 63) / 64, outer = (t_u32)t_block() / tiles;
    const t_i64 column = (t_i64)((t_u32)t_block() % tiles) * 64 + lane * 2, expert = outer / 2;
    const t_u16 *made = (outer % 2 ? second : first) + starts[expert] * inner;
    t_u16 *y = (outer % 2 ? second_y : first_y) + expert * inner;
    const t_i64 count = column < inner ? counts[expert] : 0;
    for (t_i64 line = warp; line < count; line += 8) {
        t_load_$D_2(made + line * inner + column, x);
        sum[0] += x[0];
        sum[1] += x[1];
    }
    room[t_thread() * 2] = sum[0];
    room[t_thread() * 2 + 1] = sum[1];
    t_barrier();
    if (warp != 0 || column >= inner) return;
    T_UNROLL
    for (int from = 1; from < 8; from++) {
        sum[0] += room[(from * 32 + lane) * 2];
        sum[1] += room[(from * 32 + lane) * 2 + 1];
    }
    t_store_$D_2(y + column, sum);
}
