//! What a pickle carries, taken from a dataset and made into one. Knows nothing of Python.

use std::os::fd::RawFd;
use std::path::PathBuf;
use std::sync::{Arc, PoisonError};

use dataset_rt_sampler::{Cursor, Partition};
use dataset_rt_storage::format::digest::to_hex;
use dataset_rt_storage::store::{MemoryFile, SharedPage};
use dataset_rt_storage::{Error, Kind, Result};
use dataset_rt_validator::table::{CacheOrdinals, CheckedTable, RestoredOrdinals};
use serde::{Deserialize, Serialize};

use super::memory::{SectionWriter, Sections, not_written};
use super::order::{OrderMeaning, read_order, write_order};
use super::table::{read_table, write_table};
use crate::active::ActiveTable;
use crate::dataset::{Dataset, ReadOptions};
use crate::lineage::Lineage;
use crate::plan::{Plan, PlanParts};
use crate::pool::WorkerPool;
use crate::snapshot::Snapshot;
use crate::state::State;

const TABLE: &str = "table";
const CACHES: &str = "caches of rows";

/// A table and its order in shared memory.
pub struct HandedTable {
    memory: MemoryFile,
    name: String,
}

#[derive(Serialize, Deserialize)]
struct Meaning {
    edited: Vec<String>,
    /// The cache of all rows, unless each has its own.
    cache: Option<u32>,
    order: Option<OrderMeaning>,
}

/// What another process needs to have an equal dataset.
pub struct Handover {
    /// Directories of the caches, absolute.
    pub directories: Vec<PathBuf>,
    /// Hexadecimal content digest of each.
    pub contents: Vec<String>,
    /// Where the stream stands.
    pub cursor: Cursor,
    /// Descriptor, process and name of the memory of an edited table.
    pub memory: Option<(RawFd, u32, String)>,
    /// Descriptor and number of each page to follow, nearest first, and the number of the table
    /// they must speak of.
    pub pages: Option<(Vec<(RawFd, usize)>, u64)>,
}

/// [`Handover`] where it arrived.
pub struct Received {
    /// Hexadecimal content digest of each cache.
    pub contents: Vec<String>,
    /// Where the stream stands; at its beginning by default.
    pub cursor: Option<Cursor>,
    /// Whose share of it is read.
    pub partition: Partition,
    /// Memory of an edited table, and its name.
    pub memory: Option<(MemoryFile, String)>,
    /// The pages to follow, nearest first, and the number of the table they must speak of.
    pub pages: Option<(Vec<Arc<SharedPage>>, u64)>,
}

impl Dataset {
    /// What another process needs. For one that `is_started` now, and inherits the descriptors,
    /// pages with the cursor to follow go along.
    ///
    /// The first call after a table was handed in works out its order and writes both to shared
    /// memory. Descriptors stay open as long as this dataset and its table live.
    ///
    /// # Errors
    /// `Exhausted` without memory for the table, or what `attend` returned.
    pub fn hand_over(
        &self,
        is_started: bool,
        attend: &mut dyn FnMut() -> Result<()>,
    ) -> Result<Handover> {
        let snapshot = self.snapshot()?;
        snapshot.handed(attend)?;
        let (snapshot, cursor, pages) = {
            let mut state = self.look()?;
            let State { snapshot, cursor, lineage, .. } = &mut *state;
            let pages = match is_started {
                true => Some((lineage.share_with_started(*cursor)?, lineage.table())),
                false => None,
            };
            (Arc::clone(snapshot), *cursor, pages)
        };
        // Mostly the same as above, unless another thread replaced the table meanwhile.
        let memory = match snapshot.handed(attend)? {
            None => None,
            Some(table) => {
                let descriptor = self.keep_for_others(&table.memory)?;
                Some((descriptor, std::process::id(), table.name.clone()))
            }
        };
        let (directories, contents) = self.sources();
        Ok(Handover { directories, contents, cursor, memory, pages })
    }

    /// Absolute directories of the caches and their content digests, hexadecimal.
    pub fn sources(&self) -> (Vec<PathBuf>, Vec<String>) {
        let contents = self.caches.iter().map(|cache| to_hex(cache.content_digest()));
        (self.directories.to_vec(), contents.collect())
    }

    /// Samples per epoch of all ranks, if that was set since the table was handed in.
    ///
    /// # Errors
    /// As [`Dataset::epoch_len`].
    pub fn epoch_len_set(&self) -> Result<Option<u64>> {
        let cursor = self.look()?.cursor;
        Ok(cursor.len_was_set.then_some(cursor.len))
    }

