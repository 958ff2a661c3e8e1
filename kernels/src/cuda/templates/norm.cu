
/* $DOC: (x - middle) / sqrt(mean((x - middle)^2) + epsilon), scaled. $G threads to a row. */
KERNEL($THREADS) $NAME($PARAMETERS) {
    const t_i64 row = t_block() * $R + t_thread() / $G;
    const t_i64 start = (t_thread() % $G) * $V;
    if (row >= rows) return;
$ONCE    $T sum = 0, middle = 0, mean = 0, product = 0;
$PASSES}
