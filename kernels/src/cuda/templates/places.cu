
/* Where the slice of a block begins that each tuple of indices names; -1 where it has none. */
KERNEL(256) $NAME($PARAMETERS) {
    const t_i64 tuple = t_block() * 256 + t_thread();
    if (tuple >= count) return;
    t_i64 place = 0;
    int inside = 1;
$PLACES    places[tuple] = inside ? place : -1;
}
