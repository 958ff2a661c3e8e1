//! Every place in a file, and files that have a field too many or one too few.

use serde_json::Value;

/// The pointers of everything in a file, whatever is in objects whose pointer ends with that text left
/// out.
pub(super) fn places(file: &Value, left_out: Option<&str>) -> Vec<String> {
    let (mut open, mut places) = (vec![String::new()], vec![]);
    while let Some(pointer) = open.pop() {
        if left_out.is_some_and(|end| pointer.ends_with(end)) {
            continue;
        }
        match file.pointer(&pointer).unwrap() {
            Value::Object(object) => open.extend(object.keys().map(|name| format!("{pointer}/{name}"))),
            Value::Array(array) => open.extend((0..array.len()).map(|it| format!("{pointer}/{it}"))),
            _ => {}
        }
        places.push(pointer);
    }
    places
}

/// Shows every file that has one field more somewhere, or one less that has to be there: plans from before do not say
/// what each move takes.
pub(super) fn with_other_fields(file: &Value, left_out: Option<&str>, show: impl Fn(&Value)) {
    for pointer in places(file, left_out) {
        let Some(Value::Object(object)) = file.pointer(&pointer) else { continue };
        let mut longer = file.clone();
        longer.pointer_mut(&pointer).unwrap()["unknown"] = Value::Null;
        show(&longer);
        for name in object.keys().filter(|it| *it != "each") {
            let mut shorter = file.clone();
            shorter.pointer_mut(&pointer).unwrap().as_object_mut().unwrap().remove(name);
            show(&shorter);
        }
    }
}
