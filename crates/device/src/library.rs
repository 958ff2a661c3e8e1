//! Shared libraries, found and loaded, and their functions, taken by name.

use std::fmt;
use std::path::{Path, PathBuf};

use libloading::os::unix::{Library, RTLD_GLOBAL, RTLD_NOW};

/// Functions of a library that are called: a struct with each by a name of ours, with the name and the
/// type that the library's header declares, enumerations as numbers.
///
/// They are called only while the library is loaded: whoever has them keeps both.
macro_rules! functions {
    (
        $(#[$about:meta])*
        $visible:vis struct $table:ident {
            $($field_visible:vis $field:ident = $symbol:ident($($argument:ty),* $(,)?) -> $result:ty;)*
        }
    ) => {
        $(#[$about])*
        $visible struct $table {
            $($field_visible $field: unsafe extern "C" fn($($argument),*) -> $result,)*
        }

        impl $table {
            /// Those of a library of one of these names, with the library and where it was found.
            $visible fn load(
                what: &'static str,
                names: &[&str],
                folders: &[std::path::PathBuf],
            ) -> Result<(Self, libloading::os::unix::Library, std::path::PathBuf), $crate::library::NotFound> {
                let (library, path) = $crate::library::load(what, names, folders)?;
                #[expect(unsafe_code, reason = "functions of a C library are taken by name")]
                // SAFETY: the types are those of the library's header; the functions are called only
                // while the library is loaded, because it is handed on with them.
                let taken: Result<Self, libloading::Error> = (|| unsafe {
                    Ok(Self { $($field: *library.get(concat!(stringify!($symbol), "\0").as_bytes())?,)* })
                })();
                match taken {
                    Ok(functions) => Ok((functions, library, path)),
                    Err(error) => Err($crate::library::NotFound {
                        what,
                        tried: vec![(path.display().to_string(), error.to_string())],
                    }),
                }
            }
        }
    };
}

pub(crate) use functions;

/// Where installations of CUDA put libraries that the loader does not look for.
const FOLDERS: [&str; 2] = ["/usr/local/cuda/lib64", "/usr/lib/wsl/lib"];

/// A library that is not there, or does not load.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotFound {
    /// What it is.
    pub what: &'static str,
    /// Each place that was tried, with what the loader said.
    pub tried: Vec<(String, String)>,
}

impl fmt::Display for NotFound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} is not there: looked for", self.what)?;
        for (number, (place, _)) in self.tried.iter().enumerate() {
            write!(f, "{} {place}", if number == 0 { "" } else { "," })?;
        }
        // What the loader says of a library that is there but does not load is worth reading.
        let there = self.tried.iter().find(|(place, _)| Path::new(place).exists());
        match there {
            Some((place, reason)) => write!(f, "; {place} does not load: {reason}"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for NotFound {}

/// The paths and names that a library of one of these names may be loaded by: in these folders,
/// where the loader looks, and where installations of CUDA are.
fn places(names: &[&str], folders: &[PathBuf]) -> Vec<PathBuf> {
    let known = FOLDERS.map(PathBuf::from);
    let inside = |folder: &PathBuf| names.iter().map(|name| folder.join(name)).collect::<Vec<_>>();
    let mut places: Vec<PathBuf> = folders.iter().flat_map(inside).collect();
    places.extend(names.iter().map(PathBuf::from));
    places.extend(known.iter().flat_map(inside));
    places
}

/// Loads a library of one of these names; where it was found.
pub(crate) fn load(
    what: &'static str,
    names: &[&str],
    folders: &[PathBuf],
) -> Result<(Library, PathBuf), NotFound> {
    let mut tried = Vec::new();
    for place in places(names, folders) {
        match open(&place) {
            Ok(library) => return Ok((library, place)),
            Err(error) => tried.push((place.display().to_string(), error.to_string())),
        }
    }
    Err(NotFound { what, tried })
}

/// Loads the library at a path, or of a name, so that others that are loaded later find it.
pub(crate) fn open(place: &Path) -> Result<Library, libloading::Error> {
    #[expect(unsafe_code, reason = "a library is code that is run")]
    // SAFETY: what is loaded are the libraries of CUDA, whose initialisation needs nothing of ours.
    unsafe {
        Library::open(Some(place), RTLD_NOW | RTLD_GLOBAL)
    }
}
