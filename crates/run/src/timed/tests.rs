//! Tests of exchanges that are timed.

use super::*;

#[test]
fn ranks_receive_what_an_exchange_is_of() {
    for (kind, bytes) in [
        (CollectiveKind::AllGather, 2 * 4 * 4),
        (CollectiveKind::ReduceScatter, 2 * 4 * 4),
        (CollectiveKind::AllReduce, 2 * 2 * 4 * 4),
        (CollectiveKind::AllToAll, 2 * 4 * 4),
    ] {
        // 13 elements on three ranks: four each.
        let timed = exchanges(Exchange::Collective(kind), 3, 13, 5).unwrap();
        assert_eq!(timed.received, bytes, "{kind:?}");
        assert!(timed.seconds > 0.0);
    }
    assert_eq!(exchanges(Exchange::Messages, 2, 6, 1).unwrap().received, 24);
    assert_eq!(exchanges(Exchange::Messages, 1, 6, 0).unwrap().received, 0);
}
