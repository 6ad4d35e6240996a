//! `NativeCache`: one cache opened for inspection, without a runtime.

use std::path::PathBuf;
use std::sync::Arc;

use dataset_rt_runtime::Face;
use dataset_rt_storage::read::{Cache, Fetcher, OpenOptions};
use dataset_rt_storage::{Error, Kind};
use pyo3::prelude::*;

use crate::faces::NativeFace;
use crate::failure::{apart, attended, detached, guarded, to_py};
use crate::payload_out::NativePayload;
use crate::payloads::PIECE_BYTES;
use crate::tables::NativeTable;

/// A read-only view of one cache.
#[pyclass(frozen, module = "dataset_rt._native")]
pub struct NativeCache {
    cache: Arc<Cache>,
}

#[pymethods]
impl NativeCache {
    #[new]
    fn new(py: Python<'_>, path: PathBuf) -> PyResult<Self> {
        guarded(py, || {
            let cache = detached(py, || Cache::open(&path, &OpenOptions::default()))?;
            Ok(Self { cache: Arc::new(cache) })
        })
    }

    #[getter]
    fn path(&self) -> PathBuf {
        self.cache.path().to_path_buf()
    }

    #[getter]
    fn num_samples(&self) -> u64 {
        self.cache.rows()
    }

    #[getter]
    fn cache_id(&self) -> u64 {
        self.cache.cache_id()
    }

    #[getter]
    fn num_shards(&self) -> usize {
        self.cache.shard_count()
    }

    fn manifest_json(&self, py: Python<'_>) -> PyResult<String> {
        guarded(py, || {
            serde_json::to_string(self.cache.manifest())
                .map_err(|e| to_py(py, &Error::internal(e.to_string())))
        })
    }

    fn schema(&self) -> NativeTable {
        NativeTable::new(self.cache.schema().metadata_schema(), Vec::new())
    }

    fn metadata(&self, py: Python<'_>) -> PyResult<NativeTable> {
        guarded(py, || {
            let batches = attended(py, |attend| self.cache.metadata_batches_attended(attend))?;
            Ok(NativeTable::new(self.cache.schema().metadata_schema(), batches))
        })
    }

    fn face(&self) -> NativeFace {
        let stored = self.cache.schema().columns().iter().map(|column| column.name.clone());
        let columns = std::iter::once("sample_id".to_owned()).chain(stored);
        let columns = columns.chain(["payload".to_owned()]).collect();
        NativeFace::new(Face::of_cache(Arc::clone(&self.cache)), Some(columns))
    }

    fn shard(&self, py: Python<'_>, i: usize) -> PyResult<NativeTable> {
        guarded(py, || {
            let cache = Arc::clone(&self.cache);
            let (schema, batches) = apart(py, move |_| cache.shard_batches(i))?;
            Ok(NativeTable::new(schema, batches))
        })
    }

    fn payload(&self, py: Python<'_>, i: i64) -> PyResult<NativePayload> {
        guarded(py, || {
            let row = u64::try_from(i).map_err(|_| {
                let rows = self.cache.rows();
                let text = format!("sample {i} is out of range; expected 0 <= sample < {rows}");
                to_py(py, &Error::new(Kind::SampleNotFound, text))
            })?;
            let place = detached(py, || {
                let place = self.cache.locate(row)?;
                self.cache.check_tables_unchanged().map(|()| place)
            })?;
            let cache = Arc::clone(&self.cache);
            let fetch = move || {
                let payload = cache.payload(&place, &mut Fetcher::default())?;
                cache.check_shard_unchanged(place.shard).map(|()| payload)
            };
            let payload = if place.record.raw_len() as usize > PIECE_BYTES {
                apart(py, move |_| fetch())?
            } else {
                detached(py, fetch)?
            };
            Ok(NativePayload::new(payload))
        })
    }
}
