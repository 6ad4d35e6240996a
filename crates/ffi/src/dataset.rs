//! `NativeDataset`: the dataset of the core as `CachedDataset` wraps it.

use std::path::PathBuf;
use std::sync::Arc;

use dataset_rt_runtime::{
    Dataset, Handover, POSITION_LIMIT, Partition, Progress, Stream, Window, WorkerPool,
};
use dataset_rt_sampler::Cursor;
use dataset_rt_storage::Error;
use dataset_rt_storage::store::{LocalStore, guarded_once};
use pyo3::prelude::*;
use pyo3::types::PyString;

use crate::batches::NativeBatchIterator;
use crate::batching::NativeBatching;
use crate::faces::NativeFace;
use crate::failure::{attended, detached, guarded, to_py};
use crate::iterator::{NativeSampleIterator, block_samples};
use crate::runtime::{NativeRuntime, ReadArguments};
use crate::samples::{SampleMaker, column_keys};
use crate::single::{self, TableKeys};
use crate::tables::{NativeTable, import_batches, validate};

/// Samples of a long list that are loaded at once: bounds what is in flight, lets signals in.
const PIECE_SAMPLES: usize = 1024;

/// Start of the window, epoch, length, whether that was set, and samples read before.
pub type CursorFields = (u64, u64, u64, bool, u64);

/// Rank, world size, samples of a global batch if given, and whether a short one is left out.
pub type RankFields = (u64, u64, Option<u64>, bool);

/// Directories, contents, cursor, memory (descriptor, process, name), pages.
type HandoverFields =
    (Vec<PathBuf>, Vec<String>, CursorFields, Option<(i32, u32, String)>, Option<PagesFields>);

/// Descriptor and number of each page to follow, nearest first, and the table they must speak of.
pub type PagesFields = (Vec<(i32, usize)>, u64);

/// A dataset of one or more caches.
#[pyclass(frozen, module = "dataset_rt._native")]
pub struct NativeDataset {
    dataset: Dataset,
    maker: Arc<SampleMaker>,
    pool: Arc<WorkerPool>,
    stored_keys: Vec<Py<PyString>>,
    table_keys: TableKeys,
}

impl NativeDataset {
    /// Wraps an open dataset.
    ///
    /// # Errors
    /// When the package is not importable.
    pub fn new(
        py: Python<'_>,
        dataset: Dataset,
        pool: Arc<WorkerPool>,
        zero_copy: bool,
    ) -> PyResult<Self> {
        let names = dataset.schema().columns().iter().map(|column| column.name.as_str());
        let stored_keys = column_keys(py, names);
        let (maker, table_keys) =
            (Arc::new(SampleMaker::new(py, zero_copy)?), TableKeys::default());
        Ok(Self { maker, pool, stored_keys, table_keys, dataset })
    }

    /// Runs `short`, unless the runtime was closed, about which the long way has more to say.
    fn at_hand<T>(&self, py: Python<'_>, short: impl FnOnce() -> Option<T>) -> PyResult<Option<T>> {
        guarded(py, || Ok(if self.pool.was_closed() { None } else { short() }))
    }

    fn samples_of(
        &self,
        py: Python<'_>,
        stream: Stream,
        progress: Option<Arc<Progress>>,
    ) -> NativeSampleIterator {
        let keys = self.table_keys.of(py, stream.snapshot());
        NativeSampleIterator::new(Arc::clone(&self.maker), keys, stream, progress)
    }

    fn check_open(&self, py: Python<'_>) -> PyResult<()> {
        if !self.pool.is_closed() {
            return Ok(());
        }
        let error = Error::invalid(
            "the runtime of this dataset is closed; open the caches with a new DatasetRuntime",
        );
        Err(to_py(py, &error))
    }
}

fn places_of(window: &Window) -> (u64, u64, u64, u64) {
    (window.start, window.begin(), window.end(), window.epoch)
}

fn check_stretch(begin: u64, end: u64, lane: u64, lanes: u64) -> Result<(), Error> {
    if begin <= end && end <= POSITION_LIMIT && lane < lanes {
        return Ok(());
    }
    if end > POSITION_LIMIT {
        return Err(Error::invalid(format!(
            "the stream of samples ends at position 2**63: positions {begin} to {end} lie behind it; \
             choose a smaller epoch or epoch length"
        )));
    }
    Err(Error::invalid(format!(
        "lane {lane} of {lanes} of positions {begin}..{end}; expected lane < lanes and \
         begin <= end <= 2^63"
    )))
}

