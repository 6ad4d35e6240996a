//! Builds `CachedSample` tuples without calling Python code. Knows no order.

use dataset_rt_runtime::Block;
use dataset_rt_storage::Error;
use dataset_rt_storage::read::Payload;
use dataset_rt_storage::store::Section;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyMemoryView, PyString, PyType};

use crate::failure::{apart, detached, to_py};
use crate::payload_out::NativePayload;

/// Payload bytes fetched or copied between two looks for signals: hundredths of a second.
pub const PIECE_BYTES: usize = 32 * 1024 * 1024;

/// What all samples of one dataset share.
pub struct SampleMaker {
    class: Py<PyType>,
    zero_copy: bool,
}

impl SampleMaker {
    /// Looks the class up once.
    ///
    /// # Errors
    /// When the package is not importable.
    pub fn new(py: Python<'_>, zero_copy: bool) -> PyResult<Self> {
        let class = py.import("dataset_rt.samples")?.getattr("CachedSample")?;
        Ok(Self { class: class.cast_into::<PyType>()?.unbind(), zero_copy })
    }

    /// The payload as Python sees it: copied into `bytes` unless the dataset is zero-copy.
    fn data(&self, py: Python<'_>, section: Section<'_>, payload: &Payload) -> PyResult<Py<PyAny>> {
        if self.zero_copy {
            let owner = Bound::new(py, NativePayload::new(payload.clone()))?;
            return Ok(PyMemoryView::from(owner.as_any())?.into_any().unbind());
        }
        Ok(copied_bytes(py, payload.bytes(section))?.unbind())
    }

    /// One `CachedSample`.
    ///
    /// # Errors
    /// When memory runs out.
    pub fn make<'py>(
        &self,
        py: Python<'py>,
        data: Bound<'py, PyAny>,
        metadata: Bound<'py, PyDict>,
        identity: (u64, u64),
    ) -> PyResult<Bound<'py, PyAny>> {
        let cache_id = identity.0.into_pyobject(py)?.into_any();
        let sample_id = identity.1.into_pyobject(py)?.into_any();
        self.fill(py, [data, metadata.into_any(), cache_id, sample_id])
    }

    /// What `tuple.__new__(CachedSample, members)` does, without the detour through Python.
    fn fill<'py>(
        &self,
        py: Python<'py>,
        members: [Bound<'py, PyAny>; 4],
    ) -> PyResult<Bound<'py, PyAny>> {
        let class = self.class.bind(py).as_type_ptr();
        // SAFETY: `CachedSample` is a NamedTuple: a tuple subclass without further fields, so the
        // generic allocator with four items makes a valid tuple whose items are still null. The
        // new object is owned by `sample` at once.
        let sample = unsafe {
            Bound::from_owned_ptr_or_err(
                py,
                ffi::PyType_GenericAlloc(class, members.len() as ffi::Py_ssize_t),
            )?
        };
        for (i, member) in members.into_iter().enumerate() {
            // SAFETY: `sample` is a tuple that nobody else has seen, so it may still be filled;
            // `i` is below its size; the reference to `member` is handed over.
            let failed = unsafe {
                ffi::PyTuple_SetItem(sample.as_ptr(), i as ffi::Py_ssize_t, member.into_ptr())
            };
            if failed != 0 {
                return Err(PyErr::fetch(py));
            }
        }
        Ok(sample)
    }
}

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
        maker: &SampleMaker,
        block: &mut Block,
        i: usize,
    ) -> PyResult<Bound<'py, PyAny>> {
        if self.made.len() == 0 {
            if i >= block.fetched() {
                fetch_more(py, block)?;
            }
            if let Some(len) = block.payload_bytes(i)
                && len > PIECE_BYTES
                && !maker.zero_copy
            {
                return copied_in_pieces(py, block, i, len);
            }
            let make = |section: Section<'_>, payload: &Payload| maker.data(py, section, payload);
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

/// Interned names of the delivered columns: every metadata dict shares them.
pub fn column_keys<'a>(py: Python<'_>, names: impl Iterator<Item = &'a str>) -> Vec<Py<PyString>> {
    names.map(|name| PyString::intern(py, name).unbind()).collect()
}
