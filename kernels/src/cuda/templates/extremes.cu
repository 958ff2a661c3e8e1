
/* Whether a comes before b; what is not a number is larger than any. */
FN int $BEFORE($T a, $T b) {
    const $T low = $FIRST, high = $SECOND;
    return low < high || (low == low && high != high);
}
/* The $DOC of rows and where they were, equal ones by their places: a warp to a row. */
KERNEL(256) $NAME($PARAMETERS) {
    const t_i64 row = t_block() * 8 + t_thread() / 32;
    const int lane = t_thread() % 32;
    if (row >= rows) return;
    const t_i64 outer = ($I)row / ($I)inner, base = outer * length * inner + row - outer * inner;
    const t_i64 to = outer * count * inner + row - outer * inner;
    $T last = 0;
    t_i64 last_at = -1;
    for (t_i64 rank = 0; rank < count; rank++) {
        $T best = 0;
        t_i64 best_at = length;
        for (t_i64 j = lane; j < length; j += 32) {
            $T next;
            t_load_$D_1(x + base + j * inner, &next);
            const int later = rank == 0 || $BEFORE(last, next) || (!$BEFORE(next, last) && j > last_at);
            if (later && (best_at == length || $BEFORE(next, best))) {
                best = next;
                best_at = j;
            }
        }
        for (int mask = 16; mask; mask >>= 1) {
            const $T other = t_shuffle_$S(best, mask);
            const t_i64 other_at = t_shuffle_i(best_at, mask);
            const int nearer = !$BEFORE(best, other) && other_at < best_at;
            if (other_at < length && (best_at == length || $BEFORE(other, best) || nearer)) {
                best = other;
                best_at = other_at;
            }
        }
        if (lane == 0) {
$VALUE            positions[to + rank * inner] = first + best_at;
        }
        last = best;
        last_at = best_at;
    }
}