#[pymethods]
impl NativeDataset {
    fn __iter__(&self, py: Python<'_>) -> PyResult<NativeSampleIterator> {
        guarded(py, || {
            self.check_open(py)?;
            let (stream, progress) = self.dataset.claim().map_err(|e| to_py(py, &e))?;
            Ok(self.samples_of(py, stream, Some(progress)))
        })
    }

    /// First position of the window that the next iterator would claim, the one that it would
    /// begin at, the one behind the last, and the epoch.
    fn next_window(&self, py: Python<'_>) -> PyResult<(u64, u64, u64, u64)> {
        let window = guarded(py, || self.dataset.next_window().map_err(|e| to_py(py, &e)))?;
        Ok(places_of(&window))
    }

    /// Claims the next window for others, who read it in batches.
    fn claim_batching(&self, py: Python<'_>, batch_size: u64) -> PyResult<NativeBatching> {
        guarded(py, || {
            self.check_open(py)?;
            let claimed = self.dataset.claim_batching(batch_size);
            let (batching, progress) = claimed.map_err(|e| to_py(py, &e))?;
            Ok(NativeBatching::new(batching, Some(progress)))
        })
    }

    /// This rank's batches of any stretch of the stream.
    fn batching(
        &self,
        py: Python<'_>,
        begin: u64,
        end: u64,
        batch_size: u64,
    ) -> PyResult<NativeBatching> {
        guarded(py, || {
            check_stretch(begin, end, 0, 1).map_err(|e| to_py(py, &e))?;
            let batching = self.dataset.batching(begin..end, batch_size);
            Ok(NativeBatching::new(batching.map_err(|e| to_py(py, &e))?, None))
        })
    }

    fn window_samples(
        &self,
        py: Python<'_>,
        begin: u64,
        end: u64,
        lane: u64,
        lanes: u64,
        unit: u64,
    ) -> PyResult<NativeSampleIterator> {
        guarded(py, || {
            self.check_open(py)?;
            check_stretch(begin, end, lane, lanes).map_err(|e| to_py(py, &e))?;
            let stream = self.dataset.lane(begin..end, lane, lanes, unit);
            let stream = stream.map_err(|e| to_py(py, &e))?;
            Ok(self.samples_of(py, stream, None))
        })
    }

    fn partition(
        &self,
        py: Python<'_>,
        rank: u64,
        world_size: u64,
        global_batch_size: Option<u64>,
        drop_last: bool,
    ) -> PyResult<Self> {
        guarded(py, || {
            let part = self.dataset.partition(rank, world_size, global_batch_size, drop_last);
            let dataset = part.map_err(|e| to_py(py, &e))?;
            Self::new(py, dataset, Arc::clone(&self.pool), self.maker.zero_copy)
        })
    }

    /// A dataset of its own with this table, position and epoch, with other threads, order or
    /// share; what is `None` stays as it is.
    fn derived(
        &self,
        py: Python<'_>,
        runtime: Option<&NativeRuntime>,
        options: Option<ReadArguments>,
        rank: Option<(u64, u64, Option<u64>, bool)>,
    ) -> PyResult<Self> {
        guarded(py, || {
            let pool = Arc::clone(runtime.map_or(&self.pool, NativeRuntime::pool));
            let (mut mode, mut seed) = (self.dataset.options().mode, self.dataset.options().seed);
            if let Some(options) = options {
                let read = options.to_read_options().map_err(|e| to_py(py, &e))?;
                (mode, seed) = (read.mode, read.seed);
            }
            let partition = match rank {
                None => *self.dataset.rank(),
                Some((rank, world_size, global_batch, drop_last)) => {
                    let partition = Partition::new(rank, world_size, global_batch, drop_last);
                    partition.map_err(|e| to_py(py, &Error::invalid(e.to_string())))?
                }
            };
            let derive = || self.dataset.derived(Arc::clone(&pool), mode, seed, partition);
            let dataset = detached(py, derive)?;
            Self::new(py, dataset, pool, self.maker.zero_copy)
        })
    }

    /// Whether no table was replaced since one of the two was derived from the other.
    fn has_table_of(&self, py: Python<'_>, other: &Self) -> PyResult<bool> {
        guarded(py, || self.dataset.has_table_of(&other.dataset).map_err(|e| to_py(py, &e)))
    }

