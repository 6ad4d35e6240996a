//! `NativeRuntime`: worker threads, writing, opening. Options arrive checked by the Python side
//! and are checked again where the core relies on them.

use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use dataset_rt_runtime::{
    Dataset, Decision, OnStale, Profile, QueueBound, ReadOptions, WorkerPool, WritePipeline,
    decide, resources,
};
use dataset_rt_sampler::Mode;
use dataset_rt_storage::format::codec::{Algo, Compression, Scope};
use dataset_rt_storage::store::{IoMode, LocalStore};
use dataset_rt_storage::write::{
    CacheWriter, GroupLimits, Identity, Ingest, WriteMode, WriteOptions,
};
use dataset_rt_storage::{Error, Kind, Result};
use pyo3::prelude::*;
use serde_json::json;

use crate::dataset::NativeDataset;
use crate::failure::{Attention, attended, guarded, to_py, without_lock};
use crate::source::{Progress, SourceItems, SourceMembers};

/// Owner of the native worker threads.
#[pyclass(frozen, module = "dataset_rt._native")]
pub struct NativeRuntime {
    pool: Arc<WorkerPool>,
}

/// Options of one write, as Python hands them over.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
struct WriteArguments {
    prefetch_size: u64,
    prefetch_bytes: Option<u64>,
    max_shard_bytes: u64,
    algo: String,
    level: Option<i32>,
    scope: String,
    dictionary_bytes: u32,
    validate_cache: bool,
    on_stale: String,
    lock_timeout: Option<f64>,
    profile_path: Option<PathBuf>,
}

