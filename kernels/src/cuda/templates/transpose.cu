
/* y[column * column_to + row] = x[row * row_from + column], by squares of 32 through shared memory. */
KERNEL(256) $NAME($PARAMETERS) {
    $C *room = ($C *)t_arena;
    const int lane = t_thread() % 32;
    const t_i64 high = (rows + 31) / 32, wide = (columns + 31) / 32;
    const t_i64 first_row = t_block() % high * 32, first_column = t_block() / high % wide * 32;
    const t_i64 at = t_block() / high / wide;
$APART    x += x0 + ($FROM);
    y += y0 + ($TO);
    for (int i = t_thread() / 32; i < 32; i += 8) {
        const t_i64 row = first_row + i, column = first_column + lane;
        if (row < rows && column < columns) room[i * 33 + lane] = x[row * row_from + column];
    }
    t_barrier();
    for (int i = t_thread() / 32; i < 32; i += 8) {
        const t_i64 column = first_column + i, row = first_row + lane;
        if (row < rows && column < columns) y[column * column_to + row] = room[lane * 33 + i];
    }
}
