//! Files of a package form no circles: of two modules beside each other, each with everything below it, one
//! uses the other or none does. A module and those below it may use each other.

use std::collections::{BTreeMap, BTreeSet};

use super::{files, nothing, packages, read};

/// A module, as names from the root of its package.
type Module = Vec<String>;

/// What a file says of other modules.
#[derive(Default)]
struct Said {
    /// Paths that it names.
    paths: BTreeSet<Vec<String>>,
    /// What `use` brings in, by its name here.
    names: BTreeMap<String, Vec<String>>,
}

/// The words of a text, and what stands between them; comments and texts are left out.
fn words(text: &str) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let after = &rest[first.len_utf8()..];
        rest = match first {
            '/' if after.starts_with('/') => after.split_once('\n').map_or("", |it| it.1),
            '"' => quoted(after),
            'r' if after.starts_with("#\"") => after[2..].split_once("\"#").map_or("", |it| it.1),
            // A character, not a lifetime.
            '\'' if after.starts_with('\\') => after[2..].split_once('\'').map_or("", |it| it.1),
            '\'' if after.chars().nth(1) == Some('\'') => &after[after.find('\'').map_or(0, |it| it + 1)..],
            ':' if after.starts_with(':') => {
                words.push("::".to_owned());
                &after[1..]
            }
            it if it.is_alphabetic() || it == '_' => {
                let end = rest.find(|it: char| !it.is_alphanumeric() && it != '_').unwrap_or(rest.len());
                words.push(rest[..end].to_owned());
                &rest[end..]
            }
            it if it.is_whitespace() => after,
            it => {
                words.push(it.to_string());
                after
            }
        };
    }
    words
}

/// What comes after a text between quotes.
fn quoted(text: &str) -> &str {
    let mut letters = text.char_indices();
    while let Some((place, letter)) = letters.next() {
        match letter {
            '\\' => drop(letters.next()),
            '"' => return &text[place + 1..],
            _ => {}
        }
    }
    ""
}

/// What the words after `use` bring in, up to the end of a group or of all: where that is.
fn brought(words: &[String], before: &[String], said: &mut Said) -> usize {
    let mut path = before.to_vec();
    let mut name = None;
    let mut place = 0;
    let end = |path: &mut Vec<String>, name: &mut Option<String>, said: &mut Said| {
        if path.len() > before.len().max(1) {
            if path.last().is_some_and(|it| it == "self") {
                path.pop();
            }
            if let Some(last) = name.take().or_else(|| path.last().cloned()) {
                said.names.insert(last, path.clone());
            }
            said.paths.insert(std::mem::take(path));
        }
        before.clone_into(path);
    };
    while place < words.len() {
        match words[place].as_str() {
            "::" => {}
            "{" => {
                place += 1 + brought(&words[place + 1..], &path, said);
                // What stands before a group is said by what is in it.
                path.clear();
            }
            "," => end(&mut path, &mut name, said),
            "}" | ";" => {
                end(&mut path, &mut name, said);
                return place;
            }
            "as" => {
                name = Some(words[place + 1].clone());
                place += 1;
            }
            word => path.push(word.to_owned()),
        }
        place += 1;
    }
    place
}

impl Said {
    fn of(text: &str) -> Self {
        let words = words(text);
        let mut said = Self::default();
        let mut place = 0;
        while place < words.len() {
            if words[place] == "use" {
                place += 1 + brought(&words[place + 1..], &[], &mut said);
                continue;
            }
            let mut path = vec![words[place].clone()];
            while words.get(place + 1).is_some_and(|it| it == "::")
                && words
                    .get(place + 2)
                    .is_some_and(|it| it.starts_with(|it: char| it.is_alphabetic() || it == '_'))
            {
                path.push(words[place + 2].clone());
                place += 2;
            }
            if path.len() > 1 {
                said.paths.insert(path);
            }
            place += 1;
        }
        said
    }
}

/// The modules of a package.
struct Package(BTreeMap<Module, Said>);

impl Package {
    /// Those of the files in a folder; tests aside.
    fn of(folder: &str) -> Self {
        let mut modules = BTreeMap::new();
        for path in files(&format!("{folder}/src"), ".rs") {
            let name = path[folder.len() + "/src/".len()..path.len() - ".rs".len()].to_owned();
            let name = name.strip_suffix("/mod").unwrap_or(&name);
            let module: Module =
                if name == "lib" { vec![] } else { name.split('/').map(str::to_owned).collect() };
            if name != "main" && !module.iter().any(|it| it.ends_with("tests")) {
                modules.insert(module, Said::of(&read(&path)));
            }
        }
        Self(modules)
    }

