//! What is held at each moment, by a tree and by a list.

use super::levels::Levels;

#[test]
fn a_tree_says_what_a_list_says() {
    let mut state = 1_u32;
    let mut next = |below: u32| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 16) % below
    };
    for moments in [1_usize, 2, 3, 7, 16, 33] {
        let (mut levels, mut list) = (Levels::new(moments), vec![0_i64; moments]);
        let count = u32::try_from(moments).unwrap();
        for _ in 0..200 {
            let [start, end] = [next(count + 1), next(count + 1)].map(|it| usize::try_from(it).unwrap());
            let bytes = i64::from(next(100)) - 50;
            levels.add(start..end, bytes);
            list.iter_mut().take(end).skip(start).for_each(|it| *it += bytes);
            let [start, end] = [next(count + 1), next(count + 1)].map(|it| usize::try_from(it).unwrap());
            let most = list.iter().take(end).skip(start).copied().max().unwrap_or(0);
            assert_eq!(levels.most(&(start..end)), most, "{list:?} {start}..{end}");
        }
    }
}
