
/* The sums of the rows of each expert's tokens, in their order: a thread to a column. */
KERNEL(256) $NAME($PARAMETERS) {
    const t_i64 at = t_block() * 256 + t_thread();
    if (at >= count) return;
    const t_i64 expert = at / inner, column = at % inner;
    $T sum = 0;
    for (t_i32 line = 0; line < counts[expert]; line++) sum += made[rows[expert * tokens + line] * inner + column];
    t_store_$F_1(y + at, &sum);
}