    /// The module that a path leads to, from one; nothing if it leads out of the package.
    fn found(&self, from: &Module, path: &[String], depth: usize) -> Option<Module> {
        let below = |module: &Module, name: &String| [module.as_slice(), std::slice::from_ref(name)].concat();
        let mut module = from.clone();
        let mut rest = path;
        match path.first()?.as_str() {
            "crate" => (module, rest) = (vec![], &path[1..]),
            "super" | "self" => {
                while let Some(word) = rest.first().filter(|it| *it == "super" || *it == "self") {
                    if word == "super" {
                        module.pop()?;
                    }
                    rest = &rest[1..];
                }
            }
            _ if self.0.contains_key(&below(from, &path[0])) => {}
            // What `use` has brought in here.
            name => {
                let brought = self.0[from].names.get(name).filter(|it| it.as_slice() != path)?;
                let is_own = ["crate", "super", "self"].contains(&brought[0].as_str()) && depth < 6;
                let whole = [brought.as_slice(), &path[1..]].concat();
                return if is_own { self.found(from, &whole, depth + 1) } else { None };
            }
        }
        while let Some(name) = rest.first() {
            let inner = below(&module, name);
            if self.0.contains_key(&inner) {
                (module, rest) = (inner, &rest[1..]);
                continue;
            }
            // What a module hands on is whose it is.
            let handed = self.0.get(&module)?.names.get(name).filter(|it| depth < 6 && it.as_slice() != path);
            let handed =
                handed.and_then(|it| self.found(&module, &[it.as_slice(), &rest[1..]].concat(), depth + 1));
            return Some(handed.unwrap_or(module));
        }
        Some(module)
    }

    /// For each module, of those beside each other below it, which uses which.
    fn edges(&self) -> BTreeMap<Module, BTreeMap<String, BTreeSet<String>>> {
        let mut edges: BTreeMap<Module, BTreeMap<String, BTreeSet<String>>> = BTreeMap::new();
        for (from, said) in &self.0 {
            for to in said.paths.iter().filter_map(|path| self.found(from, path, 0)) {
                let same = from.iter().zip(&to).take_while(|(a, b)| a == b).count();
                if let (Some(ours), Some(theirs)) = (from.get(same), to.get(same)) {
                    let beside = edges.entry(from[..same].to_vec()).or_default();
                    beside.entry(ours.clone()).or_default().insert(theirs.clone());
                }
            }
        }
        edges
    }

    /// The circles: where, and the modules in each.
    fn circles(&self) -> Vec<(Module, BTreeSet<String>)> {
        let mut circles = Vec::new();
        for (above, beside) in self.edges() {
            let all: BTreeSet<&String> = beside.keys().chain(beside.values().flatten()).collect();
            let whole = all.iter().map(|it| ((*it).clone(), beside.get(*it).cloned().unwrap_or_default()));
            let reached = super::closure(&whole.collect());
            let mut seen = BTreeSet::new();
            for (name, to) in &reached {
                if to.contains(name) && !seen.contains(name) {
                    let circle: BTreeSet<String> =
                        to.iter().filter(|it| reached[*it].contains(name)).cloned().collect();
                    seen.extend(circle.iter().cloned());
                    circles.push((above.clone(), circle));
                }
            }
        }
        circles
    }
}

#[test]
fn modules_form_no_circles() {
    let of = |(name, folder): (&String, &String)| {
        let told = |(above, circle): (Module, BTreeSet<String>)| {
            format!("a circle in {name}, below `{}`: {circle:?}", above.join("::"))
        };
        Package::of(folder).circles().into_iter().map(told).collect::<Vec<_>>()
    };
    let packages = packages();
    nothing(&packages.iter().filter(|it| it.0 != "tests").flat_map(of).collect::<Vec<_>>());
}

/// The circles of files with these texts, by their modules.
fn circles_of(texts: &[(&[&str], &str)]) -> Vec<(Module, BTreeSet<String>)> {
    let module = |it: &[&str]| it.iter().map(|&it| it.to_owned()).collect();
    Package(texts.iter().map(|(name, text)| (module(name), Said::of(text))).collect()).circles()
}

#[test]
fn circles_are_seen_however_they_are_written() {
    let root: (&[&str], &str) = (&[], "pub mod a; pub mod b; pub use b::Shown;");
    let circle = vec![(vec![], BTreeSet::from(["a".to_owned(), "b".to_owned()]))];
    for (a, b) in [
        ("use crate::b::f;", "use super::a::{g, h};"),
        ("use crate::{b, c};", "fn f() { crate::a::g() }"),
        ("use super::b as other; fn g() { other::f() }", "use crate::{a::{self}, c};"),
        // Through what the root hands on.
        ("use crate::Shown;", "use crate::a::g;"),
        ("fn g(it: &'a str) -> char { '\"' } use super::b::f;", "/* */ // \"\nuse super::a;"),
    ] {
        assert_eq!(circles_of(&[root, (&["a"], a), (&["b"], b)]), circle, "{a} {b}");
    }
    for (a, b) in [
        ("use crate::b::f;", "use super::f;"),
        ("use crate::b::f;", "// use crate::a;"),
        ("use crate::b::f;", "const TEXT: &str = \"\\\" crate::a::g\";"),
        ("use b::f;", "use a::g;"),
    ] {
        assert_eq!(circles_of(&[root, (&["a"], a), (&["b"], b)]), [], "{a} {b}");
    }
    // A module and what is below it are no circle; what is below one and what is beside it are.
    assert_eq!(circles_of(&[root, (&["a"], "mod c; use c::f;"), (&["a", "c"], "use super::g;")]), []);
    let below = [root, (&["a"], "mod c;"), (&["a", "c"], "use crate::b::f;"), (&["b"], "use crate::a::g;")];
    assert_eq!(circles_of(&below), circle);
}
