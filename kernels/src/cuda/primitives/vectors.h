
/* $C: $V at once, as the numbers that kernels compute with. */
FN void t_load_$D_$V(const $C *from, $W *to) {
    union { $R all; $C one[$V]; } room;
    room.all = *(const $R *)from;
    T_UNROLL
    for (int at = 0; at < $V; at++) to[at] = $L(room.one[at]);
}
FN void t_store_$D_$V($C *to, const $W *from) {
    union { $R all; $C one[$V]; } room;
    T_UNROLL
    for (int at = 0; at < $V; at++) room.one[at] = ($C)$N(from[at]);
    *($R *)to = room.all;
}
