
/* The gradient of a convolution towards w: a warp to a result. */
KERNEL(256) $NAME($PARAMETERS) {
    const t_i64 at = t_block() * 8 + t_thread() / 32;
    if (at >= count) return;
$APART    const t_i64 group = sample / (results / groups);
    $T sum = 0, one, two;
    for (t_i64 place = t_thread() % 32; place < samples * points; place += 32) {
        const $I n = ($I)place / ($I)points, point = ($I)place % ($I)points;
        $I rest = point;
        t_i64 pixel = 0, scale = 1;
        int inside = 1;
$LOOPS        if (!inside) continue;
        t_load_$D_1(dy + ((t_i64)n * results + sample) * points + point, &one);
        t_load_$D_1(x + ((t_i64)n * groups * channels + group * channels + channel) * pixels + pixel, &two);
        sum += one * two;
    }
    sum = t_warp_sum_$S(sum);
    if (t_thread() % 32 == 0) t_store_$F_1(y + at, &sum);
}