    /// A descriptor of `memory` for this dataset alone, since nobody can be given one twice.
    fn keep_for_others(&self, memory: &MemoryFile) -> Result<RawFd> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let is_same = |kept: &&MemoryFile| kept.bytes().as_ptr() == memory.bytes().as_ptr();
        if let Some(kept) = kept.as_ref().filter(is_same) {
            return Ok(kept.descriptor());
        }
        Ok(kept.insert(memory.try_clone()?).descriptor())
    }

    /// The dataset that [`Dataset::hand_over`] described, over the caches at `paths`.
    ///
    /// # Errors
    /// As [`Dataset::open`]; `Conflict` when a cache holds other contents now, `NotFound` when the
    /// memory of the table is not the one meant.
    pub fn take_over(
        paths: &[PathBuf],
        options: ReadOptions,
        pool: Arc<WorkerPool>,
        received: Received,
        attend: &mut dyn FnMut() -> Result<()>,
    ) -> Result<Self> {
        let Received { contents, cursor, partition, memory, pages } = received;
        let opened = Self::open(paths, options, pool, attend);
        let dataset = opened.map_err(|error| match error.kind() {
            Kind::NotFound => {
                let digests = contents.join(", ");
                error.within(format!("unpickling a dataset of caches with content {digests}"))
            }
            _ => error,
        })?;
        for (cache, expected) in dataset.caches.iter().zip(&contents) {
            let found = to_hex(cache.content_digest());
            if found != *expected {
                return Err(Error::conflict(format!(
                    "{} holds other contents than when the dataset was pickled: found content \
                     digest {found}; expected {expected}; restore the cache, or open it afresh",
                    cache.path().display()
                )));
            }
        }
        let snapshot = match memory {
            None => dataset.snapshot()?,
            Some((memory, name)) => Arc::new(dataset.snapshot_in(HandedTable { memory, name })?),
        };
        let mut state = dataset.state();
        let lineage = pages.map_or_else(Lineage::new, |(pages, of)| Lineage::following(pages, of));
        *state = State::of(snapshot, cursor.unwrap_or(state.cursor), lineage);
        drop(state);
        Ok(dataset.of_rank(partition))
    }

    fn snapshot_in(&self, handed: HandedTable) -> Result<Snapshot> {
        let sections = Sections::read(&handed.memory, &handed.name)?;
        let incomplete = || Error::corrupt("a table in shared memory is not complete");
        let meaning: Meaning = serde_json::from_value(sections.meaning().clone())
            .map_err(|e| Error::corrupt(format!("a table in shared memory: {e}")))?;
        let table = sections.section(TABLE).ok_or_else(incomplete)?;
        // SAFETY: the name told that this is the memory which a process of ours filled with a
        // checked table and then sealed, or a copy of it.
        let (schema, batches) = unsafe { read_table(table) }?;
        let ordinals = match meaning.cache {
            Some(cache) => RestoredOrdinals::One(cache),
            None => RestoredOrdinals::PerRow(sections.numbers(CACHES).ok_or_else(incomplete)?),
        };
        let checked = CheckedTable::restored(schema, batches, ordinals, meaning.edited)?;
        let table = ActiveTable::checked(Arc::clone(&self.caches), checked);
        let options = self.options();
        let plan = match &meaning.order {
            None => None,
            Some(order) => {
                let (digest, rows, weights) = read_order(order, &sections)?;
                Some(Plan::restored(options.mode, options.seed, digest, rows, weights, &table)?)
            }
        };
        Ok(self.snapshot_of(table).with_handed(plan, handed))
    }
}

impl HandedTable {
    /// Writes a table and its order.
    ///
    /// # Errors
    /// `Exhausted` without memory for it, or what `attend` returned.
    pub fn write(
        table: &CheckedTable,
        order: Option<PlanParts<'_>>,
        attend: &mut dyn FnMut() -> Result<()>,
    ) -> Result<Self> {
        let mut out = SectionWriter::create()?;
        out.section(TABLE, |out| {
            write_table(table.schema(), table.batches(), out, &not_written, attend)
        })?;
        let cache = match table.caches() {
            CacheOrdinals::One(cache) => Some(cache),
            CacheOrdinals::PerRow(caches) => {
                out.numbers(CACHES, caches, attend)?;
                None
            }
        };
        let order = match order {
            None => None,
            Some(parts) => Some(write_order(&parts, &mut out, attend)?),
        };
        let meaning = Meaning { edited: table.edited().to_vec(), cache, order };
        let meaning = serde_json::to_value(&meaning).map_err(|e| Error::internal(e.to_string()))?;
        let (memory, name) = out.finish(meaning)?;
        Ok(Self { memory, name })
    }
}
