//! `NativeRuntime`: worker threads, writing, opening. Options arrive checked by the Python side
//! and are checked again where the core relies on them.

use std::path::PathBuf;
use std::sync::Arc;

use dataset_rt_runtime::{Dataset, ReadOptions, Received, WorkerPool, resources};
use dataset_rt_sampler::{Cursor, Mode, Partition};
use dataset_rt_storage::store::{IoMode, MemoryFile, SharedPage};
use dataset_rt_storage::{Error, Result};
use pyo3::prelude::*;

use crate::dataset::{CursorFields, NativeDataset, PagesFields, RankFields};
use crate::failure::{attended, guarded, to_py, without_lock};
use crate::write::{Outcome, WriteArguments, write_source};

/// Owner of the native worker threads.
#[pyclass(frozen, module = "dataset_rt._native")]
pub struct NativeRuntime {
    pool: Arc<WorkerPool>,
}

/// Options of one dataset, as Python hands them over.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub struct ReadArguments {
    seed: u64,
    shuffle: bool,
    prefetch_size: u64,
    prefetch_bytes: Option<u64>,
    sampling: String,
    validate_cache: bool,
    verify: bool,
    io: String,
    zero_copy: bool,
}

#[pymethods]
impl NativeRuntime {
    #[new]
    fn new(py: Python<'_>, num_workers: Option<usize>) -> PyResult<Self> {
        guarded(py, || {
            let num_workers = num_workers.unwrap_or_else(resources::cpus_usable);
            if !(1..=WORKERS_MAX).contains(&num_workers) {
                let text = format!("num_workers is {num_workers}; expected 1 to {WORKERS_MAX}");
                return Err(to_py(py, &Error::invalid(text)));
            }
            Ok(Self { pool: Arc::new(WorkerPool::new(num_workers)) })
        })
    }

    #[getter]
    fn num_workers(&self) -> usize {
        self.pool.num_workers()
    }

    #[getter]
    fn closed(&self) -> bool {
        self.pool.is_closed()
    }

    fn close(&self, py: Python<'_>) {
        // Waits for workers, so it stays outside the fork gate.
        without_lock(py, || self.pool.close());
    }

    #[expect(clippy::too_many_arguments, reason = "the signature that Python sees")]
    #[pyo3(signature = (source, name, directory, options, reuse, on_progress))]
    fn write_source<'py>(
        &self,
        py: Python<'py>,
        source: &Bound<'py, PyAny>,
        name: &str,
        directory: PathBuf,
        options: WriteArguments,
        reuse: bool,
        on_progress: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Outcome> {
        guarded(py, || {
            self.check_open(py)?;
            let workers = self.pool.num_workers();
            write_source(py, source, name, &directory, &options, workers, reuse, on_progress)
        })
    }

    fn open_dataset(
        &self,
        py: Python<'_>,
        paths: Vec<PathBuf>,
        options: ReadArguments,
    ) -> PyResult<NativeDataset> {
        guarded(py, || {
            self.check_open(py)?;
            let read = options.to_read_options().map_err(|e| to_py(py, &e))?;
            let pool = Arc::clone(&self.pool);
            let dataset = attended(py, |attend| Dataset::open(&paths, read, pool, attend))?;
            NativeDataset::new(py, dataset, Arc::clone(&self.pool), options.zero_copy)
        })
    }

    /// The dataset that `NativeDataset.hand_over` described. Descriptors stay the caller's.
    #[expect(clippy::too_many_arguments, reason = "the signature that Python sees")]
    fn take_over(
        &self,
        py: Python<'_>,
        paths: Vec<PathBuf>,
        options: ReadArguments,
        contents: Vec<String>,
        cursor: Option<CursorFields>,
        rank: RankFields,
        memory: Option<(Option<u32>, i32, String)>,
        pages: Option<PagesFields>,
    ) -> PyResult<NativeDataset> {
        guarded(py, || {
            self.check_open(py)?;
            let read = options.to_read_options().map_err(|e| to_py(py, &e))?;
            let pool = Arc::clone(&self.pool);
            let dataset = attended(py, |attend| {
                let received = received(contents, cursor, rank, memory, pages)?;
                Dataset::take_over(&paths, read, pool, received, attend)
            })?;
            NativeDataset::new(py, dataset, Arc::clone(&self.pool), options.zero_copy)
        })
    }
}

