t_i64 k = 0;
        for (; k < j; k++) {
            const t_i64 other = (t_i64)indices[asked + k * spread];
            if (other + (other < 0 ? extent : 0) - first == found) break;
        }
        if (k < j) continue;
        $START
        for (; k < length; k++) {
            const t_i64 other = (t_i64)indices[asked + k * spread];
            if (other + (other < 0 ? extent : 0) - first != found) continue;
            $STEP
        }
        $END
