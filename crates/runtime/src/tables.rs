//! The active table of a dataset: shown, checked and replaced.

use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use dataset_rt_sampler::Cursor;
use dataset_rt_storage::Result;
use dataset_rt_storage::store::guarded;
use dataset_rt_validator::table::{CacheColumns, check_table};

use crate::active::{ActiveTable, metadata_of};
use crate::dataset::Dataset;
use crate::orders_before_fork;
use crate::snapshot::Snapshot;
use crate::windows::cursor_error;

impl Dataset {
    /// The active table as record batches: identity, stored, weight, extras.
    ///
    /// # Errors
    /// `Corrupt` when metadata is damaged, `Conflict` when it changed while open.
    pub fn table(
        &self,
        attend: &mut dyn FnMut() -> Result<()>,
    ) -> Result<(SchemaRef, Vec<RecordBatch>)> {
        let snapshot = self.snapshot()?;
        let batches = snapshot.table().frame(attend)?;
        self.check_tables()?;
        Ok((snapshot.table().frame_schema(), batches))
    }

    /// Stored columns whose values may differ from the caches', `None` for the caches' own table.
    ///
    /// # Errors
    /// `Conflict` in a process whose table is gone, see [`Dataset::table`].
    pub fn edited_columns(&self) -> Result<Option<Vec<String>>> {
        Ok(self.snapshot()?.table().as_checked().map(|table| table.edited().to_vec()))
    }

    fn check_tables(&self) -> Result<()> {
        self.caches.iter().try_for_each(|cache| cache.check_tables_unchanged())
    }

    /// Replaces the active table after full validation; on error nothing changes.
    ///
    /// `table` must have passed Arrow's full validation. Columns named in `edited` may differ
    /// from the caches' values.
    ///
    /// # Errors
    /// `InvalidInput` naming column, row, expected and found.
    pub fn update_table(
        &self,
        table_schema: &SchemaRef,
        table: &[RecordBatch],
        edited: &[String],
        attend: &mut dyn FnMut() -> Result<()>,
    ) -> Result<()> {
        let snapshot = self.checked_snapshot(table_schema, table, edited, attend)?;
        let rows = snapshot.table().rows();
        // The last look: whoever interrupted until here finds the old table.
        attend()?;
        orders_before_fork::remember(&snapshot);
        self.replace_table(snapshot, |cursor| cursor.table_replaced(rows).map_err(cursor_error))
    }

    /// Reads `snapshot` from now on, from where `place` moves the cursor. On error nothing changes.
    ///
    /// # Errors
    /// Those of `place`, or `Conflict` when the process that this one follows has another table.
    pub(crate) fn replace_table(
        &self,
        snapshot: Arc<Snapshot>,
        place: impl FnOnce(&mut Cursor) -> Result<()>,
    ) -> Result<()> {
        let replaced = self.moving(|state| {
            place(&mut state.cursor)?;
            state.newest = None;
            state.lineage.count_table();
            Ok(std::mem::replace(&mut state.snapshot, snapshot))
        })?;
        // Its columns may be Python's, which takes the interpreter lock to let them go; who has
        // that lock may be asking for the state.
        drop(replaced);
        Ok(())
    }

    /// A table that passed full validation, and its order.
    ///
    /// # Errors
    /// As [`Dataset::update_table`].
    pub(crate) fn checked_snapshot(
        &self,
        table_schema: &SchemaRef,
        table: &[RecordBatch],
        edited: &[String],
        attend: &mut dyn FnMut() -> Result<()>,
    ) -> Result<Arc<Snapshot>> {
        let stored: Vec<Vec<RecordBatch>> =
            self.caches.iter().map(|cache| metadata_of(cache, attend)).collect::<Result<_>>()?;
        let columns: Vec<CacheColumns<'_>> = self
            .caches
            .iter()
            .zip(&stored)
            .map(|(cache, batches)| CacheColumns {
                cache_id: cache.cache_id(),
                rows: cache.rows(),
                batches,
            })
            .collect();
        // Both tables may lie in mapped files: the user's may be made of ours.
        let checked =
            guarded(|_| check_table(table_schema, table, self.schema(), &columns, edited, attend));
        // First: what changed meanwhile may be why the table looks wrong.
        self.check_tables()?;
        let checked = checked?;
        let active = ActiveTable::checked(Arc::clone(&self.caches), checked);
        Ok(Arc::new(self.snapshot_of(active)))
    }

    /// A table with the order of this dataset's options.
    pub(crate) fn snapshot_of(&self, table: ActiveTable) -> Snapshot {
        let options = self.options();
        Snapshot::new(table, options.mode, options.seed, Arc::clone(&self.fetchers))
    }
}
