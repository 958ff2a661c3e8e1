
/* Pairs rotated: $V of them to a thread. */
KERNEL(256) $NAME($PARAMETERS) {
    const t_i64 place = t_block() * 256 + t_thread();
    if (place >= count) return;
    const t_i64 own = place % pairs * $V, at = place / pairs;
$APART    x += at * size;
    y += at * size;
    cosine += $COSINE;
    sine += $SINE;
    $T a[2 * $V], c[2 * $V], s[2 * $V], b[2 * $V];
    $LOADS
    T_UNROLL
    for (int k = 0; k < $V; k++) {
        const int low = $LOW, high = $HIGH;
        b[low] = a[low] * c[low] $MINUS a[high] * s[$CROSS];
        b[high] = a[high] * c[high] $PLUS a[low] * s[$OTHER];
    }
    $STORES
}
