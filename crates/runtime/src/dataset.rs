//! A dataset: caches read as one, an active table, a place in the stream.
//! All a user relies on, without Python.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use dataset_rt_sampler::{Cursor, Mode, Partition};
use dataset_rt_storage::format::schema::StoredSchema;
use dataset_rt_storage::read::{Cache, OpenOptions};
use dataset_rt_storage::store::{IoMode, MemoryFile};
use dataset_rt_storage::{Error, Kind, Result};
use dataset_rt_validator::{Level, verify_cache_attended};

use crate::active::{ActiveTable, SampleRef};
use crate::apart::{Check, run_apart};
use crate::block::{Block, FetcherShelf};
use crate::face::Face;
use crate::pool::WorkerPool;
use crate::resources::readahead_bytes_default;
use crate::snapshot::Snapshot;
use crate::state::State;
use crate::stream::ReadAhead;
use crate::windows::partition_error;

/// How a dataset reads.
#[derive(Clone, Debug)]
pub struct ReadOptions {
    /// Seed of the order.
    pub seed: u64,
    /// Order of the stream.
    pub mode: Mode,
    /// Samples that may be under way, at least 1.
    pub prefetch_samples: u64,
    /// Bytes that may be under way; `None` derives them from the memory this process may use.
    pub prefetch_bytes: Option<u64>,
    /// Verify each cache in full while opening.
    pub validate_cache: bool,
    /// Check everything against the manifest's digests before its first use.
    pub verify: bool,
    /// How files are read.
    pub io: IoMode,
}

/// Caches with equal schemas, read as one stream.
pub struct Dataset {
    pub(crate) caches: Arc<[Arc<Cache>]>,
    /// Where the caches are, whatever the working directory becomes.
    pub(crate) directories: Arc<[PathBuf]>,
    pub(crate) options: ReadOptions,
    pub(crate) pool: Arc<WorkerPool>,
    /// How far streams run ahead; asking the system for its limits takes dozens of reads.
    pub(crate) read_ahead: ReadAhead,
    pub(crate) fetchers: Arc<FetcherShelf>,
    pub(crate) partition: Partition,
    /// Held for moments only, never while waiting or working.
    state: Arc<Mutex<State>>,
    /// Keeps a descriptor open that other processes were told of.
    pub(crate) kept: Mutex<Option<MemoryFile>>,
}

impl Dataset {
    /// Opens `paths` as one dataset. `attend` is called many times a second, here and below; its
    /// error ends the work, and nothing has changed then.
    ///
    /// # Errors
    /// `InvalidInput` for no paths, differing schemas or the same contents twice, and whatever opening or verifying a cache meets.
    pub fn open(
        paths: &[PathBuf],
        options: ReadOptions,
        pool: Arc<WorkerPool>,
        attend: &mut dyn FnMut() -> Result<()>,
    ) -> Result<Self> {
        let open = OpenOptions { verify: options.verify, io: options.io };
        let mut caches: Vec<Arc<Cache>> = Vec::with_capacity(paths.len());
        let mut directories = Vec::with_capacity(paths.len());
        for path in paths {
            attend()?;
            if options.validate_cache {
                refuse_damaged(path, attend)?;
            }
            let cache = Arc::new(Cache::open(path, &open)?);
            check_fits(&caches, &cache, paths)?;
            caches.push(cache);
            let absolute = std::path::absolute(path).map_err(|e| Error::from_io("find", path, &e));
            directories.push(absolute?);
        }
        if caches.is_empty() {
            return Err(Error::invalid("no cache paths were given; name at least one cache"));
        }
        let caches: Arc<[Arc<Cache>]> = caches.into();
        let table = ActiveTable::whole(Arc::clone(&caches));
        let rows = table.rows();
        let fetchers = Arc::new(FetcherShelf::default());
        let snapshot =
            Arc::new(Snapshot::new(table, options.mode, options.seed, Arc::clone(&fetchers)));
        let read_ahead = ReadAhead {
            samples: options.prefetch_samples.max(1),
            bytes: options.prefetch_bytes.unwrap_or_else(readahead_bytes_default),
            sample_bytes: mean_payload_bytes(caches.iter()),
        };
        Ok(Self {
            caches,
            directories: directories.into(),
            options,
            pool,
            read_ahead,
            fetchers,
            partition: Partition::WHOLE,
            state: State::new(snapshot, Cursor::new(rows)),
            kept: Mutex::new(None),
        })
    }

