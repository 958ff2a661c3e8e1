//! Memory of this machine, beside what ranks on it are going to take.

use std::fs;
use std::path::Path;

use crate::error::RunError;

/// What ranks take of one machine's memory at least (bytes), where each has so much at rest and computes in so
/// much: what it computes in is its own; of what is at rest ranks may have blocks in common, so that of one
/// counts alone.
pub(crate) fn needed(ranks: &[[u64; 2]]) -> u64 {
    let steps = ranks.iter().map(|it| it[1]).fold(0, u64::saturating_add);
    ranks.iter().map(|it| it[0]).max().unwrap_or(0).saturating_add(steps)
}

/// Refuses what so many ranks need (bytes) where less memory is free, if it is known how much is.
pub(crate) fn expect(ranks: usize, needed: u64, free: Option<u64>) -> Result<(), RunError> {
    match free {
        Some(free) if needed > free => Err(RunError::Room { ranks, needed, free }),
        _ => Ok(()),
    }
}

/// How much memory this process may still take (bytes): what the system has left, swap included, and what its
/// control group may still have; nothing where the system does not say.
pub(crate) fn free() -> Option<u64> {
    let system = left(&fs::read_to_string("/proc/meminfo").ok()?)?;
    let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let of_group = groups.lines().find_map(|line| line.strip_prefix("0::/")).and_then(|group| {
        let number = |name: &str| -> Option<u64> {
            fs::read_to_string(Path::new("/sys/fs/cgroup").join(group).join(name)).ok()?.trim().parse().ok()
        };
        // What is cached of files is given back before anything is refused.
        Some(number("memory.max")?.saturating_sub(number("memory.current")?).saturating_add(cached(group)?))
    });
    Some(of_group.map_or(system, |it| it.min(system)))
}

/// What a control group has in files that are cached (bytes).
fn cached(group: &str) -> Option<u64> {
    let stat = fs::read_to_string(Path::new("/sys/fs/cgroup").join(group).join("memory.stat")).ok()?;
    stat.lines().find_map(|line| line.strip_prefix("file ")?.trim().parse().ok())
}

/// What a system has left as it says (bytes).
fn left(told: &str) -> Option<u64> {
    let kilobytes = |name: &str| -> Option<u64> {
        let line = told.lines().find_map(|line| line.strip_prefix(name))?;
        line.trim().strip_suffix("kB")?.trim().parse().ok()
    };
    Some((kilobytes("MemAvailable:")? + kilobytes("SwapFree:").unwrap_or(0)) * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_system_has_left_is_what_it_says() {
        let told = "MemTotal:       24689764 kB\nMemAvailable:   23000000 kB\nSwapFree:          1000 kB\n";
        assert_eq!(left(told), Some(23_001_000 * 1024));
        assert_eq!(left("MemTotal: 1 kB\n"), None);
        assert!(free().is_none_or(|it| it > 0));
    }

    #[test]
    fn more_than_is_free_is_refused() {
        assert!(expect(2, 100, Some(100)).is_ok() && expect(2, 100, None).is_ok());
        let refused = expect(2, 3_000_000_000, Some(2_000_000_000)).unwrap_err();
        assert!(refused.is_of_input());
        assert_eq!(
            refused.to_string(),
            "2 ranks on this machine compute in 3000000000 bytes of memory at least, 2000000000 are free: expected \
             fewer ranks here, a smaller batch, shorter sequences, or more memory"
        );
    }

    #[test]
    fn each_rank_has_its_own_memory_for_steps() {
        assert_eq!(needed(&[[10, 1], [30, 2], [20, 4]]), 37);
        assert_eq!(needed(&[[1, u64::MAX], [1, 1]]), u64::MAX);
    }
}
