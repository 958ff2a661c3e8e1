//! Tests of notes.

use files::folder::Folder;

use super::*;

fn taken(notes: &mut Notes, name: &str, seconds: f64) -> f64 {
    notes.of(name, || Ok(seconds)).unwrap()
}

#[test]
fn what_was_measured_is_not_measured_again() {
    let folder = Folder::new("notes", None).unwrap();
    let output = folder.path.join("machine.json");
    let mut notes = Notes::beside(&output, "a machine").unwrap();
    assert!(notes.count() == 0 && taken(&mut notes, "one", 1.5) > 1.0);
    drop(notes);
    let mut notes = Notes::beside(&output, "a machine").unwrap();
    assert_eq!(notes.count(), 1);
    let one = notes.of("one", || Err(Failure::Input("is measured again".to_owned()))).unwrap();
    assert!((one - 1.5).abs() < 1e-12 && taken(&mut notes, "two", 2.5) > 2.0);
    notes.done().unwrap();
    assert_eq!(Notes::beside(&output, "a machine").unwrap().count(), 0);
}

#[test]
fn notes_of_another_machine_and_what_is_no_note_are_refused() {
    let folder = Folder::new("notes-wrong", None).unwrap();
    let output = folder.path.join("machine.json");
    taken(&mut Notes::beside(&output, "a machine").unwrap(), "one", 1.5);
    let refused = |what: &str| Notes::beside(&output, what).unwrap_err().to_string();
    assert!(refused("another").contains("begun on \"a machine\", this is \"another\"; remove it"));
    let partial = folder.path.join("machine.json.partial");
    for (text, expected) in [
        ("{", "is no list of measurements"),
        (r#"{"format": 9}"#, "has format 9, this program writes 1"),
        (r#"{"format": 1, "machine": "it", "seconds": {"one": -1}}"#, "`one` is -1, expected seconds"),
    ] {
        std::fs::write(&partial, text).unwrap();
        let message = refused("it");
        assert!(message.contains(expected) && message.contains("machine.json.partial"), "{message}");
    }
}
