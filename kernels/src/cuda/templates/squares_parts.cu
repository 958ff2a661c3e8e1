
/* What sums of squares are together: one block. */
KERNEL(256) $NAME($PARAMETERS) {
    float sum = 0;
    for (t_i64 at = t_thread(); at < count; at += 256) sum += parts[at];
    sum = t_block_sum_f(sum, 256);
    if (t_thread() == 0) t_store_$F_1(y, &sum);
}