fn received(
    contents: Vec<String>,
    cursor: Option<CursorFields>,
    (rank, world_size, global_batch, drop_last): RankFields,
    memory: Option<(Option<u32>, i32, String)>,
    pages: Option<PagesFields>,
) -> Result<Received> {
    let restore = |(position, epoch, len, len_was_set, read)| {
        let cursor = Cursor::restore(position, epoch, len, len_was_set, read);
        cursor.map_err(|e| Error::invalid(e.to_string()))
    };
    let cursor = cursor.map(restore).transpose()?;
    let partition = Partition::new(rank, world_size, global_batch, drop_last);
    let partition = partition.map_err(|e| Error::invalid(e.to_string()))?;
    let memory = match memory {
        None => None,
        Some((None, descriptor, name)) => Some((MemoryFile::from_descriptor(descriptor)?, name)),
        Some((Some(process), descriptor, name)) => {
            let found = MemoryFile::of_process(process, descriptor).map_err(|e| {
                e.within(format!(
                    "the table of this dataset is in the memory of process {process}, which made \
                     the pickle and must still hold the dataset; save_state() and dump_config() \
                     outlive it"
                ))
            })?;
            Some((found, name))
        }
    };
    let pages = match pages {
        None => None,
        Some((places, table)) => {
            let pages = places.iter().map(|&(descriptor, number)| {
                SharedPage::from_descriptor(descriptor, number).map(Arc::new)
            });
            Some((pages.collect::<Result<_>>()?, table))
        }
    };
    Ok(Received { contents, cursor, partition, memory, pages })
}

/// More threads than this are a mistake in the call, not a wish.
const WORKERS_MAX: usize = 1024;

impl NativeRuntime {
    /// Its threads.
    pub const fn pool(&self) -> &Arc<WorkerPool> {
        &self.pool
    }

    fn check_open(&self, py: Python<'_>) -> PyResult<()> {
        if self.pool.is_closed() {
            let error = Error::invalid("the runtime is closed; make a new DatasetRuntime");
            return Err(to_py(py, &error));
        }
        Ok(())
    }
}

impl ReadArguments {
    /// What the core calls them.
    ///
    /// # Errors
    /// `InvalidInput` for an unknown name.
    pub fn to_read_options(&self) -> Result<ReadOptions> {
        let mode = match (self.shuffle, self.sampling.as_str()) {
            (true, "multinomial") => Mode::Multinomial,
            (true, "permutation") => Mode::Permutation,
            (true, "weighted_without_replacement") => Mode::WeightedWithoutReplacement,
            (false, "multinomial") => Mode::Sequential,
            (false, other) => {
                let expected = "\"multinomial\", the default, where shuffle is False";
                return Err(unknown("sampling", other, expected));
            }
            (true, other) => {
                let expected =
                    "\"multinomial\", \"permutation\" or \"weighted_without_replacement\"";
                return Err(unknown("sampling", other, expected));
            }
        };
        let io = match self.io.as_str() {
            "auto" => IoMode::Auto,
            "mmap" => IoMode::Mmap,
            "pread" => IoMode::Pread,
            other => return Err(unknown("io", other, "\"auto\", \"mmap\" or \"pread\"")),
        };
        Ok(ReadOptions {
            seed: self.seed,
            mode,
            prefetch_samples: self.prefetch_size,
            prefetch_bytes: self.prefetch_bytes,
            validate_cache: self.validate_cache,
            verify: self.verify,
            io,
        })
    }
}

/// A name that the option `what` does not have.
pub fn unknown(what: &str, found: &str, expected: &str) -> Error {
    Error::invalid(format!("{what} is {found:?}; expected {expected}"))
}