    /// Rank, world size, samples of a global batch if given, and whether a short one is left out.
    #[getter]
    fn rank(&self) -> RankFields {
        let rank = self.dataset.rank();
        (rank.rank(), rank.world_size(), rank.global_batch(), rank.drop_last())
    }

    fn state(&self, py: Python<'_>) -> PyResult<String> {
        guarded(py, || attended(py, |attend| self.dataset.save_state(attend)))
    }

    fn save_state_with_table(&self, py: Python<'_>, directory: PathBuf) -> PyResult<()> {
        guarded(py, || {
            attended(py, |attend| {
                self.dataset.save_state_with_table(&LocalStore, &directory, attend)
            })
        })
    }

    fn save_config_with_table(
        &self,
        py: Python<'_>,
        directory: PathBuf,
        contents: &str,
    ) -> PyResult<()> {
        guarded(py, || {
            attended(py, |attend| {
                self.dataset.save_config_with_table(&LocalStore, &directory, contents, attend)
            })
        })
    }

    #[pyo3(signature = (directory, contents, table, edited))]
    fn load_state_with_table(
        &self,
        py: Python<'_>,
        directory: PathBuf,
        contents: &str,
        table: Option<&Bound<'_, PyAny>>,
        edited: Vec<String>,
    ) -> PyResult<()> {
        guarded(py, || {
            let imported = guarded_once(|_| Ok(table.map(import_batches).transpose()));
            let imported = imported.map_err(|e| to_py(py, &e))??;
            attended(py, |attend| {
                let mut table = None;
                if let Some((schema, batches)) = &imported {
                    guarded_once(|_| validate(batches, attend))?;
                    table = Some((schema, batches.as_slice(), edited.as_slice()));
                }
                self.dataset.load_state_with_table(&directory, contents, table, attend)
            })
        })
    }

    fn load_state(&self, py: Python<'_>, text: &str) -> PyResult<()> {
        guarded(py, || attended(py, |attend| self.dataset.load_state(text, attend)))
    }

    fn batches(
        &self,
        py: Python<'_>,
        batch_size: u64,
        columns: Option<Vec<String>>,
    ) -> PyResult<NativeBatchIterator> {
        guarded(py, || {
            self.check_open(py)?;
            let claim = || self.dataset.claim_batches(batch_size, columns.as_deref());
            let (batches, progress) = detached(py, claim)?;
            NativeBatchIterator::new(py, batches, Some(progress))
        })
    }

    fn face(&self, py: Python<'_>) -> PyResult<NativeFace> {
        guarded(py, || {
            self.check_open(py)?;
            let face = self.dataset.face().map_err(|e| to_py(py, &e))?;
            Ok(NativeFace::new(face, None))
        })
    }

    fn __len__(&self, py: Python<'_>) -> PyResult<usize> {
        let len = guarded(py, || self.dataset.epoch_len().map_err(|e| to_py(py, &e)))?;
        Ok(usize::try_from(len).unwrap_or(usize::MAX))
    }

    #[getter]
    fn epoch(&self, py: Python<'_>) -> PyResult<u64> {
        guarded(py, || self.dataset.epoch().map_err(|e| to_py(py, &e)))
    }

    /// An independent dataset over the same files and table.
    fn copy(&self, py: Python<'_>) -> PyResult<Self> {
        guarded(py, || {
            let copied = detached(py, || self.dataset.copied())?;
            Self::new(py, copied, Arc::clone(&self.pool), self.maker.zero_copy)
        })
    }

    /// Absolute directories of the caches and their content digests.
    #[getter]
    fn sources(&self) -> (Vec<PathBuf>, Vec<String>) {
        self.dataset.sources()
    }

    /// Samples per epoch of all ranks, if that was set since the table was handed in.
    #[getter]
    fn epoch_len_set(&self, py: Python<'_>) -> PyResult<Option<u64>> {
        guarded(py, || self.dataset.epoch_len_set().map_err(|e| to_py(py, &e)))
    }

    /// Columns that differ on purpose from the caches' values; none for the caches' own table.
    #[getter]
    fn edited_columns(&self, py: Python<'_>) -> PyResult<Option<Vec<String>>> {
        guarded(py, || self.dataset.edited_columns().map_err(|e| to_py(py, &e)))
    }

    /// What a pickle carries: see [`Handover`].
    fn hand_over(&self, py: Python<'_>, is_started: bool) -> PyResult<HandoverFields> {
        guarded(py, || {
            let handover = attended(py, |attend| self.dataset.hand_over(is_started, attend))?;
            let Handover { directories, contents, cursor, memory, pages } = handover;
            let Cursor { position, epoch, len, len_was_set, read } = cursor;
            let cursor = (position, epoch, len, len_was_set, read);
            Ok((directories, contents, cursor, memory, pages))
        })
    }

