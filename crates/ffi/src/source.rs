//! One source's iteration: Python items to rows of the core. Knows no file.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use arrow_array::RecordBatch;
use dataset_rt_runtime::{Profile, SourceClaim, Stage};
use dataset_rt_storage::format::schema::StoredSchema;
use dataset_rt_storage::write::{Ingest, Unfinished};
use dataset_rt_storage::{Error, Result};
use pyo3::exceptions::PyException;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyIterator, PyString, PyTuple};
use pyo3_arrow::PySchema;

use crate::ending::next_item;
use crate::failure::{source_error, to_py};
use crate::payload_in::with_bytes;
use crate::tables::{import_batches, is_arrow, validate};
use crate::values::ValueTypes;

/// The optional members of a source.
pub struct SourceMembers {
    /// Fingerprint and declared schema.
    pub claim: SourceClaim,
    /// Free text for the manifest.
    pub provenance: BTreeMap<String, String>,
    has_iter_from: bool,
}

impl SourceMembers {
    /// Reads them; a member that is missing or `None` counts as absent.
    ///
    /// # Errors
    /// Members of the wrong type, or what a property raised.
    pub fn read(source: &Bound<'_, PyAny>, source_name: &str) -> PyResult<Self> {
        let py = source.py();
        let member = |name: &str| -> PyResult<Option<Bound<'_, PyAny>>> {
            let value = source.getattr_opt(name).map_err(|e| wrap(py, source_name, 0, e))?;
            Ok(value.filter(|value| !value.is_none()))
        };
        let wrong = |name: &str, expected: &str| {
            let found = source.getattr(name).map_or_else(
                |_| String::new(),
                |value| value.get_type().name().map_or_else(|_| String::new(), |n| n.to_string()),
            );
            to_py(py, &Error::invalid(format!("source.{name} is {found}; expected {expected}")))
        };
        let fingerprint = member("fingerprint")?
            .map(|value| value.extract::<String>().map_err(|_| wrong("fingerprint", "a str")))
            .transpose()?;
        let schema = member("schema")?
            .map(|value| {
                let schema =
                    value.extract::<PySchema>().map_err(|_| wrong("schema", "a pyarrow.Schema"))?;
                StoredSchema::from_arrow(&schema.into_inner()).map_err(|e| to_py(py, &e))
            })
            .transpose()?;
        let provenance = member("provenance")?
            .map(|value| {
                py.get_type::<PyDict>()
                    .call1((value,))
                    .and_then(|dict| dict.extract::<BTreeMap<String, String>>())
                    .map_err(|_| wrong("provenance", "a mapping of str to str"))
            })
            .transpose()?
            .unwrap_or_default();
        let has_iter_from = member("iter_from")?.is_some();
        Ok(Self { claim: SourceClaim { fingerprint, schema }, provenance, has_iter_from })
    }

    /// Whether the source can yield what comes after these shards, and says that the samples in
    /// them are still its own.
    pub fn goes_on(&self, unfinished: &Unfinished) -> bool {
        self.has_iter_from
            && self.claim.fingerprint.is_some()
            && self.claim.fingerprint == unfinished.fingerprint
            && self.claim.schema.as_ref().is_none_or(|schema| *schema == unfinished.schema)
    }
}

/// Tells somebody how far the write is, a few times a second.
pub struct Progress<'py> {
    callback: Option<Bound<'py, PyAny>>,
    last: Instant,
    items: u64,
}

/// Between two reports; the terminal is redrawn no faster.
const REPORT_EVERY: Duration = Duration::from_millis(100);

impl<'py> Progress<'py> {
    /// Reports to `callback(samples, bytes, finished)`, if there is one.
    #[expect(clippy::disallowed_methods, reason = "progress is about wall time")]
    pub fn new(callback: Option<Bound<'py, PyAny>>) -> Self {
        Self { callback, last: Instant::now(), items: 0 }
    }

    /// Called after every item; looks at the clock for every 64th only.
    ///
    /// # Errors
    /// What the callback raised.
    #[expect(clippy::disallowed_methods, reason = "progress is about wall time")]
    pub fn step(&mut self, ingest: &Ingest) -> PyResult<()> {
        self.items += 1;
        if self.callback.is_none() || !self.items.is_multiple_of(64) {
            return Ok(());
        }
        let now = Instant::now();
        if now.duration_since(self.last) < REPORT_EVERY {
            return Ok(());
        }
        self.last = now;
        self.report(ingest.rows(), ingest.payload_bytes(), false)
    }

