//! Kernels compiled, by the library that compiles CUDA C++ at run time.
//!
//! No GPU and no driver is needed. Source: NVRTC's documentation, sections 3 and 4.

use std::ffi::{CStr, CString, c_char, c_int};
use std::fmt;
use std::path::{Path, PathBuf};
use std::ptr;

use libloading::os::unix::Library;

use crate::library::{self, NotFound, functions};

/// The names of the library, the version that this is tested with first.
const NAMES: [&str; 3] = ["libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"];

/// What the names of the library's second part begin with. It has to be loaded first where the
/// loader would not find it.
const BUILTINS: &str = "libnvrtc-builtins.so";

type Program = *mut std::ffi::c_void;
type Status = c_int;
type Size = unsafe extern "C" fn(Program, *mut usize) -> Status;
type Text = unsafe extern "C" fn(Program, *mut c_char) -> Status;

functions! {
    /// The functions of the library that are used.
    struct Functions {
        version = nvrtcVersion(*mut c_int, *mut c_int) -> Status;
        create = nvrtcCreateProgram(
            *mut Program,
            *const c_char,
            *const c_char,
            c_int,
            *const *const c_char,
            *const *const c_char,
        ) -> Status;
        compile = nvrtcCompileProgram(Program, c_int, *const *const c_char) -> Status;
        destroy = nvrtcDestroyProgram(*mut Program) -> Status;
        error = nvrtcGetErrorString(Status) -> *const c_char;
        log_size = nvrtcGetProgramLogSize(Program, *mut usize) -> Status;
        log = nvrtcGetProgramLog(Program, *mut c_char) -> Status;
        cubin_size = nvrtcGetCUBINSize(Program, *mut usize) -> Status;
        cubin = nvrtcGetCUBIN(Program, *mut c_char) -> Status;
        ptx_size = nvrtcGetPTXSize(Program, *mut usize) -> Status;
        ptx = nvrtcGetPTX(Program, *mut c_char) -> Status;
    }
}

/// The compiler.
pub struct Nvrtc {
    functions: Functions,
    /// Where it was found.
    pub path: PathBuf,
    /// Its version, as of CUDA.
    pub version: (i32, i32),
    /// What the functions are in, kept while they are called.
    _libraries: Vec<Library>,
}

/// A kind of GPU that is compiled for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Architecture(String);

/// A compiled program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Compiled {
    /// The machine code.
    pub cubin: Vec<u8>,
    /// The same before the assembler.
    pub ptx: String,
    /// What the compiler and the assembler say.
    pub log: String,
}

/// Why a program was not compiled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CompileError {
    /// A zero in the source.
    Zero,
    /// The library says so, of one of its functions.
    Library {
        /// Which function.
        function: &'static str,
        /// The error.
        error: String,
        /// What the compiler says.
        log: String,
    },
}

impl fmt::Display for CompileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Zero => f.write_str("the source has a zero byte"),
            Self::Library { function, error, log } => write!(f, "{function}: {error}\n{log}"),
        }
    }
}

impl std::error::Error for CompileError {}

impl Architecture {
    /// The architecture of that name, such as `sm_90a`.
    pub fn named(name: &str) -> Option<Self> {
        let number = name.strip_prefix("sm_")?.trim_end_matches(['a', 'f']);
        let is_number = !number.is_empty() && number.bytes().all(|it| it.is_ascii_digit());
        is_number.then(|| Self(name.to_owned()))
    }
}

impl fmt::Display for Architecture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Nvrtc {
    /// The compiler in one of these folders, or where libraries are.
    pub fn load(folders: &[PathBuf]) -> Result<Self, NotFound> {
        let mut libraries: Vec<Library> = folders.iter().flat_map(|folder| builtins(folder)).collect();
        let (functions, library, path) = Functions::load("NVRTC (libnvrtc.so)", &NAMES, folders)?;
        let (mut major, mut minor) = (0, 0);
        #[expect(unsafe_code, reason = "a function of a C library is called")]
        // SAFETY: both pointers are to numbers that live through the call.
        unsafe {
            (functions.version)(&raw mut major, &raw mut minor)
        };
        libraries.push(library);
        Ok(Self { functions, path, version: (major, minor), _libraries: libraries })
    }

    /// Compiles a program for an architecture; what the assembler says of each kernel is in the log.
    pub fn compile(&self, source: &str, architecture: &Architecture) -> Result<Compiled, CompileError> {
        let (unit, log) = self.compiled(source, &format!("{architecture}"))?;
        let cubin = unit.taken("nvrtcGetCUBIN", self.functions.cubin_size, self.functions.cubin)?;
        Ok(Compiled { cubin, ptx: unit.ptx()?, log })
    }

