//! A plan as a page for a browser: one file, which asks for nothing from elsewhere.
//!
//! What is drawn stands in the file as JSON, in the element `plan`; `page.js` draws it, and no number is made
//! there that is not said here. docs/page.md lists the keys.

mod exchanges; // who exchanges with whom
mod parts; // the programs, and what their devices hold
mod spans; // what a rank runs when
mod timeline; // what ranks do when
mod about; // what a plan is of, and what it comes to

use serde_json::Value;

pub use about::{About, Sections};
pub use exchanges::Ranks;
pub use parts::{Program, groups, programs};
pub use timeline::timeline;

const TEMPLATE: &str = include_str!("page/page.html");
const STYLE: &str = include_str!("page/page.css");
const SCRIPT: &str = include_str!("page/page.js");

/// The page of what is said of a plan.
pub fn page(title: &str, said: &Value) -> String {
    // Within a script nothing is escaped: what could end it must not stand there.
    let said = said.to_string().replace('<', "\\u003c");
    let title = crate::svg::escaped(title);
    let mut page = String::new();
    for part in TEMPLATE.split_inclusive('}') {
        // A place is a name in braces; there are no other braces in the template.
        match part.split_once('{') {
            None => page += part,
            Some((before, name)) => {
                page += before;
                page += match name {
                    "title}" => &title,
                    "style}" => STYLE,
                    "said}" => &said,
                    "script}" => SCRIPT,
                    other => other,
                };
            }
        }
    }
    page
}

#[cfg(test)]
mod tests;
