//! The module as Python loads it.
//!
//! PyO3's attributes would write this. They need features of `syn` that nothing else here needs: whatever is built
//! without this package would then be built once more than with it.

use std::cell::UnsafeCell;
use std::ptr::null_mut;

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyCFunction, PyModule, PyTuple};

use crate::{Error, call, facts, options, relocated};

/// What Python is told of the module, and writes on.
struct Definition(UnsafeCell<ffi::PyModuleDef>);

#[expect(unsafe_code, reason = "Python has this from all of its threads")]
// SAFETY: only Python writes on it, and it does so with its lock.
unsafe impl Sync for Definition {}

static DEFINITION: Definition = Definition(UnsafeCell::new(ffi::PyModuleDef {
    m_base: ffi::PyModuleDef_HEAD_INIT,
    m_name: c"_shardloom".as_ptr(),
    m_doc: c"The compiled part of the package `shardloom`.".as_ptr(),
    // It has no state of its own, and is there once.
    m_size: -1,
    m_methods: null_mut(),
    m_slots: null_mut(),
    m_traverse: None,
    m_clear: None,
    m_free: None,
}));

/// The module, or nothing, with an error that is set.
#[expect(unsafe_code, reason = "Python finds the module by this name")]
// SAFETY: no other function is called so.
#[unsafe(no_mangle)]
extern "C" fn PyInit__shardloom() -> *mut ffi::PyObject {
    Python::attach(|py| {
        // SAFETY: Python calls this when it loads the module, and the definition is there as long as the process.
        let created = unsafe { Bound::from_owned_ptr_or_err(py, ffi::PyModule_Create(DEFINITION.0.get())) };
        match created.and_then(|it| filled(&it.cast_into::<PyModule>()?).map(Bound::unbind)) {
            Ok(module) => module.into_ptr(),
            Err(error) => {
                error.restore(py);
                null_mut()
            }
        }
    })
}

/// The module with what it holds.
fn filled<'py>(module: &Bound<'py, PyModule>) -> PyResult<Bound<'py, PyModule>> {
    let py = module.py();
    module.add("Error", py.get_type::<Error>())?;
    module.add(
        "call",
        PyCFunction::new_closure(py, Some(c"call"), None, |given: &Bound<'_, PyTuple>, _| call(given))?,
    )?;
    module.add(
        "facts",
        PyCFunction::new_closure(py, Some(c"facts"), None, |given: &Bound<'_, PyTuple>, _| facts(given))?,
    )?;
    module.add(
        "relocated",
        PyCFunction::new_closure(py, Some(c"relocated"), None, |given: &Bound<'_, PyTuple>, _| {
            relocated(given)
        })?,
    )?;
    module.add(
        "options",
        PyCFunction::new_closure(py, Some(c"options"), None, |given: &Bound<'_, PyTuple>, _| options(given))?,
    )?;
    Ok(module.clone())
}
