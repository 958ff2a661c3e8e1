
/* For each expert the rows of its tokens, in order: a token has as many rows as it uses experts at most,
   one after another. */
KERNEL(256) $NAME(const $C *gates, t_i32 *rows, t_i32 *counts, t_i64 tokens, t_i64 experts, t_i64 slots) {
    t_i32 *chosen = (t_i32 *)t_arena;
    const t_i64 expert = t_block();
    t_i32 made = 0;
    for (t_i64 first = 0; first < tokens; first += 256) {
        const t_i64 token = first + t_thread();
        $T gate = 0;
        t_i64 slot = 0;
        if (token < tokens) {
            for (t_i64 e = 0; e < expert; e++) {
                t_load_$D_1(gates + token * experts + e, &gate);
                slot += gate != ($T)0;
            }
            t_load_$D_1(gates + token * experts + expert, &gate);
        }
        t_barrier();
        chosen[t_thread()] = gate != ($T)0 && slot < slots;
        t_barrier();
        t_i32 before = 0, all = 0;
        for (int i = 0; i < 256; i++) {
            before += i < t_thread() ? chosen[i] : 0;
            all += chosen[i];
        }
        if (chosen[t_thread()]) rows[expert * tokens + made + before] = (t_i32)(token * slots + slot);
        made += all;
    }
    if (t_thread() == 0) counts[expert] = made;
}
