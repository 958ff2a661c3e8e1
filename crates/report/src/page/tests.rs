//! Tests of pages.

use serde_json::json;

use super::page;

/// A page asks for nothing from elsewhere, and what is said stands in it, whatever it is.
#[test]
fn what_is_said_stands_in_the_page_and_nothing_is_fetched() {
    let said = json!({ "title": "</script><script>alert(1)</script> & {said}", "path": "{style}" });
    let page = page("a <model> & {said}", &said);
    assert!(page.contains("<title>a &lt;model> &amp; {said}</title>"), "{}", &page[..200]);
    let (_, rest) = page.split_once("id=\"plan\">").expect("there is the element");
    let (text, rest) = rest.split_once("</script>").expect("it ends");
    assert_eq!(serde_json::from_str::<serde_json::Value>(text).expect("it is JSON"), said);
    assert_eq!(rest.matches("</script>").count(), 1, "only the script follows");
    for loaded in ["src=", "href=", "@import", "url(", "fetch(", "XMLHttpRequest", "WebSocket", "import("] {
        assert!(!page.contains(loaded), "`{loaded}` loads something");
    }
    // The name of SVG's elements is no address that is asked.
    let addresses = page.matches("://").count();
    assert_eq!(addresses, page.matches("http://www.w3.org/2000/svg").count());
}
