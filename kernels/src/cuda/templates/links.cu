
/* For each index, the next one that is the same, or their number, in `next`; and in `first` whether
   none before it is the same. */
KERNEL(256) $NAME(const $L *indices, t_i32 *next, t_i32 *first, t_i64 picked, t_i64 extent) {
    t_i64 *room = (t_i64 *)t_arena;
    const t_i64 own = t_block() * 256 + t_thread();
    t_i64 mine = own < picked ? (t_i64)indices[own] : 0, later = picked, earlier = 0;
    mine += mine < 0 ? extent : 0;
    for (t_i64 start = 0; start < picked; start += 256) {
        const t_i64 at = start + t_thread();
        t_i64 other = at < picked ? (t_i64)indices[at] : 0;
        t_barrier();
        room[t_thread()] = other + (other < 0 ? extent : 0);
        t_barrier();
        const int end = picked - start < 256 ? (int)(picked - start) : 256;
        for (int i = 0; i < end; i++) {
            if (room[i] != mine || start + i == own) continue;
            if (start + i < own) earlier = 1;
            else if (later == picked) later = start + i;
        }
    }
    if (own < picked) {
        next[own] = (t_i32)later;
        first[own] = earlier == 0;
    }
}
