
/* Functions of $T. */
FN $T t_abs_$S($T x) { return x < ($T)0 ? -x : x == ($T)0 ? ($T)0 : x; }
FN int t_is_nan_$S($T x) { return x != x; }
FN int t_is_inf_$S($T x) { return x == T_INFINITY_$U || x == -T_INFINITY_$U; }
FN $T t_max_$S($T a, $T b) { return (a > b) | (a != a) ? a : b; }
FN $T t_min_$S($T a, $T b) { return (a < b) | (a != a) ? a : b; }
FN $T t_relu_$S($T x) { return t_max_$S(x, ($T)0); }
FN $T t_sign_$S($T x) { return x > ($T)0 ? ($T)1 : x < ($T)0 ? ($T)-1 : x; }
FN $T t_mod_$S($T a, $T b) {
    $T rest = t_fmod_$S(a, b);
    return rest != ($T)0 && (rest < ($T)0) != (b < ($T)0) ? rest + b : rest;
}
FN $T t_sigmoid_$S($T x) { return ($T)1 / (($T)1 + t_exp_$S(-x)); }
FN $T t_silu_$S($T x) { return x * t_sigmoid_$S(x); }
FN $T t_normal_$S($T x) { return ($T)0.5 * t_erfc_$S(-x * ($T)0.70710678118654752440); }
FN $T t_gelu_$S($T x) { return x * t_normal_$S(x); }
FN $T t_gelu_tanh_$S($T x) {
    return x * t_sigmoid_$S(($T)1.5957691216057308 * (x + ($T)0.044715 * x * x * x));
}
FN $T t_gelu_quick_$S($T x) { return x * t_sigmoid_$S(($T)1.702 * x); }
FN $T t_softplus_$S($T x) { return (x > ($T)0 ? x : ($T)0) + t_log1p_$S(t_exp_$S(-t_abs_$S(x))); }
FN $T t_power_$S($T x, $T y) { return y == ($T)2 ? x * x : y == ($T)3 ? x * x * x : t_pow_$S(x, y); }
FN $T t_reciprocal_$S($T x) { return ($T)1 / x; }
FN $T t_square_$S($T x) { return x * x; }

/* Derivatives. Far from 0 what x is multiplied with is 0, and x may be infinite. */
FN $T t_near_$S($T x) { return x > ($T)1000 ? ($T)1000 : x < ($T)-1000 ? ($T)-1000 : x; }
FN $T t_slope_$S($T gate) { return gate * (($T)1 - gate); }
FN $T t_d_abs_$S($T x) { return x > ($T)0 ? ($T)1 : x < ($T)0 ? ($T)-1 : ($T)0; }
FN $T t_d_cos_$S($T x) { return -t_sin_$S(x); }
FN $T t_d_sin_$S($T x) { return t_cos_$S(x); }
FN $T t_d_erf_$S($T x) { return ($T)1.1283791670955125739 * t_exp_$S(-x * x); }
FN $T t_d_exp_$S($T x) { return t_exp_$S(x); }
FN $T t_d_gelu_$S($T x) {
    return t_normal_$S(x) + t_near_$S(x) * (t_exp_$S(($T)-0.5 * x * x) * ($T)0.39894228040143267794);
}
FN $T t_d_gelu_tanh_$S($T x) {
    x = t_near_$S(x);
    $T square = x * x;
    $T gate = t_sigmoid_$S(($T)1.5957691216057308 * x * (($T)1 + square * ($T)0.044715));
    return gate + x * t_slope_$S(gate) * (($T)1.5957691216057308 * (($T)1 + square * ($T)0.134145));
}
FN $T t_d_gelu_quick_$S($T x) {
    x = t_near_$S(x);
    $T gate = t_sigmoid_$S(($T)1.702 * x);
    return gate + x * t_slope_$S(gate) * ($T)1.702;
}
FN $T t_d_log_$S($T x) { return ($T)1 / x; }
FN $T t_d_neg_$S($T x) { return ($T)-1; }
FN $T t_d_reciprocal_$S($T x) { return ($T)-1 / (x * x); }
FN $T t_d_relu_$S($T x) { return x > ($T)0 ? ($T)1 : ($T)0; }
FN $T t_d_sigmoid_$S($T x) { return t_slope_$S(t_sigmoid_$S(x)); }
FN $T t_d_silu_$S($T x) {
    $T gate = t_sigmoid_$S(x);
    return gate + t_near_$S(x) * t_slope_$S(gate);
}
FN $T t_d_softplus_$S($T x) { return t_sigmoid_$S(x); }
FN $T t_d_sqrt_$S($T x) { return ($T)0.5 / t_sqrt_$S(x); }
FN $T t_d_tanh_$S($T x) { return ($T)1 - t_square_$S(t_tanh_$S(x)); }
