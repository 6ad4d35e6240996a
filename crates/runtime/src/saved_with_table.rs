//! Place in the stream and active table saved and loaded together. Knows no file format.

use std::path::Path;
use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use dataset_rt_storage::store::Store;
use dataset_rt_storage::{Error, Result};
use serde_json::{Value, json};

use crate::active::ActiveTable;
use crate::dataset::Dataset;
use crate::saved_files::{SavedTable, save_files};
use crate::snapshot::Snapshot;

/// Name of the files of a saved state.
const STATE_STEM: &str = "state";
const FORMAT: &str = "dataset_rt.saved_state";
const VERSION: u32 = 1;

impl Dataset {
    /// Saves state and, if a user replaced it, table in `directory`; see [`save_files`].
    ///
    /// # Errors
    /// As [`Dataset::save_state`] and [`save_files`]; `Conflict` when the table is replaced
    /// meanwhile.
    pub fn save_state_with_table(
        &self,
        store: &dyn Store,
        directory: &Path,
        attend: &mut dyn FnMut() -> Result<()>,
    ) -> Result<()> {
        let snapshot = self.snapshot()?;
        let state = self.save_state(attend)?;
        if !Arc::ptr_eq(&snapshot, &self.snapshot()?) {
            return Err(Error::conflict(
                "the table was replaced while the state was saved; save it once more",
            ));
        }
        let state: Value =
            serde_json::from_str(&state).map_err(|e| Error::internal(e.to_string()))?;
        let document = json!({"format": FORMAT, "version": VERSION, "state": state});
        save_with_table(&snapshot, store, directory, STATE_STEM, &document.to_string(), attend)
    }

    /// Saves a document about this dataset and, if a user replaced it, the table.
    ///
    /// # Errors
    /// As [`save_files`].
    pub fn save_document_with_table(
        &self,
        store: &dyn Store,
        directory: &Path,
        stem: &str,
        document: &str,
        attend: &mut dyn FnMut() -> Result<()>,
    ) -> Result<()> {
        let snapshot = self.snapshot()?;
        save_with_table(&snapshot, store, directory, stem, document, attend)
    }

    /// Takes over a saved table, or the untouched one, and the state that goes with it: the next
    /// iterator begins there. On error nothing changes.
    ///
    /// # Errors
    /// As [`Dataset::update_table`] and [`Dataset::load_state`].
    pub fn load_state_with_table(
        &self,
        document: &str,
        table: Option<(&SchemaRef, &[RecordBatch], &[String])>,
        attend: &mut dyn FnMut() -> Result<()>,
    ) -> Result<()> {
        let state = state_of(document)?;
        let now = self.snapshot()?;
        let snapshot = match table {
            Some((schema, batches, edited)) => {
                self.checked_snapshot(schema, batches, edited, attend)?
            }
            None if now.table().as_checked().is_none() => return self.load_state(&state, attend),
            None => Arc::new(self.snapshot_of(ActiveTable::whole(Arc::clone(&self.caches)))),
        };
        let cursor = self.cursor_of(&state, &snapshot, attend)?;
        attend()?;
        let replaced = self.moving(|state| {
            state.cursor = cursor;
            state.newest = None;
            state.lineage.count_table();
            Ok(std::mem::replace(&mut state.snapshot, snapshot))
        })?;
        // Outside the lock, as in `update_table`.
        drop(replaced);
        Ok(())
    }
}

fn save_with_table(
    snapshot: &Snapshot,
    store: &dyn Store,
    directory: &Path,
    stem: &str,
    document: &str,
    attend: &mut dyn FnMut() -> Result<()>,
) -> Result<()> {
    let table = snapshot.table().as_checked().map(|table| SavedTable {
        schema: table.schema(),
        batches: table.batches(),
        edited: table.edited(),
    });
    save_files(store, directory, stem, document, table.as_ref(), attend)
}

/// The state in a document, as [`Dataset::load_state`] takes it.
fn state_of(document: &str) -> Result<String> {
    let document: Value = serde_json::from_str(document)
        .map_err(|e| Error::invalid(format!("this is no saved state of a dataset: {e}")))?;
    let (format, version) = (&document["format"], &document["version"]);
    if format != FORMAT || version != VERSION {
        return Err(Error::invalid(format!(
            "found format {format}, version {version}; expected {FORMAT:?}, version {VERSION}; \
             use the release that saved it"
        )));
    }
    Ok(document["state"].to_string())
}
