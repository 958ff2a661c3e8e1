
/* The gradient of a convolution towards x: a thread to a result. */
KERNEL(256) $NAME($PARAMETERS) {
    const t_i64 at = t_block() * 256 + t_thread();
    if (at >= count) return;
$APART    const t_i64 group = channel / channels, c = channel % channels, each = results / groups;
    $T sum = 0, one, two;
    for (t_i64 m = group * each; m < (group + 1) * each; m++) {
$LOOPS            t_load_$D_1(dy + (sample * results + m) * points + point, &one);
            t_load_$D_1(w + (m * channels + c) * taps + tap, &two);
            sum += one * two;
$CLOSE    }
    t_store_$F_1(y + at, &sum);
}
