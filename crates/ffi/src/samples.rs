//! Builds `CachedSample` tuples without calling Python code. Knows no order.

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString, PyType};

/// What all samples of one dataset share.
pub struct SampleMaker {
    class: Py<PyType>,
    /// Whether payloads are views instead of `bytes`.
    pub zero_copy: bool,
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

/// Interned names of the delivered columns: every metadata dict shares them.
pub fn column_keys<'a>(py: Python<'_>, names: impl Iterator<Item = &'a str>) -> Vec<Py<PyString>> {
    names.map(|name| PyString::intern(py, name).unbind()).collect()
}
