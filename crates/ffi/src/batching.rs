//! `NativeBatching`: a stretch of the stream cut into one rank's batches, for others who read them.
//! Arithmetic on positions; reads nothing.

use std::sync::Arc;

use dataset_rt_runtime::{Batching, Progress};
use pyo3::prelude::*;

/// The batches of one rank in a stretch of the stream.
#[pyclass(frozen, module = "dataset_rt._native")]
pub struct NativeBatching {
    batching: Batching,
    /// Told what was taken, where the stretch is a window that was claimed.
    progress: Option<Arc<Progress>>,
}

impl NativeBatching {
    /// Shows `batching` to Python.
    pub const fn new(batching: Batching, progress: Option<Arc<Progress>>) -> Self {
        Self { batching, progress }
    }
}

#[pymethods]
impl NativeBatching {
    /// First position of the claimed window, the one that reading begins at, the one behind the
    /// last, and the epoch; `None` for a stretch that nobody claimed.
    #[getter]
    fn window(&self) -> Option<(u64, u64, u64, u64)> {
        self.progress.as_ref().map(|progress| {
            let window = progress.window();
            (window.start, window.begin(), window.end(), window.epoch)
        })
    }

    /// Batches, on all ranks the same.
    #[getter]
    fn batches(&self) -> u64 {
        self.batching.batches
    }

    /// Samples of this rank in all batches.
    #[getter]
    fn rows(&self) -> u64 {
        self.batching.share.rows()
    }

    /// Samples of this rank in every batch but the last ones.
    #[getter]
    fn rows_full(&self) -> u64 {
        self.batching.rows
    }

    /// Stream position of the first step of a batch; behind the last batch, the end.
    fn begin_of(&self, number: u64) -> u64 {
        self.batching.begin_of(number)
    }

    /// Stream positions of this rank's samples in a batch.
    fn positions_of(&self, number: u64) -> Vec<u64> {
        self.batching.batch(number).map(|i| self.batching.share.position(i)).collect()
    }

    /// The consumer took the first `batches` batches: a saved state says so from now on.
    fn take(&self, batches: u64) {
        if let Some(progress) = &self.progress {
            progress.set(self.batching.batch(batches).start, batches);
        }
    }
}
