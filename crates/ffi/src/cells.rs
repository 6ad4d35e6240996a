//! Metadata as Python objects: the columns of a block as dicts, single cells. Knows no payload.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{
    Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type, TimestampMicrosecondType,
    TimestampNanosecondType, UInt8Type, UInt16Type, UInt32Type, UInt64Type,
};
use arrow_array::{Array, ArrayRef, ArrowPrimitiveType, PrimitiveArray};
use arrow_schema::{DataType, TimeUnit};
use dataset_rt_storage::read::Cell;
use dataset_rt_storage::{Error, store};
use pyo3::IntoPyObjectExt;
use pyo3::exceptions::{PyOverflowError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyDict, PyList, PyString};
use pyo3_arrow::PyArray;

use crate::failure::to_py;

/// One value. Python checks that text is UTF-8.
///
/// # Errors
/// When it is not, or memory runs out.
pub fn cell_object<'py>(py: Python<'py>, cell: Cell<'_>) -> PyResult<Bound<'py, PyAny>> {
    match cell {
        Cell::Null => Ok(py.None().into_bound(py)),
        Cell::Bool(value) => value.into_bound_py_any(py),
        Cell::Signed(value) => value.into_bound_py_any(py),
        Cell::Unsigned(value) => value.into_bound_py_any(py),
        Cell::Float(value) => value.into_bound_py_any(py),
        Cell::Text(bytes) => PyString::from_bytes(py, bytes).map(Bound::into_any),
        Cell::Binary(bytes) => bytes.into_bound_py_any(py),
    }
}

/// One dict per row of `columns`, with `keys` as keys.
///
/// # Errors
/// When a value has no Python form.
pub fn metadata_dicts<'py>(
    py: Python<'py>,
    keys: &[Py<PyString>],
    columns: &[ArrayRef],
    rows: usize,
) -> PyResult<Vec<Bound<'py, PyDict>>> {
    let convert = || {
        let dicts: Vec<_> = (0..rows).map(|_| PyDict::new(py)).collect();
        for (key, column) in keys.iter().zip(columns) {
            set_column(py, &dicts, key.bind(py), column)?;
        }
        Ok(dicts)
    };
    // Dictionaries and nested values of a user's table may still lie in a mapped file.
    store::guarded(|_| Ok(convert())).map_err(|e| to_py(py, &e))?
}

fn set_column<'py>(
    py: Python<'py>,
    dicts: &[Bound<'py, PyDict>],
    key: &Bound<'py, PyString>,
    column: &ArrayRef,
) -> PyResult<()> {
    match column.data_type() {
        DataType::Null => dicts.iter().try_for_each(|dict| dict.set_item(key, py.None())),
        DataType::Boolean => {
            let values = column.as_boolean();
            set_each(py, dicts, key, column, |i| Ok(PyBool::new(py, values.value(i)).to_owned()))
        }
        DataType::Int8 => set_numbers::<Int8Type>(py, dicts, key, column),
        DataType::Int16 => set_numbers::<Int16Type>(py, dicts, key, column),
        DataType::Int32 => set_numbers::<Int32Type>(py, dicts, key, column),
        DataType::Int64 => set_numbers::<Int64Type>(py, dicts, key, column),
        DataType::UInt8 => set_numbers::<UInt8Type>(py, dicts, key, column),
        DataType::UInt16 => set_numbers::<UInt16Type>(py, dicts, key, column),
        DataType::UInt32 => set_numbers::<UInt32Type>(py, dicts, key, column),
        DataType::UInt64 => set_numbers::<UInt64Type>(py, dicts, key, column),
        DataType::Float32 => set_numbers::<Float32Type>(py, dicts, key, column),
        DataType::Float64 => set_numbers::<Float64Type>(py, dicts, key, column),
        DataType::Utf8 => {
            let values = column.as_string::<i32>();
            set_each(py, dicts, key, column, |i| Ok(PyString::new(py, values.value(i))))
        }
        DataType::LargeUtf8 => {
            let values = column.as_string::<i64>();
            set_each(py, dicts, key, column, |i| Ok(PyString::new(py, values.value(i))))
        }
        DataType::Utf8View => {
            let values = column.as_string_view();
            set_each(py, dicts, key, column, |i| Ok(PyString::new(py, values.value(i))))
        }
        DataType::LargeBinary => {
            let values = column.as_binary::<i64>();
            set_each(py, dicts, key, column, |i| Ok(PyBytes::new(py, values.value(i))))
        }
        _ => set_through_pyarrow(py, dicts, key, column),
    }
}