    /// An independent dataset with the same table, at the same place of the stream.
    ///
    /// # Errors
    /// `Conflict` when the process that this one follows has another table now.
    pub fn copied(&self) -> Result<Self> {
        let (snapshot, cursor) = {
            let state = self.look()?;
            (Arc::clone(&state.snapshot), state.cursor)
        };
        Ok(Self {
            caches: Arc::clone(&self.caches),
            directories: Arc::clone(&self.directories),
            options: self.options.clone(),
            pool: Arc::clone(&self.pool),
            read_ahead: self.read_ahead,
            fetchers: Arc::clone(&self.fetchers),
            partition: self.partition,
            state: State::new(snapshot, cursor),
            kept: Mutex::new(None),
        })
    }

    /// A dataset of its own that reads one rank's share: table, position and epoch are those of
    /// now.
    ///
    /// # Errors
    /// `InvalidInput` for a rank outside the world, or when this is a share already.
    pub fn partition(
        &self,
        rank: u64,
        world_size: u64,
        global_batch: Option<u64>,
        drop_last: bool,
    ) -> Result<Self> {
        if self.partition != Partition::WHOLE {
            return Err(Error::invalid(format!(
                "this dataset is the share of rank {} of {} already; call partition on the whole \
                 one",
                self.partition.rank(),
                self.partition.world_size()
            )));
        }
        let partition = Partition::new(rank, world_size, global_batch, drop_last);
        let partition = partition.map_err(|e| partition_error(&e))?;
        Ok(self.copied()?.of_rank(partition))
    }

    pub(crate) fn of_rank(self, partition: Partition) -> Self {
        Self { partition, ..self }
    }

    /// Whose share of the stream this dataset reads.
    pub fn rank(&self) -> &Partition {
        &self.partition
    }

    /// How it reads.
    pub fn options(&self) -> &ReadOptions {
        &self.options
    }

