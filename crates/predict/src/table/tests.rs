//! Tables: what is read, and what is refused.

use super::*;

#[test]
fn fields_are_found_by_the_names_of_their_columns() {
    let table = Table::read("a.csv", "row_id,note,n\nr1,\"one, two\",3\nr2,,\n", &["row_id", "n"]).unwrap();
    let rows: Vec<_> = table.rows().collect();
    assert_eq!(rows[0].text("note"), "one, two");
    assert_eq!(rows[0].count("n"), Ok(Some(3)));
    assert_eq!(rows[1].number("n"), Ok(None));
    assert_eq!(rows[1].text("absent"), "");
    assert_eq!(rows[1].line(), 3);
}

#[test]
fn errors_name_file_line_and_column() {
    let missing = Table::read("a.csv", "row_id\nr1\n", &["row_id", "n"]).unwrap_err();
    assert_eq!(missing.to_string(), "a.csv: no column `n`");
    let table = Table::read("a.csv", "row_id,n\nr1,1\nr2,many\n", &["n"]).unwrap();
    let wrong = table.rows().nth(1).unwrap().count("n").unwrap_err();
    assert_eq!(wrong.to_string(), "a.csv, line 3, column `n`: `many`, expected a whole number");
    let ragged = Table::read("a.csv", "row_id,n\nr1\n", &["n"]).unwrap_err().to_string();
    assert!(ragged.starts_with("a.csv: ") && ragged.contains("line: 2"), "{ragged}");
}
