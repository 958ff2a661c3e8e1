//! What pictures have in common, in SVG.

/// How a picture of so many pixels begins: white, with a title.
pub(crate) fn opening(width: impl std::fmt::Display, height: impl std::fmt::Display, title: &str) -> String {
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" \
         font-family=\"sans-serif\" font-size=\"12\">\n<defs><marker id=\"tip\" viewBox=\"0 0 8 8\" \
         refX=\"7\" refY=\"4\" markerWidth=\"6\" markerHeight=\"6\" orient=\"auto\">\
         <path d=\"M0 0L8 4L0 8z\"/></marker></defs>\n<rect width=\"{width}\" height=\"{height}\" \
         fill=\"#ffffff\"/>\n<text x=\"8\" y=\"18\" font-weight=\"bold\">{}</text>\n",
        escaped(title)
    )
}

/// A text as it stands between tags.
pub(crate) fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;")
}
