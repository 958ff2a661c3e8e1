//! Times of messages between threads.

use std::sync::Arc;
use std::sync::mpsc::sync_channel;
use std::thread;

use super::MeasureFailure;
use super::timing::shortest;

/// Sizes of a small and a large message, and of some between (bytes).
pub(super) const SIZES: [usize; 4] = [64, 1 << 16, 1 << 20, 1 << 24];

/// The time until another thread has a copy of a message (seconds): half of there and back, where
/// both ways copy.
pub(super) fn time(size: usize) -> Result<f64, MeasureFailure> {
    let (there, arrived) = sync_channel::<Arc<Vec<u8>>>(0);
    let (back, returned) = sync_channel::<Arc<Vec<u8>>>(0);
    thread::scope(|scope| {
        scope.spawn(move || {
            let mut own = Arc::new(vec![1_u8; size]);
            for message in arrived {
                match Arc::get_mut(&mut own) {
                    Some(bytes) => bytes.copy_from_slice(&message),
                    None => return,
                }
                drop(message);
                if back.send(Arc::clone(&own)).is_err() {
                    return;
                }
            }
        });
        let sent = Arc::new(vec![2_u8; size]);
        let mut own = vec![0_u8; size];
        let round = shortest(|| {
            there.send(Arc::clone(&sent)).map_err(|_| MeasureFailure::Thread)?;
            let message = returned.recv().map_err(|_| MeasureFailure::Thread)?;
            own.copy_from_slice(&message);
            Ok(())
        });
        drop(there);
        round.map(|seconds| seconds / 2.0)
    })
}
