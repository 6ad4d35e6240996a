//! `NativeFace`: a table that any Arrow tool takes by itself, payloads included, read batch by
//! batch while it is taken. Ready-made tables are in `tables`.

use std::ffi::c_int;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, OnceLock};
use std::thread::ThreadId;

use arrow_array::cast::AsArray;
use arrow_array::types::UInt64Type;
use arrow_array::{ArrayRef, RecordBatch, StructArray};
use arrow_cast::cast;
use arrow_schema::{ArrowError, DataType, Field, SchemaRef};
use dataset_rt_runtime::{Batches, Face, check_names, panic_error};
use dataset_rt_storage::{Error, Result};
use pyo3::prelude::*;
use pyo3::types::PyCapsule;
use pyo3_arrow::ffi::{ArrayIterator, to_schema_pycapsule, to_stream_pycapsule};
use pyo3_arrow::{PyChunkedArray, PySchema};

use crate::batches::NativeBatchIterator;
use crate::capsules::check_schema;
use crate::failure::{Attention, attended, detached, guarded, to_py, without_lock};

/// A table as it was when this was made. May be taken any number of times.
#[pyclass(frozen, module = "dataset_rt._native")]
pub struct NativeFace {
    face: Arc<Face>,
    columns: Option<Vec<String>>,
    rows: Option<Arc<[u64]>>,
}

impl NativeFace {
    /// All rows of `face`, with `columns` or all.
    pub fn new(face: Face, columns: Option<Vec<String>>) -> Self {
        Self { face: Arc::new(face), columns, rows: None }
    }
}

#[pymethods]
impl NativeFace {
    /// The same table with other columns, all of these by default, and the listed rows alone.
    #[pyo3(signature = (columns=None, rows=None))]
    fn select(
        &self,
        py: Python<'_>,
        columns: Option<Vec<String>>,
        rows: Option<PyChunkedArray>,
    ) -> PyResult<Self> {
        guarded(py, || {
            if let (Some(wanted), Some(had)) = (&columns, &self.columns) {
                check_names(wanted, had).map_err(|e| to_py(py, &e))?;
            }
            let columns = columns.or_else(|| self.columns.clone());
            self.face.project(columns.as_deref(), None).map_err(|e| to_py(py, &e))?;
            let rows = rows.map(row_numbers).transpose().map_err(|e| to_py(py, &e))?;
            let rows = rows.or_else(|| self.rows.clone());
            Ok(Self { face: Arc::clone(&self.face), columns, rows })
        })
    }

    /// The rows batch by batch, with errors of our own.
    fn batches(&self, py: Python<'_>) -> PyResult<NativeBatchIterator> {
        guarded(py, || {
            let batches = detached(py, || {
                let projection = self.face.project(self.columns.as_deref(), None)?;
                self.face.batches(projection, self.rows.clone())
            })?;
            NativeBatchIterator::new(py, batches, None)
        })
    }

    fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyCapsule>> {
        guarded(py, || {
            let projection = self.face.project(self.columns.as_deref(), None);
            let projection = projection.map_err(|e| to_py(py, &e))?;
            Ok(to_schema_pycapsule(py, projection.schema().as_ref())?)
        })
    }

    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyCapsule>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        guarded(py, || {
            let wanted = requested_schema.map(|capsule| requested(py, &capsule)).transpose()?;
            let projection = self.face.project(self.columns.as_deref(), wanted.as_deref());
            let projection = projection.map_err(|e| to_py(py, &e))?;
            if self.rows.is_none() {
                let shared = attended(py, |attend| self.face.shared(&projection, attend))?;
                if let Some(batches) = shared {
                    // They lie in the files: each is handed on while these are what they were.
                    let face = Arc::clone(&self.face);
                    let looked = move |batch| face.check_unchanged().map(|()| batch);
                    return export(py, projection.schema(), batches.into_iter().map(looked));
                }
            }
            let batches = detached(py, || self.face.batches(projection, self.rows.clone()))?;
            let schema = Arc::clone(batches.schema());
            export(py, &schema, Reader { batches: Some(batches) })
        })
    }
}

fn requested(py: Python<'_>, capsule: &Bound<'_, PyCapsule>) -> PyResult<SchemaRef> {
    check_schema(capsule)?;
    let schema = PySchema::from_arrow_pycapsule(capsule);
    schema.map(PySchema::into_inner).map_err(|error| {
        let text = format!("cannot understand the requested schema: {}", error.value(py));
        let typed = to_py(py, &Error::invalid(text));
        typed.set_cause(py, Some(error));
        typed
    })
}

