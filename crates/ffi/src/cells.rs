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
use pyo3::types::{PyBytes, PyDict, PyList, PyString};
use pyo3_arrow::PyArray;

use crate::collector::CollectorPause;
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
        let values = keys
            .iter()
            .zip(columns)
            .map(|(key, column)| column_values(py, key.bind(py), column).map(Vec::into_iter));
        let mut values = values.collect::<PyResult<Vec<_>>>()?;
        let one = |_| {
            let dict = PyDict::new(py);
            for (key, values) in keys.iter().zip(&mut values) {
                if let Some(value) = values.next() {
                    dict.set_item(key, value)?;
                }
            }
            Ok(dict)
        };
        (0..rows).map(one).collect()
    };
    let _paused = CollectorPause::new(py);
    // Dictionaries and nested values of a user's table may still lie in a mapped file.
    store::guarded(|_| Ok(convert())).map_err(|e| to_py(py, &e))?
}

/// One object per value of `column`.
fn column_values<'py>(
    py: Python<'py>,
    key: &Bound<'py, PyString>,
    column: &ArrayRef,
) -> PyResult<Vec<Bound<'py, PyAny>>> {
    match column.data_type() {
        DataType::Null => each(py, column, |_| Ok(py.None().into_bound(py))),
        DataType::Boolean => {
            let values = column.as_boolean();
            each(py, column, |i| values.value(i).into_bound_py_any(py))
        }
        DataType::Int8 => numbers::<Int8Type>(py, column),
        DataType::Int16 => numbers::<Int16Type>(py, column),
        DataType::Int32 => numbers::<Int32Type>(py, column),
        DataType::Int64 => numbers::<Int64Type>(py, column),
        DataType::UInt8 => numbers::<UInt8Type>(py, column),
        DataType::UInt16 => numbers::<UInt16Type>(py, column),
        DataType::UInt32 => numbers::<UInt32Type>(py, column),
        DataType::UInt64 => numbers::<UInt64Type>(py, column),
        DataType::Float32 => numbers::<Float32Type>(py, column),
        DataType::Float64 => numbers::<Float64Type>(py, column),
        DataType::Utf8 => {
            let values = column.as_string::<i32>();
            texts(py, column, |i| values.value(i))
        }
        DataType::LargeUtf8 => {
            let values = column.as_string::<i64>();
            texts(py, column, |i| values.value(i))
        }
        DataType::Utf8View => {
            let values = column.as_string_view();
            texts(py, column, |i| values.value(i))
        }
        DataType::LargeBinary => {
            let values = column.as_binary::<i64>();
            each(py, column, |i| Ok(PyBytes::new(py, values.value(i)).into_any()))
        }
        _ => through_pyarrow(py, key, column),
    }
}

fn numbers<'py, T>(py: Python<'py>, column: &ArrayRef) -> PyResult<Vec<Bound<'py, PyAny>>>
where
    T: ArrowPrimitiveType,
    T::Native: IntoPyObject<'py>,
{
    let values: &PrimitiveArray<T> = column.as_primitive::<T>();
    each(py, column, |i| values.value(i).into_bound_py_any(py))
}

/// Texts that are told apart by length and ends; of each such class the last object is kept.
const TEXT_CLASSES: usize = 16;
/// Longer texts hardly repeat.
const REPEATED_BYTES_MAX: usize = 64;

/// Labels and the like repeat: they share objects, which are immutable.
fn texts<'py, 'a>(
    py: Python<'py>,
    column: &ArrayRef,
    value: impl Fn(usize) -> &'a str,
) -> PyResult<Vec<Bound<'py, PyAny>>> {
    let mut known: [Option<(&str, Bound<'py, PyAny>)>; TEXT_CLASSES] = Default::default();
    each(py, column, |i| {
        let text = value(i);
        let (first, last) = match text.as_bytes() {
            [first, .., last] if text.len() <= REPEATED_BYTES_MAX => (*first, *last),
            _ => return Ok(PyString::new(py, text).into_any()),
        };
        let class = text.len() + 3 * usize::from(first) + usize::from(last);
        let known = &mut known[class % TEXT_CLASSES];
        match known {
            Some((same, object)) if *same == text => Ok(object.clone()),
            _ => {
                let object = PyString::new(py, text).into_any();
                *known = Some((text, object.clone()));
                Ok(object)
            }
        }
    })
}

fn each<'py>(
    py: Python<'py>,
    column: &ArrayRef,
    mut value: impl FnMut(usize) -> PyResult<Bound<'py, PyAny>>,
) -> PyResult<Vec<Bound<'py, PyAny>>> {
    let mut values = Vec::with_capacity(column.len());
    let nulls = column.nulls();
    for i in 0..column.len() {
        let is_null = nulls.is_some_and(|nulls| nulls.is_null(i));
        values.push(if is_null { py.None().into_bound(py) } else { value(i)? });
    }
    Ok(values)
}

/// Dates, times, nested and all other types: pyarrow knows their Python forms.
fn through_pyarrow<'py>(
    py: Python<'py>,
    key: &Bound<'py, PyString>,
    column: &ArrayRef,
) -> PyResult<Vec<Bound<'py, PyAny>>> {
    let failed = |error: PyErr| no_python_form(py, key, error);
    let column = to_python_resolution(column)?;
    let column = PyArray::from_array_ref(column);
    let list = column.to_pyarrow(py)?.call_method0("to_pylist").map_err(failed)?.unbind();
    Ok(list.into_bound(py).cast_into::<PyList>()?.iter().collect())
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