    /// Reports now.
    ///
    /// # Errors
    /// What the callback raised.
    pub fn report(&self, samples: u64, bytes: u64, finished: bool) -> PyResult<()> {
        match &self.callback {
            None => Ok(()),
            Some(callback) => callback.call1((samples, bytes, finished)).map(drop),
        }
    }
}

/// The items of a source, one after another.
pub struct SourceItems<'py> {
    name: String,
    iterator: Bound<'py, PyIterator>,
    types: ValueTypes,
    /// What is left of an Arrow batch, and the rows taken of the first: no more than one piece of
    /// a large batch waits in row groups.
    batches: VecDeque<RecordBatch>,
    rows_taken: usize,
    /// The batches of a table or stream that the source yielded, one made after the other.
    stream: Option<Bound<'py, PyIterator>>,
}

impl<'py> SourceItems<'py> {
    /// Calls `iter(source)`.
    ///
    /// # Errors
    /// `SourceError` when that raises.
    pub fn new(source: &Bound<'py, PyAny>, name: &str) -> PyResult<Self> {
        let iterator = source.try_iter().map_err(|e| wrap(source.py(), name, 0, e))?;
        Self::of(iterator, name)
    }

    /// Calls `source.iter_from(rows)`.
    ///
    /// # Errors
    /// `SourceError` when that raises.
    pub fn behind(source: &Bound<'py, PyAny>, name: &str, rows: u64) -> PyResult<Self> {
        let items = source.call_method1("iter_from", (rows,)).and_then(|items| items.try_iter());
        Self::of(items.map_err(|e| wrap(source.py(), name, rows, e))?, name)
    }

    fn of(iterator: Bound<'py, PyIterator>, name: &str) -> PyResult<Self> {
        let types = ValueTypes::new(iterator.py())?;
        Ok(Self {
            name: name.to_owned(),
            iterator,
            types,
            batches: VecDeque::new(),
            rows_taken: 0,
            stream: None,
        })
    }

    /// Takes one sample, or a piece of an Arrow batch, into `ingest`; false at the end of the
    /// source.
    ///
    /// # Errors
    /// `SourceError` when the source raises; `KeyboardInterrupt` and the like as they are;
    /// `InvalidInputError` for items that cannot be stored.
    pub fn take_next(&mut self, ingest: &mut Ingest, profile: &Profile) -> PyResult<bool> {
        let py = self.iterator.py();
        if let Some(batch) = self.batches.front() {
            let pushed = profile.time(Stage::Ingest, || ingest.push_piece(batch, self.rows_taken));
            self.rows_taken += pushed.map_err(|e| to_py(py, &e))?;
            if self.rows_taken >= batch.num_rows() {
                self.batches.pop_front();
                self.rows_taken = 0;
            }
            return Ok(true);
        }
        let raised = |error| wrap(py, &self.name, ingest.rows(), error);
        if let Some(stream) = &self.stream {
            match profile.time(Stage::Source, || next_item(stream)) {
                Some(batch) => self.batches = self.imported(&batch.map_err(raised)?, ingest)?,
                None => self.stream = None,
            }
            return Ok(true);
        }
        match profile.time(Stage::Source, || next_item(&self.iterator)) {
            None => return Ok(false),
            Some(item) => {
                let item = item.map_err(raised)?;
                profile.time(Stage::Ingest, || self.take(&item, ingest))?;
            }
        }
        Ok(true)
    }

    fn take(&mut self, item: &Bound<'py, PyAny>, ingest: &mut Ingest) -> PyResult<()> {
        let py = item.py();
        if let Ok(pair) = item.cast::<PyTuple>()
            && pair.len() == 2
        {
            return self.take_sample(pair, ingest);
        }
        if item.hasattr("__arrow_c_array__").unwrap_or(false) {
            self.batches = self.imported(item, ingest)?;
            return Ok(());
        }
        if is_arrow(item) {
            let batches = py
                .import("dataset_rt.sources.batches")?
                .call_method1("record_batches", (item,))
                .and_then(|batches| batches.try_iter());
            self.stream = Some(batches.map_err(|e| wrap(py, &self.name, ingest.rows(), e))?);
            return Ok(());
        }
        let found = item.get_type().fully_qualified_name()?;
        let error = Error::invalid(format!(
            "found {found}; expected CacheInput(data, metadata) or an Arrow record batch with a \
             payload column"
        ));
        Err(to_py(py, &self.placed(ingest, error)))
    }

