
/* Elements of y at places that indices name, along a line one after another. */
KERNEL(256) $NAME($PARAMETERS) {
    const t_i64 at = t_block() * 256 + t_thread();
    if (at >= count) return;
    t_i64 left = at, given = 0, asked = 0, place = 0;
    int inside = 1;
$PLACES    const t_i64 line = place;
    if (!inside) return;
    for (t_i64 j = 0; j < length; j++) {
        t_i64 found = (t_i64)indices[asked + j * spread];
        found += (found < 0 ? extent : 0) - first;
        if (found < 0 || found >= held) continue;
        place = line + found * step;
        $COMBINE
    }
}
