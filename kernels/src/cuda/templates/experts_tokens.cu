
/* What a token's experts make of it, one after another, together. */
KERNEL(256) $NAME($PARAMETERS) {
    const t_i64 at = t_block() * 256 + t_thread();
    if (at >= count) return;
    const t_i64 token = at / hidden, column = at % hidden;
    t_i64 row = token * slots;
    $T sum = 0, gate;
    for (t_i64 e = 0; e < experts; e++) {
        t_load_$D_1(gates + token * experts + e, &gate);
        if (gate == ($T)0 || row == (token + 1) * slots) continue;
        sum += $WEIGHTmade[row * hidden + column];
        row++;
    }
    t_store_$F_1(y + at, &sum);
}