    /// What the assembler would be given for an architecture: PTX.
    pub fn ptx(&self, source: &str, architecture: &Architecture) -> Result<String, CompileError> {
        let number = architecture.0.trim_start_matches("sm_");
        self.compiled(source, &format!("compute_{number}"))?.0.ptx()
    }

    /// Compiles a program for an architecture, or for a virtual one; what is said of it.
    fn compiled(&self, source: &str, architecture: &str) -> Result<(Unit<'_>, String), CompileError> {
        let source = CString::new(source).map_err(|_| CompileError::Zero)?;
        let options = [
            format!("--gpu-architecture={architecture}"),
            "--std=c++17".to_owned(),
            "--ptxas-options=-v".to_owned(),
        ];
        let options = options.into_iter().map(CString::new).collect::<Result<Vec<_>, _>>();
        let options = options.map_err(|_| CompileError::Zero)?;
        let pointers: Vec<*const c_char> = options.iter().map(|it| it.as_ptr()).collect();
        let count = c_int::try_from(pointers.len()).map_err(|_| CompileError::Zero)?;
        let mut unit = Unit { functions: &self.functions, program: ptr::null_mut() };
        #[expect(unsafe_code, reason = "functions of a C library are called")]
        // SAFETY: the source and the options are texts that end in zero and live through the calls;
        // there are no headers; the program is made by the first call.
        let (created, compiled) = unsafe {
            let created = (self.functions.create)(
                &raw mut unit.program,
                source.as_ptr(),
                c"kernels.cu".as_ptr(),
                0,
                ptr::null(),
                ptr::null(),
            );
            let compiled = if created == 0 {
                (self.functions.compile)(unit.program, count, pointers.as_ptr())
            } else {
                created
            };
            (created, compiled)
        };
        unit.expect("nvrtcCreateProgram", created, "")?;
        let log = text(unit.taken("nvrtcGetProgramLog", self.functions.log_size, self.functions.log)?);
        unit.expect("nvrtcCompileProgram", compiled, &log)?;
        Ok((unit, log))
    }
}

/// A text without the zero at its end.
fn text(bytes: Vec<u8>) -> String {
    String::from_utf8_lossy(&bytes).trim_end_matches('\0').to_owned()
}

/// The second part of the library in a folder, loaded if it is there.
fn builtins(folder: &Path) -> Vec<Library> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let named =
        |path: &PathBuf| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(BUILTINS));
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.path()).filter(named).collect();
    paths.sort();
    paths.iter().filter_map(|path| library::open(path).ok()).collect()
}

/// A program while it is compiled.
struct Unit<'a> {
    functions: &'a Functions,
    program: Program,
}

impl Unit<'_> {
    fn expect(&self, function: &'static str, status: Status, log: &str) -> Result<(), CompileError> {
        if status == 0 {
            return Ok(());
        }
        #[expect(unsafe_code, reason = "a function of a C library is called")]
        // SAFETY: the function takes any number and returns a text that lives as long as the library.
        let error = unsafe { CStr::from_ptr((self.functions.error)(status)) };
        Err(CompileError::Library {
            function,
            error: error.to_string_lossy().into_owned(),
            log: log.to_owned(),
        })
    }

    fn ptx(&self) -> Result<String, CompileError> {
        Ok(text(self.taken("nvrtcGetPTX", self.functions.ptx_size, self.functions.ptx)?))
    }

    /// What a pair of functions gives: how many bytes, and the bytes.
    fn taken(&self, function: &'static str, size: Size, text: Text) -> Result<Vec<u8>, CompileError> {
        let mut length = 0;
        #[expect(unsafe_code, reason = "a function of a C library is called")]
        // SAFETY: the program was made, and the pointer is to a number that lives through the call.
        let status = unsafe { size(self.program, &raw mut length) };
        self.expect(function, status, "")?;
        let mut bytes = vec![0_u8; length];
        #[expect(unsafe_code, reason = "a function of a C library is called")]
        // SAFETY: the program was made, and there is room for as many bytes as the library says.
        let status = unsafe { text(self.program, bytes.as_mut_ptr().cast()) };
        self.expect(function, status, "")?;
        Ok(bytes)
    }
}

impl Drop for Unit<'_> {
    fn drop(&mut self) {
        if self.program.is_null() {
            return;
        }
        #[expect(unsafe_code, reason = "a function of a C library is called")]
        // SAFETY: the program was made and is not used again.
        unsafe {
            (self.functions.destroy)(&raw mut self.program)
        };
    }
}