fn set_numbers<'py, T>(
    py: Python<'py>,
    dicts: &[Bound<'py, PyDict>],
    key: &Bound<'py, PyString>,
    column: &ArrayRef,
) -> PyResult<()>
where
    T: ArrowPrimitiveType,
    T::Native: IntoPyObject<'py>,
{
    let values: &PrimitiveArray<T> = column.as_primitive::<T>();
    set_each(py, dicts, key, column, |i| values.value(i).into_bound_py_any(py))
}

fn set_each<'py, V: IntoPyObject<'py>>(
    py: Python<'py>,
    dicts: &[Bound<'py, PyDict>],
    key: &Bound<'py, PyString>,
    column: &ArrayRef,
    value: impl Fn(usize) -> PyResult<V>,
) -> PyResult<()> {
    let nulls = column.nulls();
    for (i, dict) in dicts.iter().enumerate() {
        if nulls.is_some_and(|nulls| nulls.is_null(i)) {
            dict.set_item(key, py.None())?;
        } else {
            dict.set_item(key, value(i)?)?;
        }
    }
    Ok(())
}

/// Dates, times, nested and all other types: pyarrow knows their Python forms.
fn set_through_pyarrow<'py>(
    py: Python<'py>,
    dicts: &[Bound<'py, PyDict>],
    key: &Bound<'py, PyString>,
    column: &ArrayRef,
) -> PyResult<()> {
    let failed = |error: PyErr| no_python_form(py, key, error);
    let column = to_python_resolution(column)?;
    let column = PyArray::from_array_ref(column);
    let list = column.to_pyarrow(py)?.call_method0("to_pylist").map_err(failed)?;
    for (dict, value) in dicts.iter().zip(list.cast_into::<PyList>()?) {
        dict.set_item(key, value)?;
    }
    Ok(())
}

/// Dates after the year 9999, for instance: the cache holds what Python cannot.
fn no_python_form(py: Python<'_>, key: &Bound<'_, PyString>, error: PyErr) -> PyErr {
    // Conversion runs Python code: an interrupt, or memory running out, is not about the value.
    if !error.is_instance_of::<PyValueError>(py) && !error.is_instance_of::<PyOverflowError>(py) {
        return error;
    }
    let name = key.to_string();
    let text = format!(
        "column {name:?} holds a value without a Python form ({}); drop the row or the column from \
         the table, or read it as Arrow",
        error.value(py)
    );
    let typed = to_py(py, &Error::unsupported(text));
    typed.set_cause(py, Some(error));
    typed
}

/// Python times count microseconds: nanoseconds are cut as Polars does, instants to the microsecond
/// that they lie in, also before 1970.
fn to_python_resolution(column: &ArrayRef) -> PyResult<ArrayRef> {
    let target = match column.data_type() {
        DataType::Timestamp(TimeUnit::Nanosecond, zone) => {
            let micros: PrimitiveArray<TimestampMicrosecondType> = column
                .as_primitive::<TimestampNanosecondType>()
                .unary(|nanos| nanos.div_euclid(1000));
            return Ok(Arc::new(micros.with_timezone_opt(zone.clone())));
        }
        DataType::Duration(TimeUnit::Nanosecond) => DataType::Duration(TimeUnit::Microsecond),
        DataType::Time64(TimeUnit::Nanosecond) => DataType::Time64(TimeUnit::Microsecond),
        _ => return Ok(column.clone()),
    };
    arrow_cast::cast(column, &target)
        .map_err(|e| pyo3::exceptions::PyValueError::new_err(e.to_string()))
}
