//! Payloads of a block as Python objects: `bytes`, or views of where they lie. Knows no metadata.

use dataset_rt_runtime::Block;
use dataset_rt_storage::Error;
use dataset_rt_storage::read::Payload;
use dataset_rt_storage::store::Section;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyMemoryView;

use crate::failure::{apart, detached, to_py};
use crate::payload_out::NativePayload;

/// Payload bytes fetched or copied between two looks for signals: hundredths of a second.
pub const PIECE_BYTES: usize = 32 * 1024 * 1024;

/// Payloads of one block as Python sees them, some made ahead of their delivery: they share the
/// look whether their files are still what they were.
#[derive(Default)]
pub struct PayloadsAhead {
    made: std::vec::IntoIter<Py<PyAny>>,
}

impl PayloadsAhead {
    /// The payload of sample `i` of `block`, which is fetched now if it was not yet. Asked for
    /// each sample in turn.
    ///
    /// # Errors
    /// When it is damaged or changed while open, or when memory runs out.
    pub fn next<'py>(
        &mut self,
        py: Python<'py>,
        zero_copy: bool,
        block: &mut Block,
        i: usize,
    ) -> PyResult<Bound<'py, PyAny>> {
        if self.made.len() == 0 {
            if i >= block.fetched() {
                fetch_more(py, block)?;
            }
            if let Some(len) = block.payload_bytes(i)
                && len > PIECE_BYTES
                && !zero_copy
            {
                return copied_in_pieces(py, block, i, len);
            }
            let make = |section: Section<'_>, payload: &Payload| {
                payload_object(py, zero_copy, section, payload)
            };
            let made = block.convert_payloads(i, make).map_err(|e| to_py(py, &e))?;
            self.made = made?.into_iter();
        }
        let lost = || to_py(py, &Error::internal(format!("payload {i} of a block is gone")));
        self.made.next().map(|data| data.into_bound(py)).ok_or_else(lost)
    }
}

/// Fetches the next payloads of a block.
fn fetch_more(py: Python<'_>, block: &mut Block) -> PyResult<()> {
    let fetch = block.next_fetch();
    let fetched = if fetch.size_bytes() > PIECE_BYTES as u64 {
        apart(py, move |_| Ok(fetch.run()))?
    } else {
        detached(py, || Ok(fetch.run()))?
    };
    block.accept(fetched).map_err(|e| to_py(py, &e))
}

/// A new `bytes` object of a long payload, which the block lets go; between pieces signals are
/// looked for, and when one interrupts, the payload stays.
fn copied_in_pieces<'py>(
    py: Python<'py>,
    block: &mut Block,
    i: usize,
    len: usize,
) -> PyResult<Bound<'py, PyAny>> {
    // SAFETY: without a source Python makes an object of `len` bytes, to be filled before anybody
    // sees it; it is owned at once, and never shown unless every byte was written.
    let target = unsafe {
        Bound::from_owned_ptr_or_err(
            py,
            ffi::PyBytes_FromStringAndSize(std::ptr::null(), len as ffi::Py_ssize_t),
        )?
    };
    // SAFETY: `target` is a `bytes` object and lives to the end of this function.
    let memory = unsafe { ffi::PyBytes_AsString(target.as_ptr()) }.cast::<u8>();
    for start in (0..len).step_by(PIECE_BYTES) {
        let looked = block.look_at(i, |section, payload| {
            let piece = &payload.bytes(section)[start..len.min(start + PIECE_BYTES)];
            // SAFETY: `payload` has `len` bytes and so has `memory`, which nobody else sees.
            unsafe { memory.add(start).copy_from_nonoverlapping(piece.as_ptr(), piece.len()) };
        });
        if let Err(error) = looked {
            block.release(i);
            return Err(to_py(py, &error));
        }
        py.check_signals()?;
    }
    block.release(i);
    Ok(target)
}

/// The payload as Python sees it: copied into `bytes`, or a view of where it lies.
fn payload_object(
    py: Python<'_>,
    zero_copy: bool,
    section: Section<'_>,
    payload: &Payload,
) -> PyResult<Py<PyAny>> {
    if zero_copy {
        let owner = Bound::new(py, NativePayload::new(payload.clone()))?;
        return Ok(PyMemoryView::from(owner.as_any())?.into_any().unbind());
    }
    Ok(copied_bytes(py, payload.bytes(section))?.unbind())
}

/// A new `bytes` object; `PyBytes::new` would panic when memory runs out.
fn copied_bytes<'py>(py: Python<'py>, bytes: &[u8]) -> PyResult<Bound<'py, PyAny>> {
    // SAFETY: the pointer is valid for `len` bytes and Python copies them before it returns; the
    // new object is owned by the result.
    unsafe {
        Bound::from_owned_ptr_or_err(
            py,
            ffi::PyBytes_FromStringAndSize(bytes.as_ptr().cast(), bytes.len() as ffi::Py_ssize_t),
        )
    }
}
