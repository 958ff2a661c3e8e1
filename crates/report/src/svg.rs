//! What pictures have in common, in SVG.

use std::fmt::Display;

/// How a white picture of so many pixels begins, with what is drawn by name in it.
pub(crate) fn canvas(width: impl Display, height: impl Display, definitions: &str) -> String {
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" \
         font-family=\"sans-serif\" font-size=\"12\">\n{definitions}<rect width=\"{width}\" \
         height=\"{height}\" fill=\"#ffffff\"/>\n"
    )
}

/// The same with a title, and tips of arrows.
pub(crate) fn opening(width: impl Display, height: impl Display, title: &str) -> String {
    const TIP: &str = "<defs><marker id=\"tip\" viewBox=\"0 0 8 8\" refX=\"7\" refY=\"4\" markerWidth=\"6\" \
                       markerHeight=\"6\" orient=\"auto\"><path d=\"M0 0L8 4L0 8z\"/></marker></defs>\n";
    let title = escaped(title);
    canvas(width, height, TIP) + &format!("<text x=\"8\" y=\"18\" font-weight=\"bold\">{title}</text>\n")
}

/// A text as it stands between tags.
pub(crate) fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;")
}
