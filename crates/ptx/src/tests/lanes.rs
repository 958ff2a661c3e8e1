//! Lanes that diverge, meet again, and hand values on.

use super::{Given, What, fault, run, words};

/// Stores a register of each thread.
fn stored(body: &str, register: &str) -> Vec<u32> {
    let body = format!("{body}\tadd.s64 %rd2, %rd0, %rd91;\n\tst.global.u32 [%rd2], {register};\n");
    words(&run((1, 32), &[Given::Room(128)], &body).unwrap().0[0])
}

fn expected(of: impl Fn(u32) -> u32) -> Vec<u32> {
    (0..32).map(of).collect()
}

#[test]
fn each_lane_takes_its_own_way() {
    // So many rounds as the lane has its number, and then all meet.
    let body = "\tmov.u32 %r1, 0;\n\tmov.u32 %r2, 0;\n$again:\n\tsetp.ge.u32 %p0, %r1, %r0;\n\t@%p0 bra $over;\n\
                \tadd.s32 %r2, %r2, %r1;\n\tadd.s32 %r1, %r1, 1;\n\tbra.uni $again;\n$over:\n\
                \tshfl.sync.bfly.b32 %r3|%p1, %r2, 31, 31, -1;\n";
    let sum = |lane: u32| (0..lane).sum();
    assert_eq!(stored(body, "%r2"), expected(sum));
    assert_eq!(stored(body, "%r3"), expected(|lane| sum(31 - lane)));
}

#[test]
fn values_are_handed_from_lane_to_lane() {
    let shuffled = |how: &str| stored(&format!("\tshfl.sync.{how}.b32 %r3|%p1, %r0, 3, 31, -1;\n"), "%r3");
    assert_eq!(shuffled("bfly"), expected(|it| it ^ 3));
    assert_eq!(shuffled("idx"), expected(|_| 3));
    assert_eq!(shuffled("down"), expected(|it| if it + 3 < 32 { it + 3 } else { it }));
    let up = stored("\tshfl.sync.up.b32 %r3|%p1, %r0, 3, 0, -1;\n", "%r3");
    assert_eq!(up, expected(|it| it.checked_sub(3).unwrap_or(it)));
    // Within groups of eight.
    let eight = stored("\tshfl.sync.idx.b32 %r3|%p1, %r0, 3, 6175, -1;\n", "%r3");
    assert_eq!(eight, expected(|it| it / 8 * 8 + 3));
}

#[test]
fn lanes_that_wait_for_lanes_that_do_not_come_are_found() {
    let body = "\tsetp.lt.u32 %p0, %r0, 16;\n\t@!%p0 bra $over;\n\tshfl.sync.bfly.b32 %r3|%p1, %r0, 1, 31, -1;\n\
                $over:\n\tbar.warp.sync -1;\n";
    let found = fault((1, 32), &[], body);
    assert_eq!(found.what, What::Diverged { waiting: 0xffff, missing: 0xffff_0000 });
    // Those that are named are there.
    assert!(run((1, 32), &[], &body.replace("31, -1;", "31, 65535;")).is_ok());
    // One is asked for that is not named.
    let body = body.replace("1, 31, -1;", "16, 31, 65535;");
    assert_eq!(fault((1, 32), &[], &body).what, What::Absent { lane: 16 });
}

#[test]
fn matrices_are_multiplied_as_they_are_spread() {
    // a is 1 where column = row, b is k + 8 n in bf16, c is 0.5: d[i, j] = i + 8 j + 0.5.
    let bf16 = |number: f32| (number.to_bits() >> 16) as u16;
    let (mut a, mut b) = (Vec::new(), Vec::new());
    for lane in 0..32_u16 {
        for part in 0..4_u16 {
            for half in 0..2 {
                let (row, column) = (lane / 4 + part % 2 * 8, lane % 4 * 2 + part / 2 * 8 + half);
                a.extend(bf16(if row == column { 1.0 } else { 0.0 }).to_le_bytes());
            }
        }
        for part in 0..2_u16 {
            for half in 0..2 {
                let (k, n) = (lane % 4 * 2 + part * 8 + half, lane / 4);
                b.extend(bf16(f32::from(k + 8 * n)).to_le_bytes());
            }
        }
    }
    let body = "\tshl.b64 %rd10, %rd90, 4;\n\tadd.s64 %rd11, %rd0, %rd10;\n\tld.global.v4.u32 {%r1, %r2, %r3, %r4}, [%rd11];\n\
                \tshl.b64 %rd12, %rd90, 3;\n\tadd.s64 %rd13, %rd1, %rd12;\n\tld.global.v2.u32 {%r5, %r6}, [%rd13];\n\
                \tmov.f32 %f1, 0f3F000000;\n\
                \tmma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%f2,%f3,%f4,%f5}, {%r1,%r2,%r3,%r4}, {%r5,%r6}, {%f1,%f1,%f1,%f1};\n\
                \tadd.s64 %rd14, %rd2, %rd10;\n\tst.global.v4.f32 [%rd14], {%f2, %f3, %f4, %f5};\n";
    let buffers = [Given::Read(&a), Given::Read(&b), Given::Room(512)];
    let made = words(&run((1, 32), &buffers, body).unwrap().0[2]);
    for (place, bits) in made.into_iter().enumerate() {
        let (lane, part) = (place / 4, place % 4);
        let (row, column) = (lane / 4 + part / 2 * 8, lane % 4 * 2 + part % 2);
        let expected = f32::from(u16::try_from(row + 8 * column).unwrap()) + 0.5;
        assert_eq!(bits, expected.to_bits(), "{row}, {column}");
    }
}
