
/* Which experts a token uses, in their order, and -1 where it uses fewer than it has rows: a warp to a token. */
KERNEL(256) $NAME($PARAMETERS) {
    const int lane = t_thread() % 32;
    const t_i64 token = t_block() * 8 + t_thread() / 32;
    if (token >= tokens) return;
    int made = 0;
    for (t_i64 first = 0; first < experts; first += 32) {
        const t_i64 expert = first + lane;
        float gate = 0;
        if (expert < experts) t_load_$D_1(gates + token * experts + expert, &gate);
        int all;
        const int slot = made + t_warp_before(gate != 0.0f, &all);
        if (gate != 0.0f && slot < slots) chosen[token * slots + slot] = (t_i32)expert;
        made += all;
    }
    for (t_i64 slot = made + lane; slot < slots; slot += 32) chosen[token * slots + slot] = -1;
}
