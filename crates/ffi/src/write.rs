//! One source being written: its items into the pipeline, under the lock of its name, behind
//! what an interrupted write left.

use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use dataset_rt_runtime::{
    Decision, OnStale, Profile, QueueBound, WritePipeline, decide, resources,
};
use dataset_rt_storage::format::codec::{Algo, Compression, Scope};
use dataset_rt_storage::format::schema::StoredSchema;
use dataset_rt_storage::store::LocalStore;
use dataset_rt_storage::write::{
    CacheWriter, Continued, GroupLimits, Identity, Ingest, RowGroup, Unfinished, WriteMode,
    WriteOptions,
};
use dataset_rt_storage::{Error, Kind, Result};
use pyo3::exceptions::PyException;
use pyo3::prelude::*;
use serde_json::json;

use crate::failure::{Attention, attended, to_py, without_lock};
use crate::runtime::unknown;
use crate::source::{Progress, SourceItems, SourceMembers};

/// Options of one write, as Python hands them over.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub struct WriteArguments {
    prefetch_size: u64,
    prefetch_bytes: Option<u64>,
    max_shard_bytes: u64,
    algo: String,
    level: Option<i32>,
    scope: String,
    dictionary_bytes: u32,
    validate_cache: bool,
    on_stale: String,
    resume: bool,
    lock_timeout: Option<f64>,
    profile_path: Option<PathBuf>,
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

/// What became of a source: status, samples not written again, and a warning.
pub type Outcome = (&'static str, u64, Option<String>);

/// Writes one source, or reuses its cache.
///
/// # Errors
/// As the source or the file system fails; nothing is published then. Interrupts after the
/// publication come through, too.
#[expect(clippy::too_many_arguments, reason = "what one write needs to know")]
pub fn write_source<'py>(
    py: Python<'py>,
    source: &Bound<'py, PyAny>,
    name: &str,
    directory: &Path,
    options: &WriteArguments,
    num_workers: usize,
    reuse: bool,
    on_progress: Option<Bound<'py, PyAny>>,
) -> PyResult<Outcome> {
    let profile = Arc::new(Profile::new(options.profile_path.is_some()));
    let mut write = Write {
        name,
        directory,
        options,
        num_workers,
        profile: Arc::clone(&profile),
        samples: 0,
        payload_bytes: 0,
    };
    let outcome = write.run(py, source, reuse, on_progress);
    if let Some(path) = &options.profile_path {
        let report = json!({
            "source": name,
            "outcome": outcome.as_ref().map_or("failed", |(status, _, _)| *status),
            "samples": write.samples,
            "payload_bytes": write.payload_bytes,
            "seconds": profile.seconds(),
        });
        // Missing reports are told of by whoever joins them.
        let _ = std::fs::write(path, format!("{report:#}\n"));
    }
    outcome
}

thread_local! {
    /// Caches that this thread is writing: a source runs on it and may start another write.
    static WRITING: RefCell<Vec<PathBuf>> = const { RefCell::new(Vec::new()) };
}

