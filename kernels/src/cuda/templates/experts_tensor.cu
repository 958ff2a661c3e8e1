
/* What experts make of their rows: a block 128 rows of an expert, on tensor cores. Blocks of one expert follow
   each other, and those of the same columns, so that weights are read once. */
KERNEL_ALONE(256) $NAME($PARAMETERS) {
    const int lane = t_thread() % 32, warp = t_thread() / 32;
    const t_u32 spread = (t_u32)column_tiles, expert = (t_u32)tiles[(t_u32)t_block() / spread];
    const t_u32 count = (t_u32)counts[expert], from = (t_u32)starts[expert], row_tiles = (count + 127) / 128;
    if (row_tiles == 0) return;
    const t_u32 within = (t_u32)t_block() - (from / 128 + expert) * spread;
    const t_i64 column = (t_i64)(within / row_tiles) * $WIDE, top = from + within % row_tiles * 128;
    if (column >= columns) return;
    const int height = (int)(from + count - top);
    float made[4][8][4];
    T_UNROLL
    for (int m = 0; m < 4; m++) {
        T_UNROLL
        for (int c = 0; c < 8; c++) made[m][c][0] = made[m][c][1] = made[m][c][2] = made[m][c][3] = 0;
    }
$PRODUCTS    T_UNROLL
    for (int m = 0; m < 4; m++) {
        T_UNROLL
        for (int r = 0; r < 2; r++) {
            const int line = warp / 4 * 64 + m * 16 + lane / 4 + r * 8, there = line < height;
            const t_i64 row = top + line;
$BEGIN            T_UNROLL
            for (int c = 0; c < $UNITS; c++) {
                const t_i64 n = column + $AT + lane % 4 * 2, at = row * columns + n;
                if (!there || n >= columns) continue;
$LOAD                T_UNROLL
                for (int i = 0; i < 2; i++) {
                    $EACH
                }
$STORE            }
$END        }
    }
}