    #[getter]
    fn cache_paths(&self) -> Vec<std::path::PathBuf> {
        self.dataset.caches().iter().map(|cache| cache.path().to_path_buf()).collect()
    }

    fn sample_at<'py>(&self, py: Python<'py>, i: u64) -> PyResult<Bound<'py, PyAny>> {
        let mut samples = self.samples_at(py, vec![i])?;
        samples
            .pop()
            .ok_or_else(|| to_py(py, &Error::internal("one sample was asked for, none came")))
    }

    fn sample_at_hand<'py>(
        &self,
        py: Python<'py>,
        i: &Bound<'py, PyAny>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        self.at_hand(py, || single::at_index(&self.maker, &self.table_keys, &self.dataset, i))
    }

    fn item_at_hand<'py>(
        &self,
        py: Python<'py>,
        cache_id: &Bound<'py, PyAny>,
        sample_id: &Bound<'py, PyAny>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let (maker, keys, dataset) = (&self.maker, &self.stored_keys, &self.dataset);
        self.at_hand(py, || single::physical(maker, keys, dataset, cache_id, sample_id))
    }

    fn samples_at<'py>(
        &self,
        py: Python<'py>,
        indices: Vec<u64>,
    ) -> PyResult<Vec<Bound<'py, PyAny>>> {
        guarded(py, || {
            self.check_open(py)?;
            let (snapshot, positions) =
                attended(py, |attend| self.dataset.positions_of(&indices, attend))?;
            let keys = self.table_keys.of(py, &snapshot);
            let mut samples = Vec::with_capacity(positions.len());
            for positions in positions.chunks(PIECE_SAMPLES) {
                let block = detached(py, || self.dataset.samples_at(&snapshot, positions))?;
                samples.extend(block_samples(py, &self.maker, &keys, &self.pool, block)?);
                py.check_signals()?;
            }
            Ok(samples)
        })
    }

    fn get_item<'py>(
        &self,
        py: Python<'py>,
        cache_id: u64,
        sample_id: u64,
    ) -> PyResult<Bound<'py, PyAny>> {
        guarded(py, || {
            self.check_open(py)?;
            let block = detached(py, || self.dataset.physical_sample(cache_id, sample_id))?;
            let mut samples = block_samples(py, &self.maker, &self.stored_keys, &self.pool, block)?;
            samples.pop().ok_or_else(|| to_py(py, &Error::internal("no sample came back")))
        })
    }

    fn table(&self, py: Python<'_>) -> PyResult<NativeTable> {
        guarded(py, || {
            let (schema, batches) = attended(py, |attend| self.dataset.table(attend))?;
            Ok(NativeTable::new(schema, batches))
        })
    }

    fn update_table(
        &self,
        py: Python<'_>,
        table: &Bound<'_, PyAny>,
        edited: Vec<String>,
    ) -> PyResult<()> {
        guarded(py, || {
            // The table may be made of views of our mapped files.
            let imported = guarded_once(|_| Ok(import_batches(table)));
            let (schema, batches) = imported.map_err(|e| to_py(py, &e))??;
            attended(py, |attend| {
                guarded_once(|_| validate(&batches, attend))?;
                self.dataset.update_table(&schema, &batches, &edited, attend)
            })
        })
    }

    fn set_epoch_len(&self, py: Python<'_>, n: u64) -> PyResult<()> {
        guarded(py, || self.dataset.set_epoch_len(n).map_err(|e| to_py(py, &e)))
    }

    fn set_epoch(&self, py: Python<'_>, e: u64) -> PyResult<()> {
        guarded(py, || self.dataset.set_epoch(e).map_err(|error| to_py(py, &error)))
    }

    fn order_fingerprint(&self, py: Python<'_>) -> PyResult<String> {
        guarded(py, || attended(py, |attend| self.dataset.order_fingerprint(attend)))
    }

    fn order_digest(&self, py: Python<'_>, start: u64, stop: u64) -> PyResult<String> {
        guarded(py, || attended(py, |attend| self.dataset.order_digest(start, stop, attend)))
    }

    fn position_seed(&self, py: Python<'_>, k: u64) -> PyResult<u64> {
        guarded(py, || attended(py, |attend| self.dataset.position_seed(k, attend)))
    }
}