fn row_numbers(rows: PyChunkedArray) -> Result<Arc<[u64]>> {
    let mut numbers = Vec::new();
    for chunk in rows.chunks() {
        let chunk = cast(chunk, &DataType::UInt64);
        let chunk = chunk.map_err(|e| Error::internal(format!("rows that are no numbers: {e}")))?;
        numbers.extend_from_slice(chunk.as_primitive::<UInt64Type>().values());
    }
    Ok(numbers.into())
}

/// A stream of `batches`.
///
/// # Errors
/// When memory runs out.
pub fn export<'py>(
    py: Python<'py>,
    schema: &SchemaRef,
    batches: impl Iterator<Item = Result<RecordBatch>> + Send + 'static,
) -> PyResult<Bound<'py, PyCapsule>> {
    let field = Field::new_struct("", schema.fields().clone(), false)
        .with_metadata(schema.metadata().clone());
    let arrays = batches.map(|batch| struct_of(batch?)).map(|array| array.map_err(for_stream));
    let reader = Box::new(ArrayIterator::new(arrays, Arc::new(field)));
    Ok(to_stream_pycapsule(py, reader, None)?)
}

/// The batch as the struct array that the C interface wants.
///
/// # Errors
/// `Internal` when the columns do not fit each other.
pub fn struct_of(batch: RecordBatch) -> Result<ArrayRef> {
    let rows = batch.num_rows();
    let (schema, columns, _) = batch.into_parts();
    if schema.fields().is_empty() {
        return Ok(Arc::new(StructArray::new_empty_fields(rows, None)));
    }
    let array = StructArray::try_new(schema.fields().clone(), columns, None);
    Ok(Arc::new(array.map_err(|e| Error::internal(format!("cannot export a batch: {e}")))?))
}

/// Consumers read C strings.
fn for_stream(error: Error) -> ArrowError {
    ArrowError::ExternalError(error.message().replace('\0', "\\0").into())
}

/// Batches for a foreign consumer, which calls from any thread, with or without the interpreter
/// lock.
struct Reader {
    /// `None` after a panic.
    batches: Option<Batches>,
}

impl Iterator for Reader {
    type Item = Result<RecordBatch>;

    fn next(&mut self) -> Option<Self::Item> {
        let mut batches = self.batches.take()?;
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            let next = next_batch(&mut batches);
            (next, batches)
        }));
        match outcome {
            Ok((next, batches)) => {
                self.batches = Some(batches);
                next.transpose()
            }
            Err(panic) => Some(Err(panic_error(panic.as_ref()))),
        }
    }
}

/// The thread that runs Python's signal handlers.
static MAIN: OnceLock<ThreadId> = OnceLock::new();

/// Remembers the main thread, if this is it.
pub fn remember_main_thread(py: Python<'_>) -> PyResult<()> {
    let threading = py.import("threading")?;
    let this = threading.call_method0("current_thread")?;
    if this.is(&threading.call_method0("main_thread")?) {
        let _ = MAIN.set(std::thread::current().id());
    }
    Ok(())
}

unsafe extern "C" {
    /// Not in the stable interface, but in every CPython since 3.4.
    fn PyGILState_Check() -> c_int;
}

/// Waits for the next batch, without the interpreter lock: a fork or a signal handler of another
/// thread may need it. Ctrl-C is looked for where handlers run, on the main thread; no other
/// thread may ask for the lock, since whoever holds it may be waiting for this very batch.
fn next_batch(batches: &mut Batches) -> Result<Option<RecordBatch>> {
    // SAFETY: callable from any thread at any time once the interpreter was initialised, which
    // loaded this module; it only compares thread-local pointers.
    let holds_lock = unsafe { PyGILState_Check() } != 0;
    let mut attention = Attention::new();
    let next = if holds_lock {
        Python::attach(|py| without_lock(py, || batches.next_batch(&mut || attention.check())))
    } else if MAIN.get() == Some(&std::thread::current().id()) {
        batches.next_batch(&mut || attention.check())
    } else {
        batches.next_batch(&mut || Ok(()))
    };
    attention.raise_again();
    next
}
