
/* What a token's experts make of it, one after another, together: a thread to 8 neighbours. */
KERNEL(256) $NAME($PARAMETERS) {
    const t_i64 at = t_block() * 256 + t_thread();
    if (at >= count) return;
    const t_u32 across = (t_u32)hidden / 8, token = (t_u32)at / across, column = (t_u32)at % across * 8;
    float sum[8] = {0, 0, 0, 0, 0, 0, 0, 0}, x[8];
    for (t_i64 slot = token * slots; slot < (token + 1) * slots && chosen[slot] >= 0; slot++) {
        const t_i64 row = places[slot];
        t_load_$D_8(made + row * hidden + column, x);
        T_UNROLL
        for (int i = 0; i < 8; i++) sum[i] += $WEIGHTx[i];
    }
    t_store_$D_8(y + (t_i64)token * hidden + column, sum);
}
