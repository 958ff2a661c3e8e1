
/* y[to] = x[from]. */
KERNEL(256) $NAME($PARAMETERS) {
    const t_i64 at = t_block() * 256 + t_thread();
    if (at >= count) return;
$APART    y[y0 + ($TO)] = x[x0 + ($FROM)];
}
