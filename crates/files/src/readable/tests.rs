//! Tests of what files are known by.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use super::*;

fn path(name: &str) -> PathBuf {
    std::env::temp_dir().join(format!("shardloom-readable-{}-{name}", std::process::id()))
}

#[test]
fn what_is_no_file_is_refused_at_once() {
    let place = path("pipe");
    let _ = fs::remove_file(&place);
    assert!(std::process::Command::new("mkfifo").arg(&place).status().unwrap().success());
    for path in [place.as_path(), Path::new("/dev/zero"), &std::env::temp_dir()] {
        let error = open(path).unwrap_err().to_string();
        assert!(error.ends_with("expected a file"), "{error}");
    }
    fs::remove_file(place).unwrap();
}

#[test]
fn small_files_are_known_by_every_byte() {
    let path = path("small");
    let mut found = Vec::new();
    for content in ["", "abc", "abd", "abcd"] {
        fs::write(&path, content).unwrap();
        found.push(fingerprint(&path, &[]).unwrap());
    }
    assert!(found[1].starts_with("3 bytes, SHA-256 ba7816bf8f01cfea"), "{}", found[1]);
    found.sort();
    found.dedup();
    assert_eq!(found.len(), 4);
    fs::remove_file(path).unwrap();
}

#[test]
fn of_large_files_samples_and_every_part_are_looked_at() {
    let path = path("large");
    let file = fs::File::create(&path).unwrap();
    // Nothing but holes: it takes no room.
    let length = 3 * WHOLE + 12_345;
    file.set_len(length).unwrap();
    let part = WHOLE + 50_000..WHOLE + 70_000;
    let before = fingerprint(&path, std::slice::from_ref(&part)).unwrap();
    assert!(before.starts_with(&format!("{length} bytes, SHA-256 of samples ")), "{before}");
    let places = [0, 4095, length / SAMPLES * 5, length - 1, part.start, part.end - 1, part.start + 10_000];
    for place in places {
        file.write_all_at(&[1], place).unwrap();
        assert_ne!(fingerprint(&path, std::slice::from_ref(&part)).unwrap(), before, "byte {place}");
        file.write_all_at(&[0], place).unwrap();
    }
    assert_eq!(fingerprint(&path, std::slice::from_ref(&part)).unwrap(), before);
    file.set_len(length + 1).unwrap();
    assert_ne!(fingerprint(&path, &[part]).unwrap(), before);
    fs::remove_file(path).unwrap();
}
