//! One payload as a read-only Python buffer that keeps its mapping or arena alive.

use std::ffi::{c_int, c_void};

use dataset_rt_storage::read::Payload;
use pyo3::exceptions::PyBufferError;
use pyo3::ffi;
use pyo3::prelude::*;

/// Owner of one payload's bytes, as seen through the buffer protocol.
#[pyclass(frozen, module = "dataset_rt._native")]
pub struct NativePayload {
    payload: Payload,
}

impl NativePayload {
    /// Wraps a verified payload; nothing is copied.
    pub fn new(payload: Payload) -> Self {
        Self { payload }
    }
}

#[pymethods]
impl NativePayload {
    fn __len__(&self) -> usize {
        self.payload.size_bytes()
    }

    /// Fills `view` with the payload's bytes.
    ///
    /// # Safety
    /// `view` must be null or point at a `Py_buffer` that may be written, as the buffer protocol
    /// promises.
    unsafe fn __getbuffer__(
        slf: Bound<'_, Self>,
        view: *mut ffi::Py_buffer,
        flags: c_int,
    ) -> PyResult<()> {
        if view.is_null() {
            return Err(PyBufferError::new_err("the view to fill is null"));
        }
        if flags & ffi::PyBUF_WRITABLE == ffi::PyBUF_WRITABLE {
            return Err(PyBufferError::new_err("a cached payload is read-only"));
        }
        let bytes = slf.get().payload.as_view();
        // SAFETY: `view` is writable (contract above). The bytes live as long as `slf`, whose
        // count PyBuffer_FillInfo raises and the consumer gives back with the view; they are
        // never written: the view is read-only and the payload immutable.
        let failed = unsafe {
            ffi::PyBuffer_FillInfo(
                view,
                slf.as_ptr(),
                bytes.as_ptr().cast::<c_void>().cast_mut(),
                bytes.len() as ffi::Py_ssize_t,
                1,
                flags,
            )
        };
        if failed == 0 { Ok(()) } else { Err(PyErr::fetch(slf.py())) }
    }
}
