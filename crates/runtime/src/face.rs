//! One state of a table as others take it: whole or in part, in table order, payloads included.
//! Moves no stream and knows no Python.

use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::{Schema, SchemaRef};
use dataset_rt_sampler::Mode;
use dataset_rt_storage::read::Cache;
use dataset_rt_storage::{Error, Result};

use crate::active::ActiveTable;
use crate::batch::{BatchLoader, Rows};
use crate::batches::{Batches, Cut};
use crate::block::FetcherShelf;
use crate::pool::WorkerPool;
use crate::projection::{Projection, face_schema};
use crate::resources::readahead_bytes_default;
use crate::snapshot::Snapshot;

/// Most rows of a batch.
const BATCH_ROWS_MAX: u64 = 65_536;
/// Payload bytes that a batch of payloads of mean size has.
const BATCH_BYTES: u64 = 16 * 1024 * 1024;
/// Payload bytes after which a batch ends early; one larger payload is alone.
const BATCH_BYTES_MAX: u64 = 2 * BATCH_BYTES;
/// Batches under way.
const SLOTS: u64 = 4;

/// A table as it was when this was made, and what it takes to read it.
pub struct Face {
    snapshot: Arc<Snapshot>,
    pool: Arc<WorkerPool>,
    /// Bytes of payload that may be under way.
    budget_bytes: u64,
}

impl Face {
    /// The table of `snapshot`, read ahead by `pool` within `budget_bytes`.
    pub fn new(snapshot: Arc<Snapshot>, pool: Arc<WorkerPool>, budget_bytes: u64) -> Self {
        Self { snapshot, pool, budget_bytes }
    }

    /// All of one cache, without threads.
    pub fn of_cache(cache: Arc<Cache>) -> Self {
        let table = ActiveTable::whole(Arc::from([cache]));
        let snapshot = Snapshot::new(table, Mode::Sequential, 0, Arc::new(FetcherShelf::default()));
        Self::new(Arc::new(snapshot), Arc::new(WorkerPool::new(0)), readahead_bytes_default())
    }

    /// All columns: those of the table, and `payload`.
    pub fn schema(&self) -> SchemaRef {
        Arc::new(face_schema(self.snapshot.table()))
    }

    /// Rows of the table.
    pub fn rows(&self) -> u64 {
        self.snapshot.table().rows()
    }

    /// The columns called `names`, or all; in the order and the forms of `wanted`, if given.
    ///
    /// # Errors
    /// `InvalidInput` for columns that are not there, come twice, or have another type.
    pub fn project(&self, names: Option<&[String]>, wanted: Option<&Schema>) -> Result<Projection> {
        match wanted {
            None => Projection::new(self.snapshot.table(), names),
            Some(wanted) => Projection::like(self.snapshot.table(), names, wanted),
        }
    }

    /// The whole table if it can be had without reading it row by row: no payload, no other
    /// forms. Stored columns share the caches' own buffers.
    ///
    /// # Errors
    /// `Corrupt` when metadata is damaged, `Conflict` when it changed while open, or what
    /// `attend` returned.
    pub fn shared(
        &self,
        projection: &Projection,
        attend: &mut dyn FnMut() -> Result<()>,
    ) -> Result<Option<Vec<RecordBatch>>> {
        let table = self.snapshot.table();
        if projection.has_payload() || !projection.is_unchanged(table) {
            return Ok(None);
        }
        let frame = table.frame(attend)?;
        self.check_unchanged()?;
        frame.iter().map(|batch| projection.of_frame(batch)).collect::<Result<_>>().map(Some)
    }

    /// Fails when the metadata of a cache changed since it was opened.
    ///
    /// # Errors
    /// `Conflict` then, `Unavailable` when that cannot be told.
    pub fn check_unchanged(&self) -> Result<()> {
        let mut caches = self.snapshot.table().caches().iter();
        caches.try_for_each(|cache| cache.check_tables_unchanged())
    }

    /// Rows of the table, all or those `listed`, in batches of bounded rows and bytes.
    ///
    /// # Errors
    /// `InvalidInput` for a listed row that the table does not have.
    pub fn batches(&self, projection: Projection, listed: Option<Arc<[u64]>>) -> Result<Batches> {
        let table = self.snapshot.table();
        if let Some(row) =
            listed.iter().flat_map(|rows| rows.iter()).find(|&&row| row >= self.rows())
        {
            return Err(Error::invalid(format!(
                "there is no table row {row}; expected one below {}",
                self.rows()
            )));
        }
        let (mut bytes, mut samples) = (0_u64, 0_u64);
        for cache in table.caches().iter() {
            bytes = bytes.saturating_add(cache.manifest().payload_bytes_total);
            samples = samples.saturating_add(cache.rows());
        }
        let mean = bytes.checked_div(samples).unwrap_or(0).max(1);
        let (batch_rows, slots) = match projection.has_payload() {
            true => {
                let rows = (BATCH_BYTES / mean).clamp(1, BATCH_ROWS_MAX);
                (rows, (self.budget_bytes / mean.saturating_mul(rows)).clamp(1, SLOTS))
            }
            false => (BATCH_ROWS_MAX, SLOTS),
        };
        let rows = listed.as_ref().map_or(self.rows(), |listed| listed.len() as u64);
        let loader = BatchLoader {
            snapshot: Arc::clone(&self.snapshot),
            projection,
            rows: listed.map_or(Rows::Table, Rows::Listed),
            bytes_max: BATCH_BYTES_MAX,
        };
        Ok(Batches::new(loader, Arc::clone(&self.pool), Cut::every(rows, batch_rows), slots))
    }
}
