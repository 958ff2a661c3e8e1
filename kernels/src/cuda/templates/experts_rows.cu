
/* What experts make of their tokens: a block 32 rows and columns of an expert's. */
KERNEL_ALONE(256) $NAME($PARAMETERS) {
    $T *left = ($T *)t_arena, *right = left + 32 * 33;
    const t_i64 column_tiles = (columns + 31) / 32, row_tiles = (tokens + 31) / 32;
    const t_i64 column = t_block() % column_tiles * 32, first = t_block() / column_tiles % row_tiles * 32;
    const t_i64 expert = t_block() / column_tiles / row_tiles, count = counts[expert];
    if (first >= count) return;
    rows += expert * tokens;
$PRODUCTS    T_UNROLL
    for (int r = 0; r < 4; r++) {
        const t_i64 line = first + t_thread() / 32 * 4 + r, n = column + t_thread() % 32;
        if (line >= count || n >= columns) continue;
        const t_i64 row = rows[line], at = row * columns + n;
        $STORE
    }
}
