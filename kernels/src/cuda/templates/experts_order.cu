
/* The rows of experts, one expert's after another's, each in the order of tokens: of which token a row is and
   its gate, where the row of each slot of a token is, how many rows an expert has and where they begin. The
   tiles of 128 rows begin anew with each expert: as many are set apart as experts may need whose rows begin
   there. A block lists the rows of an expert. */
KERNEL(256) $NAME($PARAMETERS) {
    t_i32 *sums = (t_i32 *)t_arena;
    const int lane = t_thread() % 32, warp = t_thread() / 32;
    const t_i32 expert = (t_i32)t_block(), all = (t_i32)rows;
    int own = 0, less = 0, count = 0, start = 0;
    for (t_i32 at = t_thread(); at < all; at += 256) {
        own += chosen[at] == expert;
        less += (t_u32)chosen[at] < (t_u32)expert;
    }
    t_warp_before(own, &own);
    t_warp_before(less, &less);
    if (lane == 0) {
        sums[warp] = own;
        sums[8 + warp] = less;
    }
    t_barrier();
    for (int i = 0; i < 8; i++) {
        count += sums[i];
        start += sums[8 + i];
    }
    if (t_thread() == 0) {
        counts[expert] = count;
        starts[expert] = start;
    }
    const t_i32 end = expert + 1 == (t_i32)experts ? (t_i32)tile_count : (start + count) / 128 + expert + 1;
    for (t_i32 tile = start / 128 + expert + t_thread(); tile < end; tile += 256) tiles[tile] = expert;
    for (t_i32 first = 0; first < all; first += 2048) {
        const t_i32 at = first + t_thread() * 8;
        t_u32 uses = 0;
        int mine = 0, together;
        for (int i = 0; i < 8; i++) {
            const int is = at + i < all && chosen[at + i] == expert;
            uses |= (t_u32)is << i;
            mine += is;
        }
        int place = start + t_warp_before(mine, &together);
        t_barrier();
        if (lane == 0) sums[warp] = together;
        t_barrier();
        for (int i = 0; i < 8; i++) {
            place += i < warp ? sums[i] : 0;
            start += sums[i];
        }
        for (int i = 0; i < 8; i++) {
            if (!(uses >> i & 1)) continue;
            const t_u32 token = (t_u32)(at + i) / (t_u32)slots;
            owners[place] = (t_i32)token;
            places[at + i] = place;
            t_load_$D_1(gates + (t_i64)token * experts + expert, lets + place);
            place++;
        }
    }
}
