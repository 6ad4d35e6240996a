//! Keeps Python's collector out of guarded sections.
//!
//! Making a tracked object (a dict, a tuple, a `memoryview`) may run the collector, and with it
//! other people's finalisers. Inside a section they would read zeros where a file lost its pages
//! (`storage::store::guard`), instead of meeting the signal that they meet anywhere else.

use pyo3::ffi;
use pyo3::prelude::*;

/// While this lives the collector does not run by itself. The interpreter lock is held all the
/// time: no other thread finds it paused.
pub struct CollectorPause<'py> {
    _held: Python<'py>,
    was_enabled: bool,
}

impl<'py> CollectorPause<'py> {
    /// Pauses the collector, unless it is already.
    pub fn new(py: Python<'py>) -> Self {
        // SAFETY: needs the interpreter lock, which `py` proves; sets a flag and returns the old.
        let was_enabled = unsafe { ffi::PyGC_Disable() } != 0;
        Self { _held: py, was_enabled }
    }
}

impl Drop for CollectorPause<'_> {
    fn drop(&mut self) {
        if self.was_enabled {
            // SAFETY: needs the interpreter lock, which `_held` proves; sets a flag.
            unsafe { ffi::PyGC_Enable() };
        }
    }
}
