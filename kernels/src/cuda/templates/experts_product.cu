
/* 32 rows of a product of an expert's rows and its weights, 4 of them by each warp. */
FN void $NAME_$X($T *made, $T *left, $T *right, const t_i32 *rows, t_i64 slots, t_i64 first, t_i64 count, const $A *a, const $C *w, t_i64 columns, t_i64 column, t_i64 summed, t_i64 column_step, t_i64 step) {
    for (t_i64 start = 0; start < summed; start += 32) {
        t_barrier();
        for (int i = t_thread(); i < 1024; i += 256) {
            const int inner = i % 32, outer = i / 32;
            const int n = step == 1 ? outer : inner, m = step == 1 ? inner : outer;
            $T x = 0, y = 0;
            if (first + outer < count && start + inner < summed) t_load_$L_1(a + (t_i64)((t_u32)rows[first + outer] / (t_u32)slots) * summed + start + inner, &x);
            if (column + n < columns && start + m < summed) t_load_$D_1(w + (column + n) * column_step + (start + m) * step, &y);
            left[outer * 33 + inner] = x;
            right[m * 33 + n] = y;
        }
        t_barrier();
        T_UNROLL_FEW
        for (int m = 0; m < 32; m++) {
            T_UNROLL
            for (int r = 0; r < 4; r++) made[r] += left[(t_thread() / 32 * 4 + r) * 33 + m] * right[m * 33 + t_thread() % 32];
        }
    }
}