/// One spelling of a path whose end need not exist yet.
fn real_path(path: &Path) -> PathBuf {
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let existing = absolute.ancestors().find_map(|above| {
        let below = absolute.strip_prefix(above).ok()?;
        Some(above.canonicalize().ok()?.join(below))
    });
    existing.unwrap_or(absolute)
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
    ) -> PyResult<Outcome> {
        let members = SourceMembers::read(source, self.name)?;
        let path = self.directory.join(self.name);
        let _writing = Writing::begin(&real_path(&path)).map_err(|e| to_py(py, &e))?;
        let on_stale = self.options.on_stale().map_err(|e| to_py(py, &e))?;
        let validate = self.options.validate_cache;
        let claim = &members.claim;
        let look = || attended(py, |attend| decide(&path, claim, on_stale, validate, attend));
        loop {
            let mode = match reuse.then(&look).transpose()? {
                None | Some(Decision::Write) => WriteMode::New,
                Some(Decision::Replace) => WriteMode::Replace,
                Some(Decision::Reuse { samples }) => return Ok(("reused", samples, None)),
            };
            match self.begin(py, mode)? {
                Some(mut writer) => {
                    let fingerprint = members.claim.fingerprint.clone();
                    let unfinished = match self.options.resume {
                        true => without_lock(py, || writer.resume(fingerprint)),
                        false => Ok(None),
                    };
                    let unfinished = unfinished.map_err(|e| to_py(py, &e))?;
                    // Whoever held the lock before may have replaced the stale cache already.
                    if mode == WriteMode::Replace
                        && let Decision::Reuse { samples } = look()?
                    {
                        without_lock(py, move || writer.forget());
                        return Ok(("reused", samples, None));
                    }
                    return self.write(py, source, members, (writer, unfinished), on_progress);
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
        (mut writer, unfinished): (CacheWriter, Option<Unfinished>),
        on_progress: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Outcome> {
        let compression = self.options.compression().map_err(|e| to_py(py, &e))?;
        let limits = GroupLimits::new(self.options.max_shard_bytes, &compression);
        let unfinished = unfinished.filter(|unfinished| members.goes_on(unfinished));
        let (ingest, mut items) = match unfinished.map(|u| take_over(py, &mut writer, u)) {
            None => {
                let schema = members.claim.schema.clone();
                (Ingest::new(self.name, schema, limits), SourceItems::new(source, self.name)?)
            }
            Some(taken_over) => {
                let (schema, Continued { rows, payload_bytes }) = taken_over?;
                (
                    Ingest::continued(self.name, schema, limits, rows, payload_bytes),
                    SourceItems::behind(source, self.name, rows)?,
                )
            }
        };
        let bound = QueueBound {
            groups: self.num_workers + 1,
            samples: self.options.prefetch_size,
            // Half of what a reader takes: the group being filled, and metadata that wait for
            // their batch, come on top.
            bytes: (self.options.prefetch_bytes)
                .unwrap_or_else(|| resources::readahead_bytes_default() / 2),
        };
        let profile = Arc::clone(&self.profile);
        let mut pipeline =
            WritePipeline::new(writer, compression, self.num_workers, bound, profile);
        let mut progress = Progress::new(on_progress);
        let pushed = self.push_all(py, &mut items, ingest, &mut pipeline, &mut progress);
        if let Err(error) = pushed {
            // An interrupt ends at once; otherwise the samples taken may finish a shard.
            if error.is_instance_of::<PyException>(py) {
                let mut attention = Attention::new();
                let attend = &mut attention;
                without_lock(py, move || pipeline.settle(&mut || attend.check()))
                    .map_err(|error| attention.explain(py, &error))?;
            }
            return Err(error);
        }
        let identity =
            Identity { fingerprint: members.claim.fingerprint, provenance: members.provenance };
        let mut attention = Attention::new();
        let attend = &mut attention;
        let published =
            without_lock(py, move || pipeline.publish(identity, &mut || attend.check()));
        let published = published.map_err(|error| attention.explain(py, &error))?;
        // The cache is there: what cannot be shown is no failure of the write.
        if let Err(error) = progress.report(self.samples, self.payload_bytes, true)
            && !error.is_instance_of::<PyException>(py)
        {
            return Err(error);
        }
        let status = if published.samples_reused > 0 { "resumed" } else { "written" };
        let note = published.dropped.map(|dropped| {
            format!(
                "source {:?}: {} samples of an interrupted write, from sample {} on, were dropped \
                 and written again: {}",
                self.name, dropped.rows, dropped.first_row, dropped.reason
            )
        });
        Ok((status, published.samples_reused, note))
    }

    /// Everything the source yields goes into the pipeline.
    fn push_all(
        &mut self,
        py: Python<'_>,
        items: &mut SourceItems<'_>,
        mut ingest: Ingest,
        pipeline: &mut WritePipeline,
        progress: &mut Progress<'_>,
    ) -> PyResult<()> {
        loop {
            let more = items.take_next(&mut ingest, &self.profile);
            (self.samples, self.payload_bytes) = (ingest.rows(), ingest.payload_bytes());
            if !more? {
                break;
            }
            while let Some(group) = ingest.take_group() {
                let schema = ingest.schema().cloned().unwrap_or_default();
                push(py, pipeline, &schema, group)?;
            }
            progress.step(&ingest)?;
        }
        let (schema, groups) = ingest.finish().map_err(|e| to_py(py, &e))?;
        groups.into_iter().try_for_each(|group| push(py, pipeline, &schema, group))
    }
}

/// Takes the finished shards of an interrupted write over.
fn take_over(
    py: Python<'_>,
    writer: &mut CacheWriter,
    unfinished: Unfinished,
) -> PyResult<(StoredSchema, Continued)> {
    let mut attention = Attention::new();
    let attend = &mut attention;
    match without_lock(py, move || writer.adopt(&mut || attend.check())) {
        Ok(continued) => Ok((unfinished.schema, continued)),
        Err(error) => Err(attention.explain(py, &error)),
    }
}

/// Between two looks at another writer's lock.
const LOCK_POLL: Duration = Duration::from_millis(20);

fn push(
    py: Python<'_>,
    pipeline: &mut WritePipeline,
    schema: &StoredSchema,
    group: RowGroup,
) -> PyResult<()> {
    let mut attention = Attention::new();
    let attend = &mut attention;
    let pushed = without_lock(py, move || pipeline.push(schema, group, &mut || attend.check()));
    pushed.map_err(|error| attention.explain(py, &error))
}

fn tell_waiting(py: Python<'_>, lock: &Path) -> PyResult<()> {
    let logger = py.import("logging")?.call_method1("getLogger", ("dataset_rt",))?;
    let text = "waiting for another process that writes this cache: %s is locked; lock_timeout \
                limits the wait";
    logger.call_method1("warning", (text, lock))?;
    Ok(())
}
