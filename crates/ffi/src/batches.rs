//! The native batch iterator: one window of the stream as `pyarrow.RecordBatch` objects, handed
//! over by the Arrow C Data Interface.

use arrow_array::ffi::FFI_ArrowArray;
use arrow_array::{Array, RecordBatch};
use std::sync::Arc;

use dataset_rt_runtime::{Batches, Progress};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3_arrow::ffi::to_schema_pycapsule;

use crate::faces::struct_of;
use crate::failure::{Attention, guarded, to_py, without_lock};
use crate::shared::Shared;

/// Iterates one window. Threads may share it: each batch goes to one of them.
#[pyclass(frozen, module = "dataset_rt._native")]
pub struct NativeBatchIterator {
    batches: Shared<Batches>,
    progress: Option<Arc<Progress>>,
    importer: BatchImporter,
}

impl NativeBatchIterator {
    /// Iterates `batches`; `progress`, if given, is told what was taken.
    ///
    /// # Errors
    /// When pyarrow is not importable.
    pub fn new(
        py: Python<'_>,
        batches: Batches,
        progress: Option<Arc<Progress>>,
    ) -> PyResult<Self> {
        let importer = BatchImporter::new(py, &batches)?;
        Ok(Self { batches: Shared::new(batches), progress, importer })
    }
}

#[pymethods]
impl NativeBatchIterator {
    fn __iter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    /// Refuses pickling and copying.
    fn __reduce__(&self) -> PyResult<()> {
        Err(PyTypeError::new_err(
            "an iterator over batches cannot be pickled or copied: send the dataset \
             itself, and call iter_batches() on it there",
        ))
    }

    fn __next__<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        guarded(py, || {
            let mut batches = self.batches.lock(py)?;
            let mut attention = Attention::new();
            let (place, attend) = (&mut *batches, &mut attention);
            let next = without_lock(py, move || place.next_batch(&mut || attend.check()));
            if let Some(progress) = &self.progress {
                let (rows, whole) = batches.taken();
                progress.set(rows, whole);
            }
            let next = next.map_err(|error| attention.explain(py, &error))?;
            next.map(|batch| self.importer.import(py, batch)).transpose()
        })
    }
}

/// pyarrow's way in, and the schema that all batches share: made once, a batch of few rows costs
/// half as much.
struct BatchImporter {
    import: Py<PyAny>,
    schema: Py<PyAny>,
}

impl BatchImporter {
    fn new(py: Python<'_>, batches: &Batches) -> PyResult<Self> {
        let pyarrow = py.import("pyarrow")?;
        let capsule = to_schema_pycapsule(py, batches.schema().as_ref())?;
        let schema =
            pyarrow.getattr("Schema")?.call_method1("_import_from_c_capsule", (capsule,))?;
        let import = pyarrow.getattr("RecordBatch")?.getattr("_import_from_c")?;
        Ok(Self { import: import.unbind(), schema: schema.unbind() })
    }

    fn import<'py>(&self, py: Python<'py>, batch: RecordBatch) -> PyResult<Bound<'py, PyAny>> {
        let array = struct_of(batch).map_err(|e| to_py(py, &e))?;
        // Moved out by pyarrow, or else released when it is dropped here.
        let mut exported = FFI_ArrowArray::new(&array.to_data());
        let address = std::ptr::from_mut(&mut exported) as usize;
        self.import.bind(py).call1((address, &self.schema))
    }
}
