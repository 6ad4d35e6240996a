//! Capsules of the Arrow C interface that others hand over: whether there still is something in
//! them. Reads no schema and no array itself.

use std::ffi::{CStr, c_char, c_void};

use dataset_rt_storage::Error;
use pyo3::prelude::*;
use pyo3::types::PyCapsule;

use crate::failure::to_py;

const SCHEMA: &CStr = c"arrow_schema";
const ARRAY: &CStr = c"arrow_array";

/// `struct ArrowSchema`, as the Arrow C data interface lays it out, up to what is looked at.
#[repr(C)]
struct SchemaHead {
    format: *const c_char,
    name: *const c_char,
    metadata: *const c_char,
    flags: i64,
    n_children: i64,
    children: *const c_void,
    dictionary: *const c_void,
    release: *const c_void,
}

/// `struct ArrowArray`, likewise.
#[repr(C)]
struct ArrayHead {
    length: i64,
    null_count: i64,
    offset: i64,
    n_buffers: i64,
    n_children: i64,
    buffers: *const c_void,
    children: *const c_void,
    dictionary: *const c_void,
    release: *const c_void,
}

/// Refuses the capsule of a schema that was taken out, or never put in: what it names is freed.
///
/// # Errors
/// `InvalidInputError`, or what Python says of a capsule of another kind.
pub fn check_schema(capsule: &Bound<'_, PyCapsule>) -> PyResult<()> {
    let head = capsule.pointer_checked(Some(SCHEMA))?.cast::<SchemaHead>();
    // SAFETY: by the PyCapsule interface a capsule of this name holds an `ArrowSchema`, which
    // lives as long as the capsule, whether released or not; it begins with these plain fields.
    let is_there = unsafe {
        let head = head.as_ref();
        !head.release.is_null() && !head.format.is_null()
    };
    if is_there { Ok(()) } else { Err(used(capsule.py(), "schema")) }
}

/// The same for an array.
///
/// # Errors
/// As [`check_schema`].
pub fn check_array(capsule: &Bound<'_, PyCapsule>) -> PyResult<()> {
    let head = capsule.pointer_checked(Some(ARRAY))?.cast::<ArrayHead>();
    // SAFETY: as in `check_schema`, for an `ArrowArray`.
    let is_there = unsafe { !head.as_ref().release.is_null() };
    if is_there { Ok(()) } else { Err(used(capsule.py(), "array")) }
}

fn used(py: Python<'_>, what: &str) -> PyErr {
    let text = format!(
        "the capsule holds no {what} any more: somebody took it out before; make a new one for \
         each use"
    );
    to_py(py, &Error::invalid(text))
}
