
/* Convolution: a thread to a result. */
KERNEL(256) $NAME($PARAMETERS) {
    const t_i64 at = t_block() * 256 + t_thread();
    if (at >= count) return;
$APART    const t_i64 group = channel / (results / groups);
    $T sum = $BIAS, one, two;
    for (t_i64 c = 0; c < channels; c++) {
$LOOPS            t_load_$D_1(x + (sample * groups * channels + group * channels + c) * pixels + pixel, &one);
            t_load_$D_1(w + (channel * channels + c) * taps + tap, &two);
            sum += one * two;
$CLOSE    }
    t_store_$F_1(y + at, &sum);
}
