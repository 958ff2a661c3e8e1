
/* The sum of values, element by element: a thread to an element. */
KERNEL(256) $NAME($PARAMETERS) {
    const t_i64 at = t_block() * 256 + t_thread();
    if (at >= count) return;
    $T sum, one;
$TERMS    y[at] = $SUM;
}