    /// A foreign batch, shared and checked in full.
    fn imported(
        &self,
        item: &Bound<'py, PyAny>,
        ingest: &Ingest,
    ) -> PyResult<VecDeque<RecordBatch>> {
        let py = item.py();
        let (_, batches) = import_batches(item).map_err(|error| {
            if !error.is_instance_of::<PyException>(py) {
                return error;
            }
            let text = error.value(py).to_string();
            let placed = to_py(py, &self.placed(ingest, Error::invalid(text)));
            placed.set_cause(py, error.cause(py));
            placed
        })?;
        validate(&batches, &mut || Ok(())).map_err(|e| to_py(py, &self.placed(ingest, e)))?;
        Ok(batches.into())
    }

    fn take_sample(&self, pair: &Bound<'py, PyTuple>, ingest: &mut Ingest) -> PyResult<()> {
        let py = pair.py();
        let (data, metadata) = (pair.get_item(0)?, pair.get_item(1)?);
        with_bytes(&data, |bytes| ingest.push_payload(bytes))
            .map_err(|e| to_py(py, &self.placed(ingest, e)))?;
        self.take_metadata(&metadata, ingest)?;
        ingest.end_row().map_err(|e| to_py(py, &e))
    }

    fn take_metadata(&self, metadata: &Bound<'py, PyAny>, ingest: &mut Ingest) -> PyResult<()> {
        let py = metadata.py();
        if let Ok(dict) = metadata.cast::<PyDict>() {
            for (ordinal, (key, value)) in dict.iter().enumerate() {
                self.take_value(ordinal, &key, &value, ingest).map_err(|e| self.refused(py, &e))?;
            }
            return Ok(());
        }
        if !metadata.hasattr("items")? {
            let found = metadata.get_type().fully_qualified_name()?;
            let error =
                Error::invalid(format!("metadata is {found}; expected a mapping of str to values"));
            return Err(to_py(py, &self.placed(ingest, error)));
        }
        let raised = |ingest: &Ingest, error| wrap(py, &self.name, ingest.rows(), error);
        let items = metadata
            .call_method0("items")
            .and_then(|items| items.try_iter())
            .map_err(|e| raised(ingest, e))?;
        for (ordinal, item) in items.enumerate() {
            let (key, value): (Bound<'py, PyAny>, Bound<'py, PyAny>) =
                item.and_then(|item| item.extract()).map_err(|e| raised(ingest, e))?;
            self.take_value(ordinal, &key, &value, ingest).map_err(|e| self.refused(py, &e))?;
        }
        Ok(())
    }

    fn refused(&self, py: Python<'py>, error: &Error) -> PyErr {
        self.types.take_interrupt().unwrap_or_else(|| to_py(py, error))
    }

    fn take_value(
        &self,
        ordinal: usize,
        key: &Bound<'py, PyAny>,
        value: &Bound<'py, PyAny>,
        ingest: &mut Ingest,
    ) -> Result<()> {
        let text = match key.cast::<PyString>() {
            Ok(key) => key.to_str().map_err(|_| "a str with a lone surrogate".to_owned()),
            Err(_) => Err(key.get_type().fully_qualified_name().map_or_else(
                |_| "of an unknown type".to_owned(),
                |kind| format!("of type {kind}, number {ordinal} of its mapping"),
            )),
        };
        let key = text.map_err(|what| {
            self.placed(ingest, Error::invalid(format!("a metadata key is {what}; expected a str")))
        })?;
        let mut is_ours = false;
        let taken = self.types.with_cell(value, &mut |cell| {
            is_ours = true;
            ingest.cell(ordinal, key, cell)
        });
        taken.map_err(|error| {
            if is_ours { error } else { self.placed(ingest, error.within(format!("key {key:?}"))) }
        })
    }

    fn placed(&self, ingest: &Ingest, error: Error) -> Error {
        error.within(format!("source {:?}, sample {}", self.name, ingest.rows()))
    }
}

/// A source's exception as a `SourceError`; interrupts and exits pass through.
fn wrap(py: Python<'_>, name: &str, samples: u64, error: PyErr) -> PyErr {
    if error.is_instance_of::<PyException>(py) {
        source_error(py, name, samples, error)
    } else {
        error
    }
}
