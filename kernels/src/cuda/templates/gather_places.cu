
/* y[..] = the element of data that indices and its own place name, 0 where the block has none. */
KERNEL(256) $NAME($PARAMETERS) {
    const t_i64 at = t_block() * 256 + t_thread();
    if (at >= count) return;
    t_i64 place = 0;
    int inside = 1;
$PLACES    $C value = {0};
    if (inside) value = data[place];
    y[at] = value;
}
