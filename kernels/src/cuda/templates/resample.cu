
/* y at each place, of its neighbours along the dimensions that are resampled. */
KERNEL(256) $NAME($PARAMETERS) {
    const t_i64 at = t_block() * 256 + t_thread();
    if (at >= count) return;
    t_i64 left = at, place = 0;
$PLACES    $W sum = 0;
    for (int corner = 0; corner < $CORNERS; corner++) {
        $W weight = 1;
        t_i64 from = place;
$WEIGHTS        if (weight == 0) continue;
        $T value;
        t_load_$D_1(x + from, &value);
        sum += weight * ($W)value;
    }
    const $T made = $MADE;
    t_store_$D_1(y + at, &made);
}
