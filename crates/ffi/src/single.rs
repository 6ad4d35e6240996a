//! Single samples without letting go of the interpreter lock. Decides nothing: what is `None` here
//! goes the long way, which knows every error.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use dataset_rt_runtime::{Dataset, SampleAtHand, Snapshot};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyInt, PyString};

use crate::cells::cell_object;
use crate::collector::CollectorPause;
use crate::payloads::object_at_hand;
use crate::samples::{SampleMaker, column_keys};

/// Interned names of the columns of the table that was last read.
#[derive(Default)]
pub struct TableKeys {
    /// Held for moments in which no Python runs, by who holds the interpreter lock.
    last: Mutex<Option<(Weak<Snapshot>, Keys)>>,
}

/// The keys of the metadata dicts of one table.
pub type Keys = Arc<[Py<PyString>]>;

impl TableKeys {
    /// Those of the table of `snapshot`.
    pub fn of(&self, py: Python<'_>, snapshot: &Arc<Snapshot>) -> Keys {
        let lock = || self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((known, keys)) = &*lock()
            && std::ptr::eq(known.as_ptr(), Arc::as_ptr(snapshot))
        {
            return Arc::clone(keys);
        }
        let delivered = snapshot.table().delivered();
        let names = delivered.iter().map(|field| field.name().as_str());
        let keys: Keys = column_keys(py, names).into();
        *lock() = Some((Arc::downgrade(snapshot), Arc::clone(&keys)));
        keys
    }
}

/// An exact `int` of 64 bits: anything else is looked at more closely on the long way.
fn plain_int(value: &Bound<'_, PyAny>) -> Option<u64> {
    value.cast_exact::<PyInt>().ok()?.extract().ok()
}

/// One physical sample.
pub fn physical<'py>(
    maker: &SampleMaker,
    keys: &[Py<PyString>],
    dataset: &Dataset,
    cache_id: &Bound<'py, PyAny>,
    sample_id: &Bound<'py, PyAny>,
) -> Option<Bound<'py, PyAny>> {
    let py = cache_id.py();
    let (cache_id, sample_id) = (plain_int(cache_id)?, plain_int(sample_id)?);
    let _paused = CollectorPause::new(py);
    dataset.physical_at_hand(cache_id, sample_id, |found| sample(py, maker, keys, found))
}

/// The sample at one index of the next epoch.
pub fn at_index<'py>(
    maker: &SampleMaker,
    keys: &TableKeys,
    dataset: &Dataset,
    index: &Bound<'py, PyAny>,
) -> Option<Bound<'py, PyAny>> {
    let py = index.py();
    let index = plain_int(index)?;
    let (snapshot, share) = dataset.next_epoch().ok()?;
    let position = (index < share.rows()).then(|| share.position(index))?;
    let keys = keys.of(py, &snapshot);
    let _paused = CollectorPause::new(py);
    snapshot.at_hand(position, |found| sample(py, maker, &keys, found))
}

/// The tuple of a sample. An error of Python (no memory, text that is no text) is met again on
/// the long way.
fn sample<'py>(
    py: Python<'py>,
    maker: &SampleMaker,
    keys: &[Py<PyString>],
    found: &SampleAtHand<'_>,
) -> Option<Bound<'py, PyAny>> {
    let metadata = PyDict::new(py);
    for (key, &cell) in keys.iter().zip(&found.cells) {
        metadata.set_item(key, cell_object(py, cell).ok()?).ok()?;
    }
    let data = object_at_hand(py, maker.zero_copy, &found.payload)?;
    maker.make(py, data, metadata, found.identity).ok()
}
