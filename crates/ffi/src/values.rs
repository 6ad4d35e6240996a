//! One metadata value from Python to a cell. Knows no column: types are compared in the core.

use std::cell::RefCell;

use dataset_rt_storage::format::schema::check_zone;
use dataset_rt_storage::write::Cell;
use dataset_rt_storage::{Error, Result};
use pyo3::exceptions::PyException;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyFloat, PyInt, PyString, PyType};

use crate::payload_in::is_numpy_scalar;

/// Python types and values that cells are recognised by, looked up once per write.
pub struct ValueTypes {
    date: Py<PyType>,
    datetime: Py<PyType>,
    epoch_naive: Py<PyAny>,
    epoch_utc: Py<PyAny>,
    utc: Py<PyAny>,
    /// What Python raised that is no `Exception`: an interrupt, which must not become a refusal.
    interrupt: RefCell<Option<PyErr>>,
}

impl ValueTypes {
    /// Imports what is needed.
    ///
    /// # Errors
    /// When `datetime` is not importable.
    pub fn new(py: Python<'_>) -> PyResult<Self> {
        let module = py.import("datetime")?;
        let class = |name: &str| -> PyResult<Py<PyType>> {
            Ok(module.getattr(name)?.cast_into::<PyType>()?.unbind())
        };
        let datetime = module.getattr("datetime")?;
        let utc = module.getattr("timezone")?.getattr("utc")?;
        Ok(Self {
            date: class("date")?,
            datetime: class("datetime")?,
            epoch_naive: datetime.call1((1970, 1, 1))?.unbind(),
            epoch_utc: datetime.call1((1970, 1, 1, 0, 0, 0, 0, &utc))?.unbind(),
            utc: utc.unbind(),
            interrupt: RefCell::new(None),
        })
    }

    /// The interrupt that ended a conversion, if one did.
    pub fn take_interrupt(&self) -> Option<PyErr> {
        self.interrupt.borrow_mut().take()
    }

    fn failed(&self, py: Python<'_>, error: PyErr) -> Error {
        let text = format!("reading the value failed: {}", error.value(py));
        if !error.is_instance_of::<PyException>(py) {
            *self.interrupt.borrow_mut() = Some(error);
        }
        Error::invalid(text)
    }

