//! Payloads of a block as Python objects: `bytes`, or views of where they lie. Knows no metadata.

use std::sync::Arc;

use dataset_rt_runtime::{Block, WorkerPool};
use dataset_rt_storage::Error;
use dataset_rt_storage::read::{Payload, PayloadAtHand};
use dataset_rt_storage::store::Section;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyMemoryView;

use crate::collector::CollectorPause;
use crate::failure::{apart, detached, to_py};
use crate::filling::Filling;
use crate::payload_out::NativePayload;

/// Payload bytes fetched between two looks for signals: hundredths of a second.
pub const PIECE_BYTES: usize = 32 * 1024 * 1024;

/// Payload bytes copied ahead of their delivery by several threads, one larger payload aside:
/// enough to keep them busy, few enough to stay in a processor's outer cache.
const RUN_BYTES: u64 = 8 * 1024 * 1024;

/// Payloads of one block as Python sees them, some made ahead of their delivery: they share the
/// look whether their files are still what they were.
pub struct PayloadsAhead {
    pool: Arc<WorkerPool>,
    made: std::vec::IntoIter<Py<PyAny>>,
    filling: Option<Filling>,
}

impl PayloadsAhead {
    /// Nothing is made yet; workers of `pool` will help.
    pub fn new(pool: &Arc<WorkerPool>) -> Self {
        Self { pool: Arc::clone(pool), made: Vec::new().into_iter(), filling: None }
    }

    /// Payloads that are made already.
    pub fn made(&self) -> usize {
        self.made.len()
    }

    /// The payload of sample `i` of `block`, which is fetched now if it was not yet. Asked for
    /// each sample in turn, and again for the same while the block keeps it.
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
            if !zero_copy && let Some(filled) = self.filled(py, block, i)? {
                return Ok(filled);
            }
            let make = |section: Section<'_>, payload: &Payload| {
                payload_object(py, zero_copy, section, payload)
            };
            let made = {
                let _paused = CollectorPause::new(py);
                block.convert_payloads(i, make)
            };
            let made = made.map_err(|e| to_py(py, &e))?;
            self.made = made?.into_iter();
        }
        let lost = || to_py(py, &Error::internal(format!("payload {i} of a block is gone")));
        self.made.next().map(|data| data.into_bound(py)).ok_or_else(lost)
    }

    /// Payload `i` if it is one that several threads copy; `None` also when that went wrong: then
    /// payloads are made one by one, so that the error is that of the right one.
    fn filled<'py>(
        &mut self,
        py: Python<'py>,
        block: &mut Block,
        i: usize,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        if self.filling.is_none() {
            let (len, size_bytes) = block.run_size(i, RUN_BYTES);
            if Filling::is_worth_it(len, size_bytes) {
                // Where memory is short, that of one payload may still be had.
                self.filling = Filling::new(py, &self.pool, block.run(i, RUN_BYTES)).ok();
            }
        }
        let Some(filling) = &mut self.filling else { return Ok(None) };
        let Ok(Some(filled)) = filling.next(py)? else {
            self.filling = None;
            return Ok(None);
        };
        if filling.len() == 0 {
            self.filling = None;
        }
        block.release(i..i + 1);
        Ok(Some(filled.into_any()))
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

/// The payload of a single sample, unless it is so long that signals have to be looked for
/// meanwhile, or Python fails.
pub fn object_at_hand<'py>(
    py: Python<'py>,
    zero_copy: bool,
    payload: &PayloadAtHand<'_>,
) -> Option<Bound<'py, PyAny>> {
    if zero_copy {
        let owner = Bound::new(py, NativePayload::new(payload.share()?)).ok()?;
        return PyMemoryView::from(owner.as_any()).ok().map(Bound::into_any);
    }
    (payload.bytes().len() <= PIECE_BYTES).then(|| copied_bytes(py, payload.bytes()).ok())?
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
