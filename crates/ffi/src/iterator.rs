//! The native sample iterator: one window of the stream as `CachedSample` tuples.

use std::sync::Arc;

use arrow_array::{Array, ArrayRef};
use dataset_rt_runtime::{Block, Stream, WorkerPool};
use dataset_rt_storage::Error;
use pyo3::exceptions::{PyMemoryError, PyRuntimeError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString};

use crate::cells::metadata_dicts;
use crate::failure::{Attention, guarded, to_py, without_lock};
use crate::payloads::PayloadsAhead;
use crate::samples::SampleMaker;
use crate::shared::Shared;

/// Iterates one window. Threads may share it: each sample goes to one of them.
#[pyclass(frozen, module = "dataset_rt._native")]
pub struct NativeSampleIterator {
    maker: Arc<SampleMaker>,
    keys: Vec<Py<PyString>>,
    place: Shared<Place>,
}

struct Place {
    stream: Stream,
    /// A block whose conversion was interrupted; it is converted again, not lost.
    loaded: Option<Block>,
    block: Option<OpenBlock>,
}

/// A block being handed out.
struct OpenBlock {
    block: Block,
    next: usize,
    payloads: PayloadsAhead,
    metadata: std::vec::IntoIter<PyResult<Py<PyDict>>>,
}

impl NativeSampleIterator {
    /// Iterates `stream`.
    pub fn new(maker: Arc<SampleMaker>, keys: Vec<Py<PyString>>, stream: Stream) -> Self {
        Self { maker, keys, place: Shared::new(Place { stream, loaded: None, block: None }) }
    }

    fn one_dict(&self, py: Python<'_>, block: &Block, i: usize) -> PyResult<Py<PyDict>> {
        let columns: Vec<ArrayRef> = block.columns().iter().map(|c| c.slice(i, 1)).collect();
        let mut dicts = metadata_dicts(py, &self.keys, &columns, 1)?;
        let dict = dicts.pop().map(Bound::unbind);
        dict.ok_or_else(|| to_py(py, &Error::internal("one row gave no metadata")))
    }

    /// Brings the next block in hand; false at the end of the window.
    fn open_next(&self, py: Python<'_>, place: &mut Place) -> PyResult<bool> {
        place.block = None;
        let block = match place.loaded.take() {
            Some(block) => block,
            None => match Self::load_next(py, place)? {
                Some(block) => block,
                None => return Ok(false),
            },
        };
        let converted = metadata_dicts(py, &self.keys, block.columns(), block.len());
        let metadata: Vec<PyResult<Py<PyDict>>> = match converted {
            Ok(dicts) => dicts.into_iter().map(|dict| Ok(dict.unbind())).collect(),
            // Only the samples whose values cannot be shown are lost.
            Err(error) if has_no_python_form(py, &error) => {
                (0..block.len()).map(|i| self.one_dict(py, &block, i)).collect()
            }
            Err(error) => {
                place.loaded = Some(block);
                return Err(error);
            }
        };
        let payloads = PayloadsAhead::new(place.stream.pool());
        place.block = Some(OpenBlock { block, next: 0, payloads, metadata: metadata.into_iter() });
        Ok(true)
    }

    fn load_next(py: Python<'_>, place: &mut Place) -> PyResult<Option<Block>> {
        let mut attention = Attention::new();
        let stream = &mut place.stream;
        let attend = &mut attention;
        let next = without_lock(py, move || stream.next_block(&mut || attend.check()));
        next.map_err(|error| attention.explain(py, &error))
    }
}

/// Whether a conversion failed because of a value, not because somebody interrupted it.
fn has_no_python_form(py: Python<'_>, error: &PyErr) -> bool {
    error.is_instance_of::<PyRuntimeError>(py) && !error.is_instance_of::<PyMemoryError>(py)
}

#[pymethods]
impl NativeSampleIterator {
    fn __iter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    /// Refuses pickling and copying.
    fn __reduce__(&self) -> PyResult<()> {
        Err(PyTypeError::new_err(
            "an iterator over samples cannot be pickled or copied: send cache_paths and \
             reader_config, open the dataset there, and call iter() on it",
        ))
    }

    fn __next__<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        guarded(py, || {
            let mut held = self.place.lock(py)?;
            let place = &mut *held;
            loop {
                if let Some(open) = &mut place.block
                    && open.metadata.len() > 0
                {
                    return open.deliver(py, &self.maker).map(Some);
                }
                if !self.open_next(py, place)? {
                    return Ok(None);
                }
            }
        })
    }
}

impl OpenBlock {
    fn deliver<'py>(
        &mut self,
        py: Python<'py>,
        maker: &SampleMaker,
    ) -> PyResult<Bound<'py, PyAny>> {
        let i = self.next;
        let data = self.payloads.next(py, maker.zero_copy, &mut self.block, i);
        if data.is_err() && self.block.is_pending(i) {
            // Interrupted: the next call tries again. What is damaged is passed over.
            return data;
        }
        self.next += 1;
        let metadata = self.metadata.next();
        let lost = || Err(to_py(py, &Error::internal(format!("sample {i} has no metadata"))));
        let (data, metadata) = (data?, metadata.unwrap_or_else(lost)?);
        maker.make(py, data, metadata.into_bound(py), self.block.identity(i))
    }
}

/// All samples of a block at once, for random access.
///
/// # Errors
/// Damaged payloads, or when memory runs out.
pub fn block_samples<'py>(
    py: Python<'py>,
    maker: &SampleMaker,
    keys: &[Py<PyString>],
    pool: &Arc<WorkerPool>,
    mut block: Block,
) -> PyResult<Vec<Bound<'py, PyAny>>> {
    let dicts = metadata_dicts(py, keys, block.columns(), block.len())?;
    let mut samples = Vec::with_capacity(block.len());
    let mut payloads = PayloadsAhead::new(pool);
    for (i, metadata) in dicts.into_iter().enumerate() {
        let data = payloads.next(py, maker.zero_copy, &mut block, i)?;
        samples.push(maker.make(py, data, metadata, block.identity(i))?);
    }
    Ok(samples)
}