    /// Calls `take` with the cell for `value`.
    ///
    /// # Errors
    /// `InvalidInput` for values that cannot be stored, or what `take` returned.
    pub fn with_cell(
        &self,
        value: &Bound<'_, PyAny>,
        take: &mut dyn FnMut(Cell<'_>) -> Result<()>,
    ) -> Result<()> {
        if value.is_none() {
            return take(Cell::Null);
        }
        if let Ok(flag) = value.cast_exact::<PyBool>() {
            return take(Cell::Bool(flag.is_true()));
        }
        if let Ok(text) = value.cast::<PyString>() {
            let text = text.to_str().map_err(|_| {
                Error::invalid(
                    "found a str with a lone surrogate; expected text that UTF-8 can hold; \
                     re-decode it or pass it in the payload",
                )
            })?;
            return take(Cell::Str(text));
        }
        // Asking for NumPy's classes costs more than all the rest of a plain number.
        let is_plain =
            value.is_exact_instance_of::<PyInt>() || value.is_exact_instance_of::<PyFloat>();
        if !is_plain && is_numpy_scalar(value) {
            return self.with_numpy_scalar(value, take);
        }
        if value.is_instance_of::<PyInt>() {
            if let Ok(number) = value.extract::<i64>() {
                return take(Cell::Int(number));
            }
            // Only a declared uint64 column holds more.
            let number: u64 = value.extract().map_err(|_| {
                Error::invalid(format!(
                    "found the int {}; expected a value within int64, or a declared uint64; \
                     store it as str or float",
                    value.str().map_or_else(|_| String::new(), |text| text.to_string())
                ))
            })?;
            return take(Cell::UInt(number));
        }
        if value.is_instance_of::<PyFloat>() {
            let number: f64 = value.extract().map_err(|e| self.failed(value.py(), e))?;
            return take(Cell::Float(number));
        }
        self.with_time(value, take)
    }

    fn with_time(
        &self,
        value: &Bound<'_, PyAny>,
        take: &mut dyn FnMut(Cell<'_>) -> Result<()>,
    ) -> Result<()> {
        let py = value.py();
        let failed = |e: PyErr| self.failed(py, e);
        if value.is_instance(self.datetime.bind(py)).map_err(failed)? {
            let zone = self.zone(value)?;
            let epoch = if zone.is_some() { &self.epoch_utc } else { &self.epoch_naive };
            let micros = micros_since(value, epoch.bind(py)).map_err(failed)?;
            return take(Cell::Timestamp { micros, zone: zone.as_deref() });
        }
        if value.is_instance(self.date.bind(py)).map_err(failed)? {
            let ordinal: i32 = value
                .call_method0("toordinal")
                .and_then(|ordinal| ordinal.extract())
                .map_err(failed)?;
            // date(1970, 1, 1).toordinal()
            return take(Cell::Date(ordinal - 719_163));
        }
        Err(unsupported(value))
    }

    /// The name of a datetime's zone: an IANA key or `UTC`.
    fn zone(&self, value: &Bound<'_, PyAny>) -> Result<Option<String>> {
        let py = value.py();
        let failed = |e: PyErr| self.failed(py, e);
        let zone = value.getattr("tzinfo").map_err(failed)?;
        if zone.is_none() {
            return Ok(None);
        }
        // timezone(timedelta(0)) equals timezone.utc.
        if zone.eq(self.utc.bind(py)).map_err(failed)? {
            return Ok(Some("UTC".to_owned()));
        }
        for attribute in ["key", "zone"] {
            if let Ok(name) = zone.getattr(attribute).and_then(|name| name.extract::<String>()) {
                check_zone(&name)?;
                return Ok(Some(name));
            }
        }
        Err(Error::invalid(format!(
            "found a datetime with the time zone {}; expected UTC or a zoneinfo.ZoneInfo \
             (Polars cannot show offsets); convert it with astimezone",
            zone.repr().map_or_else(|_| "?".to_owned(), |text| text.to_string())
        )))
    }

    /// NumPy scalars count as their Python twins.
    fn with_numpy_scalar(
        &self,
        value: &Bound<'_, PyAny>,
        take: &mut dyn FnMut(Cell<'_>) -> Result<()>,
    ) -> Result<()> {
        let py = value.py();
        let failed = |e: PyErr| self.failed(py, e);
        let class = value.get_type().name().map_err(failed)?;
        let mut twin = value.call_method0("item").map_err(failed)?;
        if class == "datetime64" && twin.is_instance_of::<PyInt>() {
            // Finer than a Python datetime: taken when it is whole microseconds.
            let micros = value.call_method1("astype", ("datetime64[us]",)).map_err(failed)?;
            if !micros.eq(value).map_err(failed)? {
                return Err(Error::invalid(format!(
                    "found {}, finer than a microsecond; expected a time that a Python datetime \
                     holds; declare a timestamp[ns] column in an Arrow source instead",
                    value.str().map_or_else(|_| String::new(), |text| text.to_string())
                )));
            }
            twin = micros.call_method0("item").map_err(failed)?;
        }
        if is_numpy_scalar(&twin) {
            return Err(unsupported(value));
        }
        self.with_cell(&twin, take)
    }
}

fn micros_since(value: &Bound<'_, PyAny>, epoch: &Bound<'_, PyAny>) -> PyResult<i64> {
    let delta = value.sub(epoch)?;
    let days: i64 = delta.getattr("days")?.extract()?;
    let seconds: i64 = delta.getattr("seconds")?.extract()?;
    let micros: i64 = delta.getattr("microseconds")?.extract()?;
    // A timedelta spans at most 10^9 days: far inside i64.
    Ok((days * 86_400 + seconds) * 1_000_000 + micros)
}

fn unsupported(value: &Bound<'_, PyAny>) -> Error {
    let found = value
        .get_type()
        .fully_qualified_name()
        .map_or_else(|_| "an unknown type".to_owned(), |name| name.to_string());
    Error::invalid(format!(
        "found {found}; expected bool, int, float, str, date, datetime or None; convert it, or \
         put it into the payload"
    ))
}