    /// The state, the cursor where the process that this one follows left it.
    ///
    /// # Errors
    /// As [`State::follow`].
    pub(crate) fn look(&self) -> Result<MutexGuard<'_, State>> {
        let mut state = self.state();
        state.follow()?;
        Ok(state)
    }

    /// Moves the cursor, which is this process's own from then on. On error it has not moved.
    pub(crate) fn moving<T>(&self, work: impl FnOnce(&mut State) -> Result<T>) -> Result<T> {
        let mut state = self.look()?;
        let outcome = work(&mut state)?;
        state.has_moved();
        Ok(outcome)
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        // The state is replaced by whole assignments: a poisoned lock still holds a valid one.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The active table of now and its order.
    ///
    /// # Errors
    /// `Conflict` when the process that this one follows has another table now.
    pub(crate) fn snapshot(&self) -> Result<Arc<Snapshot>> {
        Ok(Arc::clone(&self.look()?.snapshot))
    }

    /// The caches, in the order they were named.
    pub fn caches(&self) -> &[Arc<Cache>] {
        &self.caches
    }

    /// Stored columns of every cache.
    pub fn schema(&self) -> &StoredSchema {
        self.caches[0].schema()
    }

    /// The active table as it is now, for others.
    ///
    /// # Errors
    /// `Conflict` when the process that this one follows has another table now.
    pub fn face(&self) -> Result<Face> {
        Ok(Face::new(self.snapshot()?, Arc::clone(&self.pool), self.read_ahead.bytes))
    }

    /// Stream positions of `indices` of the epoch that the next iterator would read, and the
    /// snapshot they belong to, its order ready.
    ///
    /// # Errors
    /// `SampleNotFound` for an index that is not below the epoch's length.
    pub fn positions_of(
        &self,
        indices: &[u64],
        attend: &mut dyn FnMut() -> Result<()>,
    ) -> Result<(Arc<Snapshot>, Vec<u64>)> {
        let (snapshot, share) = self.next_epoch()?;
        let len = share.rows();
        if let Some(i) = indices.iter().find(|&&i| i >= len) {
            let text = format!("index {i} is out of range; expected 0 <= index < {len}");
            return Err(Error::new(Kind::SampleNotFound, text));
        }
        let positions: Vec<u64> = indices.iter().map(|&i| share.position(i)).collect();
        snapshot.prepare(attend)?.prepare_each(&positions, attend)?;
        Ok((snapshot, positions))
    }

    /// The samples at any stream positions of a snapshot, in the order given.
    ///
    /// # Errors
    /// As [`Block::scattered`].
    pub fn samples_at(&self, snapshot: &Snapshot, positions: &[u64]) -> Result<Block> {
        Block::scattered(snapshot, positions, self.read_ahead.consumer_bytes())
    }

    /// One physical sample with its stored columns.
    ///
    /// # Errors
    /// `SampleNotFound` for an identity that no cache of the dataset holds.
    pub fn physical_sample(&self, cache_id: u64, sample_id: u64) -> Result<Block> {
        let cache = self.caches.iter().position(|cache| cache.cache_id() == cache_id);
        let rows = cache.map(|i| self.caches[i].rows());
        match (cache, rows) {
            (Some(cache), Some(rows)) if sample_id < rows => {
                let sample = SampleRef { cache: cache as u32, sample_id };
                // Whatever its table is: stored columns do not come from it.
                let snapshot = Arc::clone(&self.state().snapshot);
                Block::physical(&snapshot, sample)
            }
            (_, rows) => Err(Error::new(
                Kind::SampleNotFound,
                match rows {
                    None => format!(
                        "cache_id {cache_id} is not in this dataset; expected one of {:?}",
                        self.caches.iter().map(|c| c.cache_id()).take(10).collect::<Vec<_>>()
                    ),
                    Some(rows) => format!(
                        "sample_id {sample_id} is not in cache {cache_id}; expected a value below \
                         {rows}"
                    ),
                },
            )),
        }
    }
}

pub(crate) fn mean_payload_bytes<'a>(caches: impl Iterator<Item = &'a Arc<Cache>>) -> u64 {
    let (mut bytes, mut samples) = (0_u64, 0_u64);
    for cache in caches {
        bytes = bytes.saturating_add(cache.manifest().payload_bytes_total);
        samples = samples.saturating_add(cache.rows());
    }
    bytes.checked_div(samples).unwrap_or(0)
}

fn check_fits(caches: &[Arc<Cache>], cache: &Cache, paths: &[PathBuf]) -> Result<()> {
    let Some(first) = caches.first() else { return Ok(()) };
    if let Some(difference) = first.schema().difference(cache.schema()) {
        return Err(Error::invalid(format!(
            "{} and {} store different columns ({difference}); expected equal schemas in one \
             dataset; load them as two datasets or rewrite one",
            paths[0].display(),
            cache.path().display()
        )));
    }
    if let Some(same) = caches.iter().find(|other| other.cache_id() == cache.cache_id()) {
        return Err(Error::invalid(format!(
            "{} and {} hold the same contents (cache_id {}); expected each content once; drop \
             one path, or duplicate rows in the table instead",
            same.path().display(),
            cache.path().display(),
            cache.cache_id()
        )));
    }
    Ok(())
}

/// Verifies a cache at level "deep" and turns findings into an error.
///
/// # Errors
/// `Corrupt` with the first finding, or what kept the verification from running.
pub fn refuse_damaged(path: &Path, attend: &mut dyn FnMut() -> Result<()>) -> Result<()> {
    let owned = path.to_path_buf();
    let verify = move |check: Check<'_>| verify_cache_attended(&owned, Level::Deep, check);
    let report = run_apart(attend, verify)?;
    match report.first_error() {
        None => Ok(()),
        Some(finding) => {
            let advice = if finding.kind == Kind::Corrupt { "; rebuild the cache" } else { "" };
            let text = format!("{}: verification found {finding}{advice}", path.display());
            Err(Error::new(finding.kind, text))
        }
    }
}