/// Options of one dataset, as Python hands them over.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
struct ReadArguments {
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
    ) -> PyResult<(&'static str, u64)> {
        guarded(py, || {
            self.check_open(py)?;
            let profile = Arc::new(Profile::new(options.profile_path.is_some()));
            let mut write = Write {
                name,
                directory: &directory,
                options: &options,
                num_workers: self.pool.num_workers(),
                profile: Arc::clone(&profile),
                samples: 0,
                payload_bytes: 0,
            };
            let outcome = write.run(py, source, reuse, on_progress);
            if let Some(path) = &options.profile_path {
                let report = json!({
                    "source": name,
                    "outcome": outcome.as_ref().map_or("failed", |(status, _)| *status),
                    "samples": write.samples,
                    "payload_bytes": write.payload_bytes,
                    "seconds": profile.seconds(),
                });
                save_report(py, path, &report, outcome.is_ok())?;
            }
            outcome
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
}

/// More threads than this are a mistake in the call, not a wish.
const WORKERS_MAX: usize = 1024;

impl NativeRuntime {
    fn check_open(&self, py: Python<'_>) -> PyResult<()> {
        if self.pool.is_closed() {
            let error = Error::invalid("the runtime is closed; make a new DatasetRuntime");
            return Err(to_py(py, &error));
        }
        Ok(())
    }
}

impl ReadArguments {
    fn to_read_options(&self) -> Result<ReadOptions> {
        let mode = match (self.shuffle, self.sampling.as_str()) {
            (true, "multinomial") => Mode::Multinomial,
            (false, "multinomial") => Mode::Sequential,
            (_, other) => return Err(unknown("sampling", other, "\"multinomial\"")),
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

impl WriteArguments {
    fn compression(&self) -> Result<Compression> {
        let algo = match self.algo.as_str() {
            "none" => Algo::None,
            "lz4" => Algo::Lz4,
            "zstd" => Algo::Zstd,
            other => return Err(unknown("algo", other, "\"none\", \"lz4\" or \"zstd\"")),
        };
        let scope = match self.scope.as_str() {
            "payload" => Scope::Payload,
            "buffer" => Scope::Buffer,
            other => return Err(unknown("scope", other, "\"payload\" or \"buffer\"")),
        };
        let compression =
            Compression { algo, level: self.level, scope, dictionary_bytes: self.dictionary_bytes };
        compression.validate()?;
        Ok(compression)
    }

    fn on_stale(&self) -> Result<OnStale> {
        OnStale::from_name(&self.on_stale).ok_or_else(|| {
            unknown("on_stale", &self.on_stale, "\"error\", \"rewrite\" or \"reuse\"")
        })
    }
}

fn unknown(what: &str, found: &str, expected: &str) -> Error {
    Error::invalid(format!("{what} is {found:?}; expected {expected}"))
}

thread_local! {
    /// Caches that this thread is writing: a source runs on it and may start another write.
    static WRITING: RefCell<Vec<PathBuf>> = const { RefCell::new(Vec::new()) };
}

/// Proof that this thread does not wait for itself.
struct Writing;

impl Writing {
    fn begin(path: &Path) -> Result<Self> {
        WRITING.with_borrow_mut(|paths| {
            if paths.iter().any(|other| other == path) {
                return Err(Error::conflict(format!(
                    "{} is being written by the very source that asks for it; write it under \
                     another name",
                    path.display()
                )));
            }
            paths.push(path.to_owned());
            Ok(Self)
        })
    }
}

impl Drop for Writing {
    fn drop(&mut self) {
        // Writes of one thread nest, so the last begun ends first.
        WRITING.with_borrow_mut(Vec::pop);
    }
}

/// One source being written.
struct Write<'a> {
    name: &'a str,
    directory: &'a Path,
    options: &'a WriteArguments,
    num_workers: usize,
    profile: Arc<Profile>,
    samples: u64,
    payload_bytes: u64,
}

impl Write<'_> {
    fn run<'py>(
        &mut self,
        py: Python<'py>,
        source: &Bound<'py, PyAny>,
        reuse: bool,
        on_progress: Option<Bound<'py, PyAny>>,
    ) -> PyResult<(&'static str, u64)> {
        let members = SourceMembers::read(source, self.name)?;
        let path = self.directory.join(self.name);
        let _writing = Writing::begin(&path).map_err(|e| to_py(py, &e))?;
        loop {
            let mode = if reuse {
                let on_stale = self.options.on_stale().map_err(|e| to_py(py, &e))?;
                let validate = self.options.validate_cache;
                let claim = &members.claim;
                match attended(py, |attend| decide(&path, claim, on_stale, validate, attend))? {
                    Decision::Reuse { samples } => return Ok(("reused", samples)),
                    Decision::Write => WriteMode::New,
                    Decision::Replace => WriteMode::Replace,
                }
            } else {
                WriteMode::New
            };
            match self.begin(py, mode)? {
                Some(writer) => {
                    return self
                        .write(py, source, members, writer, on_progress)
                        .map(|()| ("written", 0));
                }
                // Somebody else published it meanwhile: look at what they wrote.
                None if reuse => {}
                None => {
                    let text = format!(
                        "{} exists; expected a new name (a cache is never overwritten); remove it \
                         or use from_cache_sources to reuse it",
                        path.display()
                    );
                    return Err(to_py(py, &Error::conflict(text)));
                }
            }
        }
    }

    /// Takes the writer's lock; `None` when the cache exists already.
    #[expect(clippy::disallowed_methods, reason = "the lock has a timeout in seconds")]
    fn begin(&self, py: Python<'_>, mode: WriteMode) -> PyResult<Option<CacheWriter>> {
        let compression = self.options.compression().map_err(|e| to_py(py, &e))?;
        let options = WriteOptions { max_shard_bytes: self.options.max_shard_bytes, compression };
        let mut attention = Attention::new();
        let (attend, timeout) = (&mut attention, self.options.lock_timeout);
        let (directory, name) = (self.directory, self.name);
        let begun = without_lock(py, move || {
            let start = Instant::now();
            let mut is_told = false;
            CacheWriter::begin(Arc::new(LocalStore), directory, name, options, mode, &mut |lock| {
                let waited = start.elapsed().as_secs_f64();
                if timeout.is_some_and(|timeout| waited >= timeout) {
                    let text = format!(
                        "another process is writing {}; waited {waited:.1} s (lock_timeout); \
                         retry when it has finished",
                        lock.display()
                    );
                    return Err(Error::new(Kind::Unavailable, text));
                }
                if !std::mem::replace(&mut is_told, true) {
                    attend.run(|py| tell_waiting(py, lock))?;
                }
                attend.check()?;
                std::thread::sleep(LOCK_POLL);
                Ok(())
            })
        });
        match begun {
            Ok(writer) => Ok(Some(writer)),
            Err(error)
                if error.kind() == Kind::Conflict
                    && mode == WriteMode::New
                    && self.directory.join(self.name).exists() =>
            {
                Ok(None)
            }
            Err(error) => Err(attention.explain(py, &error)),
        }
    }

    fn write<'py>(
        &mut self,
        py: Python<'py>,
        source: &Bound<'py, PyAny>,
        members: SourceMembers,
        writer: CacheWriter,
        on_progress: Option<Bound<'py, PyAny>>,
    ) -> PyResult<()> {
        let compression = self.options.compression().map_err(|e| to_py(py, &e))?;
        let limits = GroupLimits::new(self.options.max_shard_bytes, &compression);
        let bound = QueueBound {
            groups: self.num_workers + 1,
            samples: self.options.prefetch_size,
            bytes: self.options.prefetch_bytes.unwrap_or_else(resources::readahead_bytes_default),
        };
        let profile = Arc::clone(&self.profile);
        let mut pipeline =
            WritePipeline::new(writer, compression, self.num_workers, bound, profile);
        let mut ingest = Ingest::new(self.name, members.claim.schema.clone(), limits);
        let mut items = SourceItems::new(source, self.name)?;
        let mut progress = Progress::new(on_progress);
        loop {
            let more = items.take_next(&mut ingest, &self.profile);
            (self.samples, self.payload_bytes) = (ingest.rows(), ingest.payload_bytes());
            if !more? {
                break;
            }
            while let Some(group) = ingest.take_group() {
                let schema = ingest.schema().cloned().unwrap_or_default();
                push(py, &mut pipeline, &schema, group)?;
            }
            progress.step(&ingest)?;
        }
        let (schema, groups) = ingest.finish().map_err(|e| to_py(py, &e))?;
        for group in groups {
            push(py, &mut pipeline, &schema, group)?;
        }
        let identity =
            Identity { fingerprint: members.claim.fingerprint, provenance: members.provenance };
        let mut attention = Attention::new();
        let attend = &mut attention;
        let published =
            without_lock(py, move || pipeline.publish(identity, &mut || attend.check()));
        published.map_err(|error| attention.explain(py, &error))?;
        progress.report(self.samples, self.payload_bytes, true)
    }
}

/// Between two looks at another writer's lock.
const LOCK_POLL: Duration = Duration::from_millis(20);

fn push(
    py: Python<'_>,
    pipeline: &mut WritePipeline,
    schema: &dataset_rt_storage::format::schema::StoredSchema,
    group: dataset_rt_storage::write::RowGroup,
) -> PyResult<()> {
    let mut attention = Attention::new();
    let attend = &mut attention;
    let pushed = without_lock(py, move || pipeline.push(schema, group, &mut || attend.check()));
    pushed.map_err(|error| attention.explain(py, &error))
}

fn tell_waiting(py: Python<'_>, lock: &Path) -> PyResult<()> {
    let logger = py.import("logging")?.call_method1("getLogger", ("dataset_rt",))?;
    logger.call_method1("info", ("waiting for another writer of %s", lock))?;
    Ok(())
}

/// Writes the profile; its own failure is reported only where nothing else failed.
fn save_report(
    py: Python<'_>,
    path: &Path,
    report: &serde_json::Value,
    must_succeed: bool,
) -> PyResult<()> {
    let text = format!("{report:#}\n");
    match std::fs::write(path, text) {
        Err(error) if must_succeed => {
            Err(to_py(py, &Error::from_io("write the profile", path, &error)))
        }
        _ => Ok(()),
    }
}
