
/* own[row] = dy[row] . y[row]: a warp to a row. */
KERNEL(256) $NAME($PARAMETERS) {
    const t_i64 row = t_block() * 8 + t_thread() / 32;
    if (row >= rows) return;
    const t_u32 query = (t_u32)row % (t_u32)queries, outer = (t_u32)row / (t_u32)queries;
    const t_i64 head = outer % (t_u32)heads, batch = outer / (t_u32)heads;
    dy += batch * dy_b + head * dy_h + query * dy_r;
    y += batch * y_b + head * y_h + query * y_r;
    $T sum = 0, a, b;
    for (int c = t_thread() % 32; c < $EE; c += 32) {
        t_load_$D_1(dy + c, &a);
        t_load_$D_1(y + c, &b);
        sum += a * b;
    }
    sum = t_warp_sum_$S(sum);
    if (t_thread() % 32 == 0) own[row] = sum;
}
