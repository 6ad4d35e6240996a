//! The native sample iterator: one window of the stream as `CachedSample` tuples.

use std::sync::{Arc, Mutex};

use arrow_array::{Array, ArrayRef};
use dataset_rt_runtime::{Block, Progress, Stream, WorkerPool};
use dataset_rt_storage::Error;
use pyo3::exceptions::{PyMemoryError, PyRuntimeError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString};

use crate::cells::metadata_dicts;
use crate::failure::{Attention, guarded, to_py, without_lock};
use crate::payloads::PayloadsAhead;
use crate::samples::SampleMaker;
use crate::shared::Shared;
use crate::single::Keys;

/// Samples made at once: with two objects each that Python's collector counts, fewer than it lets
/// be young before it looks at all of them.
const RUN_SAMPLES: usize = 256;

/// Iterates one window. Threads may share it: each sample goes to one of them.
#[pyclass(frozen, module = "dataset_rt._native")]
pub struct NativeSampleIterator {
    maker: Arc<SampleMaker>,
    keys: Keys,
    place: Shared<Place>,
    /// What a saved state says; `None` where somebody else counts.
    progress: Option<Arc<Progress>>,
    /// Samples that come before all of `place`: at most [`RUN_SAMPLES`], with payloads that were
    /// made together. Held for moments in which no Python runs, by who holds the interpreter lock.
    ready: Mutex<std::vec::IntoIter<Py<PyAny>>>,
}

struct Place {
    stream: Stream,
    block: Option<OpenBlock>,
}

/// A block being handed out.
struct OpenBlock {
    block: Block,
    next: usize,
    payloads: PayloadsAhead,
    /// Of the next samples, at most [`RUN_SAMPLES`].
    metadata: std::vec::IntoIter<PyResult<Py<PyDict>>>,
    /// Why the next sample is lost, when samples before it were made with it.
    failed: Option<PyErr>,
}

impl NativeSampleIterator {
    /// Iterates `stream`.
    pub fn new(
        maker: Arc<SampleMaker>,
        keys: Keys,
        stream: Stream,
        progress: Option<Arc<Progress>>,
    ) -> Self {
        let place = Shared::new(Place { stream, block: None });
        Self { maker, keys, place, progress, ready: Mutex::default() }
    }

    /// The next sample that is made already.
    fn pop(&self) -> Option<Py<PyAny>> {
        let sample = self.ready.try_lock().ok()?.next()?;
        if let Some(progress) = &self.progress {
            progress.take_one();
        }
        Some(sample)
    }

    /// Counts what was passed over, once no sample that was made before it is left.
    fn count(&self, place: &Place) {
        if let Some(progress) = &self.progress {
            progress.set(place.taken(), 0);
        }
    }

    fn keep(&self, py: Python<'_>, samples: Vec<Py<PyAny>>) -> PyResult<()> {
        let failed = |_| to_py(py, &Error::internal("this iterator failed before"));
        *self.ready.lock().map_err(failed)? = samples.into_iter();
        Ok(())
    }

    /// Brings the next block in hand; false at the end of the window.
    fn open_next(py: Python<'_>, place: &mut Place) -> PyResult<bool> {
        place.block = None;
        let Some(block) = Self::load_next(py, place)? else { return Ok(false) };
        let (payloads, metadata) =
            (PayloadsAhead::new(place.stream.pool()), Vec::new().into_iter());
        place.block = Some(OpenBlock { block, next: 0, payloads, metadata, failed: None });
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
            "an iterator over samples cannot be pickled or copied: send the dataset \
             itself, and call iter() on it there",
        ))
    }

    fn __next__<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        // Neither waits nor lets go of the interpreter lock: no door, no turn to take.
        if self.place.is_open()
            && let Some(sample) = self.pop()
        {
            return Ok(Some(sample.into_bound(py)));
        }
        guarded(py, || {
            let mut held = self.place.lock(py)?;
            let place = &mut *held;
            loop {
                // Left by the thread whose turn it was before.
                if let Some(sample) = self.pop() {
                    return Ok(Some(sample.into_bound(py)));
                }
                if let Some(open) = &mut place.block
                    && open.is_unfinished()
                {
                    let made = open.make_run(py, &self.maker, &self.keys);
                    if made.is_err() {
                        self.count(place);
                    }
                    self.keep(py, made?)?;
                    continue;
                }
                let opened = Self::open_next(py, place);
                if opened.is_err() {
                    self.count(place);
                }
                if !opened? {
                    self.progress.iter().for_each(|progress| progress.finish());
                    return Ok(None);
                }
            }
        })
    }
}

impl Place {
    /// Samples that were handed out, made to be, or passed over, whose errors were raised.
    fn taken(&self) -> u64 {
        let left = self.block.as_ref().map_or(0, OpenBlock::left);
        self.stream.taken().saturating_sub(left)
    }
}

impl OpenBlock {
    /// Samples whose turn is still to come.
    fn left(&self) -> u64 {
        (self.block.len() - self.next) as u64 + u64::from(self.failed.is_some())
    }

    fn is_unfinished(&self) -> bool {
        self.next < self.block.len() || self.failed.is_some()
    }

    /// Makes the next samples, at least one: those whose payloads were made together.
    fn make_run(
        &mut self,
        py: Python<'_>,
        maker: &SampleMaker,
        keys: &[Py<PyString>],
    ) -> PyResult<Vec<Py<PyAny>>> {
        if let Some(error) = self.failed.take() {
            return Err(error);
        }
        if self.metadata.len() == 0 {
            self.metadata = self.convert(py, keys)?.into_iter();
        }
        let mut samples = Vec::with_capacity(self.metadata.len());
        loop {
            match self.make_next(py, maker) {
                Ok(sample) => samples.push(sample.unbind()),
                Err(error) if samples.is_empty() => return Err(error),
                Err(error) => {
                    self.failed = Some(error);
                    return Ok(samples);
                }
            }
            // What can fail begins a run.
            let is_shown = matches!(self.metadata.as_slice().first(), Some(Ok(_)));
            if !is_shown || self.payloads.made() == 0 {
                return Ok(samples);
            }
        }
    }

    /// Metadata of the next samples. Nothing has happened when it is interrupted.
    fn convert(
        &self,
        py: Python<'_>,
        keys: &[Py<PyString>],
    ) -> PyResult<Vec<PyResult<Py<PyDict>>>> {
        let dicts = |from: usize, count: usize| {
            let columns = self.block.columns().iter().map(|column| column.slice(from, count));
            metadata_dicts(py, keys, &columns.collect::<Vec<ArrayRef>>(), count)
        };
        let count = RUN_SAMPLES.min(self.block.len() - self.next);
        match dicts(self.next, count) {
            Ok(dicts) => Ok(dicts.into_iter().map(|dict| Ok(dict.unbind())).collect()),
            // Only the samples whose values cannot be shown are lost.
            Err(error) if has_no_python_form(py, &error) => {
                let lost = || to_py(py, &Error::internal("one row gave no metadata"));
                let one = |i| Ok(dicts(i, 1)?.pop().ok_or_else(lost)?.unbind());
                Ok((self.next..self.next + count).map(one).collect())
            }
            Err(error) => Err(error),
        }
    }

    fn make_next<'py>(
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
