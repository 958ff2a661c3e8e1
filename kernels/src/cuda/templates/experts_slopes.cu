
/* The gradients of a token's gates, of parts that blocks left; 0 where a gate is: a warp to a token. */
KERNEL(256) $NAME($PARAMETERS) {
    const int lane = t_thread() % 32;
    const t_i64 token = t_block() * 8 + t_thread() / 32;
    if (token >= tokens) return;
    t_i64 slot = token * slots;
    for (t_i64 first = 0; first < experts; first += 32) {
        float gradient = 0;
        for (; slot < (token + 1) * slots && chosen[slot] >= 0 && chosen[slot] < first + 32; slot++) {
            float sum = 0;
            const t_i64 row = places[slot];
            for (t_i64 part = lane; part < parts; part += 32) sum += sums[row * parts + part];
            sum = t_warp_sum_f(sum);
            if (chosen[slot] == first + lane) gradient = sum;
        }
        if (first + lane < experts) t_store_$D_1(y + token * experts + first + lane, &gradient);
    }
}
