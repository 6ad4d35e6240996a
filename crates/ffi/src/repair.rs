//! Damaged caches: what is wrong with them, derived files written anew, and `NativeRemains`, the
//! samples that survive or are lost, batch by batch.

use std::path::PathBuf;
use std::sync::Arc;

use dataset_rt_runtime::resources::memory_bytes_max;
use dataset_rt_storage::repair::{
    LostSamples, Remains, Samples, Selection, Trust, examine, restore,
};
use dataset_rt_storage::store::{LocalStore, Store};
use dataset_rt_storage::{Error, Kind, Result};
use pyo3::prelude::*;

use crate::failure::{attended, guarded, to_py};
use crate::tables::NativeTable;

/// What is wrong with a cache, as JSON.
#[pyfunction]
pub fn examine_cache(
    py: Python<'_>,
    path: PathBuf,
    is_trusting: bool,
    thorough: bool,
) -> PyResult<String> {
    guarded(py, || {
        attended(py, |attend| examine(&path, trust(is_trusting), thorough, attend)?.to_json())
    })
}

/// Restores derived files in place; what was wrong, and what became of it, as JSON.
#[pyfunction]
pub fn restore_cache(py: Python<'_>, path: PathBuf) -> PyResult<String> {
    guarded(py, || {
        let store: Arc<dyn Store> = Arc::new(LocalStore);
        attended(py, |attend| restore(&store, &path, attend)?.to_json())
    })
}

/// Damaged numbers can claim more lost samples than a table of their ids has room for.
fn fits_memory(lost: &[LostSamples]) -> Result<()> {
    let rows = lost.iter().map(|lost| lost.stop.saturating_sub(lost.start));
    let rows = rows.fold(0, u64::saturating_add);
    let (needed, memory) = (rows.saturating_mul(8), memory_bytes_max());
    if needed <= memory {
        return Ok(());
    }
    let text = format!(
        "the ids of {rows} lost samples need {needed} bytes, and this process may use {memory}; the \
         ranges of lost samples are in the report"
    );
    Err(Error::new(Kind::Exhausted, text))
}

fn trust(is_trusting: bool) -> Trust {
    if is_trusting { Trust::Structure } else { Trust::Manifest }
}

/// Rows of a damaged cache that was examined before.
#[pyclass(module = "dataset_rt._native")]
pub struct NativeRemains {
    samples: Samples,
}

#[pymethods]
impl NativeRemains {
    /// The survivors, or with `is_lost` the others; `lost` are ranges of lost samples.
    #[new]
    fn new(
        py: Python<'_>,
        path: PathBuf,
        is_trusting: bool,
        lost: Vec<(u64, u64)>,
        is_lost: bool,
        with_ids: bool,
    ) -> PyResult<Self> {
        let range =
            |(start, stop)| LostSamples { start, stop, file: String::new(), reason: String::new() };
        let lost: Vec<_> = lost.into_iter().map(range).collect();
        let selection = if is_lost { Selection::Lost } else { Selection::Survivors { with_ids } };
        guarded(py, || {
            if is_lost {
                fits_memory(&lost).map_err(|e| to_py(py, &e))?;
            }
            let remains = attended(py, |attend| Remains::open(&path, trust(is_trusting), attend))?;
            let samples = Samples::new(remains, selection, lost).map_err(|e| to_py(py, &e))?;
            Ok(Self { samples })
        })
    }

    fn schema(&self) -> NativeTable {
        NativeTable::new(self.samples.schema(), Vec::new())
    }

    /// The next batch; `None` behind the last.
    fn next_batch(&mut self, py: Python<'_>) -> PyResult<Option<NativeTable>> {
        guarded(py, || {
            let samples = &mut self.samples;
            let batch = attended(py, |attend| samples.next_batch(attend))?;
            Ok(batch.map(|batch| NativeTable::new(self.samples.schema(), vec![batch])))
        })
    }
}
