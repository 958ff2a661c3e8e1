//! Tests of writing files.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};

use super::*;

/// An empty folder of its own.
fn folder(name: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("shardloom-written-{}-{name}", std::process::id()));
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).unwrap();
    folder
}

#[test]
fn a_link_stays_a_link_and_rights_stay() {
    let folder = folder("link");
    let (file, link) = (folder.join("file"), folder.join("link"));
    fs::write(&file, "old").unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    symlink(&file, &link).unwrap();
    write(&link, b"new").unwrap();
    assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    assert_eq!(fs::read(&file).unwrap(), b"new");
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 2);
    fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn an_output_that_is_an_input_is_refused() {
    let folder = folder("same");
    let (file, link) = (folder.join("file"), folder.join("link"));
    fs::write(&file, "old").unwrap();
    symlink(&file, &link).unwrap();
    assert!(differs(&link, &[&file]).is_err());
    assert!(differs(&folder.join("other"), &[&file]).is_ok());
    fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn of_files_that_belong_together_none_is_there_where_one_cannot_be_written() {
    let folder = folder("together");
    // A name that is too long cannot be written under.
    let long = "x".repeat(300);
    let files: [(&str, &[u8]); 2] = [("first", b"1"), (&long, b"2")];
    assert!(into(&folder, &files, Before::Kept).is_err());
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 0);
    assert_eq!(into(&folder, &[("first", b"1"), ("second", b"2")], Before::Kept).unwrap().len(), 2);
    assert_eq!(fs::read(folder.join("second")).unwrap(), b"2");
    fs::remove_dir_all(&folder).unwrap();
}
