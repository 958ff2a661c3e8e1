
/* A sum of products that is no matrix product of a library: a thread to a result. */
KERNEL(256) $NAME($PARAMETERS) {
    const t_i64 at = t_block() * 256 + t_thread();
    if (at >= count) return;
$APART    const t_i64 left = $LEFT, right = $RIGHT;
    $T sum = 0, one, two;
$BEFORE    for (t_i64 j = 0; j < length; j++) {
$SUMMED        t_load_$D_1(a + left + ($LEFTSTEP), &one);
        t_load_$D_1(b + right + ($RIGHTSTEP), &two);
        sum += one * two;
    }
    t_store_$F_1(y + at, &sum);
}
