//! Arrow tables across the border by PyCapsule: ours out without copying, foreign ones in after
//! full validation. Decodes nothing inside a stream callback.

use arrow_array::{Array, RecordBatch};
use arrow_schema::{DataType, SchemaRef};
use dataset_rt_storage::{Error, Result};
use pyo3::exceptions::{PyException, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyDict, PyTuple};
use pyo3_arrow::PyRecordBatch;
use pyo3_arrow::ffi::to_schema_pycapsule;
use pyo3_arrow::input::AnyRecordBatch;

use crate::capsules::{check_array, check_schema};
use crate::faces::export;
use crate::failure::{foreseen, guarded, to_py};

/// Ready-made record batches that any Arrow tool can take, as often as it likes.
#[pyclass(frozen, module = "dataset_rt._native")]
pub struct NativeTable {
    schema: SchemaRef,
    batches: Vec<RecordBatch>,
}

impl NativeTable {
    /// Wraps finished batches of one schema.
    pub fn new(schema: SchemaRef, batches: Vec<RecordBatch>) -> Self {
        Self { schema, batches }
    }
}

#[pymethods]
impl NativeTable {
    fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyCapsule>> {
        guarded(py, || Ok(to_schema_pycapsule(py, self.schema.as_ref())?))
    }

    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyCapsule>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        // The interface lets a producer ignore it, and consumers cast.
        drop(requested_schema);
        guarded(py, || export(py, &self.schema, self.batches.clone().into_iter().map(Ok)))
    }
}

/// Whether `object` is an Arrow table or batch of any library.
pub fn is_arrow(object: &Bound<'_, PyAny>) -> bool {
    !object.is_instance_of::<PyTuple>()
        && (object.hasattr("__arrow_c_array__").unwrap_or(false)
            || object.hasattr("__arrow_c_stream__").unwrap_or(false))
}

/// All batches of a foreign table, shared, not copied; call [`validate`] before use.
///
/// # Errors
/// `InvalidInputError` with what the exporter raised.
pub fn import_batches(object: &Bound<'_, PyAny>) -> PyResult<(SchemaRef, Vec<RecordBatch>)> {
    let read = |object: &Bound<'_, PyAny>| {
        let read = || taken(object).and_then(|b| Ok(b.into_table()?));
        // Arrow asserts that batches fit the schema of their stream.
        foreseen(read)
            .unwrap_or_else(|| Err(PyValueError::new_err("its batches do not fit its schema")))
    };
    let table = validate_pyarrow(object).and_then(|()| read(object)).or_else(|error| {
        if !error.is_instance_of::<PyException>(object.py()) {
            return Err(error);
        }
        // Polars exports all-null columns in a form that arrow-rs does not take; its own
        // conversion to pyarrow makes another one.
        match object.getattr_opt("to_arrow")? {
            Some(convert) => convert.call0().and_then(|table| read(&table)),
            None => Err(error),
        }
    });
    let py = object.py();
    let (batches, schema) = table
        .map_err(|error| {
            if !error.is_instance_of::<PyException>(py) {
                return error;
            }
            let text = format!(
                "cannot take the Arrow table: {}; fix the object that exports it",
                error.value(py)
            );
            let typed = to_py(py, &Error::invalid(text));
            typed.set_cause(py, Some(error));
            typed
        })?
        .into_inner();
    // Some exporters leave the buffers of a batch without rows out; nobody is to look for them.
    let batches = batches.into_iter().map(|batch| match batch.num_rows() {
        0 => RecordBatch::new_empty(batch.schema()),
        _ => batch,
    });
    Ok((schema, batches.collect()))
}

/// What the exporter hands over, one batch or a stream of them.
fn taken(object: &Bound<'_, PyAny>) -> PyResult<AnyRecordBatch> {
    if !object.hasattr("__arrow_c_array__")? {
        return object.extract::<AnyRecordBatch>();
    }
    let pair = object.call_method0("__arrow_c_array__")?;
    let (schema, array): (Bound<'_, PyCapsule>, Bound<'_, PyCapsule>) = pair.extract()?;
    check_schema(&schema)?;
    check_array(&array)?;
    Ok(AnyRecordBatch::RecordBatch(PyRecordBatch::from_arrow_pycapsule(&schema, &array)?))
}

/// Behind the C interface a name ends at its first NUL.
fn refuse_nul_names(object: &Bound<'_, PyAny>) -> PyResult<()> {
    let names: Vec<String> = object.getattr("schema")?.getattr("names")?.extract()?;
    match names.iter().find(|name| name.contains('\0')) {
        None => Ok(()),
        Some(name) => Err(PyValueError::new_err(format!(
            "column {name:?} has a NUL in its name, which Arrow cannot carry; rename it"
        ))),
    }
}

/// The C interface carries no buffer lengths, so offsets past the end of a buffer cannot be seen
/// behind it; pyarrow can look before.
fn validate_pyarrow(object: &Bound<'_, PyAny>) -> PyResult<()> {
    let module = object.get_type().module()?;
    let is_pyarrow = module.to_string().starts_with("pyarrow");
    if is_pyarrow && object.hasattr("schema")? {
        refuse_nul_names(object)?;
    }
    match object.getattr_opt("validate")? {
        Some(validate) if is_pyarrow => {
            let options = PyDict::new(object.py());
            options.set_item("full", true)?;
            validate.call((), Some(&options)).map(drop)
        }
        _ => Ok(()),
    }
}

/// Full validation: the C interface promises nothing about offsets, UTF-8 and views.
///
/// # Errors
/// `InvalidInput` naming the column, or what `attend` returned, which is called before each.
pub fn validate(batches: &[RecordBatch], attend: &mut dyn FnMut() -> Result<()>) -> Result<()> {
    for (number, batch) in batches.iter().enumerate() {
        for (field, column) in batch.schema_ref().fields().iter().zip(batch.columns()) {
            attend()?;
            if is_always_valid(column.data_type()) {
                continue;
            }
            column.to_data().validate_full().map_err(|e| {
                Error::invalid(format!(
                    "column {:?} of batch {number} is not valid Arrow data: {e}; fix the \
                     producer of the table",
                    field.name()
                ))
            })?;
        }
    }
    Ok(())
}

/// Types without offsets, dictionaries or text: lengths, checked at import, are all there is.
fn is_always_valid(data_type: &DataType) -> bool {
    data_type.is_primitive() || matches!(data_type, DataType::Null | DataType::Boolean)
}
