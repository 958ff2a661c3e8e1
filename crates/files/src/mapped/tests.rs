//! Tests of what is in memory of files that are mapped.

use super::*;

/// How much of a file that is mapped is in this process's memory (KiB); none where the system does not say.
pub fn resident(path: &Path) -> Option<u64> {
    let said = std::fs::read_to_string("/proc/self/smaps").ok()?;
    let path = path.to_str()?;
    let mut lines = said.lines().skip_while(|line| !line.ends_with(path)).skip(1);
    let line = lines.find_map(|line| line.strip_prefix("Rss:"))?;
    line.trim().strip_suffix(" kB")?.parse().ok()
}

#[test]
fn what_is_given_back_is_in_memory_no_more_and_the_same_when_looked_at_again() {
    let path = std::env::temp_dir().join(format!("shardloom-mapped-{}", std::process::id()));
    let content: Vec<u8> = (0..1_u32 << 18).flat_map(u32::to_le_bytes).collect();
    std::fs::write(&path, &content).unwrap();
    let map = Mapped::open(&path).unwrap();
    if resident(&path).is_none() {
        println!("skipped: the system does not say what is in memory");
        return;
    }
    let bytes = map.bytes();
    assert!(bytes == content);
    assert_eq!(resident(&path), Some(1024));
    map.release();
    assert_eq!(resident(&path), Some(0));
    assert!(bytes == content);
    std::fs::remove_file(path).unwrap();
}
