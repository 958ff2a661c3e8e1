    for (t_i64 j = start; j < length; j += $G * $V) {
        t_load_$D_$V(x + j, a);
        T_UNROLL
        for (int k = 0; k < $V; k++) {
            const $T gradient = t_exp_$S(a[k] - most) * sum - (j + k == place ? ($T)1 : ($T)0);
            a[k] = label == ignored ? ($T)0 : factor * gradient;
        }
        t_store_$F_$V(y + j, a);
    }
