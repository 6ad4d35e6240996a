//! Place in the stream and active table saved and loaded together. Knows no file format.

use std::path::Path;
use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use dataset_rt_storage::store::Store;
use dataset_rt_storage::{Error, Result};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::active::ActiveTable;
use crate::dataset::Dataset;
use crate::saved;
use crate::saved_document::{Form, parsed};
use crate::saved_files::{SavedTable, document_path, save_files};
use crate::snapshot::Snapshot;

/// What the document of a saved state says.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct StateContents {
    state: Value,
}

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
        let contents = serde_json::to_string(&StateContents { state })
            .map_err(|e| Error::internal(e.to_string()))?;
        save_with_table(&snapshot, store, directory, Form::STATE, &contents, attend)
    }

    /// Saves a configuration of this dataset and, if a user replaced it, the table.
    ///
    /// # Errors
    /// As [`save_files`].
    pub fn save_config_with_table(
        &self,
        store: &dyn Store,
        directory: &Path,
        contents: &str,
        attend: &mut dyn FnMut() -> Result<()>,
    ) -> Result<()> {
        let snapshot = self.snapshot()?;
        save_with_table(&snapshot, store, directory, Form::CONFIG, contents, attend)
    }

    /// Takes over a saved table, or the untouched one, and the state that goes with it: the next
    /// iterator begins there. On error nothing changes.
    ///
    /// # Errors
    /// `Corrupt` for contents that no dataset saves, else as [`Dataset::update_table`] and
    /// [`Dataset::load_state`].
    pub fn load_state_with_table(
        &self,
        directory: &Path,
        contents: &str,
        table: Option<(&SchemaRef, &[RecordBatch], &[String])>,
        attend: &mut dyn FnMut() -> Result<()>,
    ) -> Result<()> {
        let place = |error: Error| error.within(document_path(directory, Form::STATE).display());
        let state = state_of(contents).map_err(place)?;
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
        self.replace_table(snapshot, |place| {
            *place = cursor;
            Ok(())
        })
    }
}

fn save_with_table(
    snapshot: &Snapshot,
    store: &dyn Store,
    directory: &Path,
    form: Form,
    contents: &str,
    attend: &mut dyn FnMut() -> Result<()>,
) -> Result<()> {
    let table = snapshot.table().as_checked().map(|table| SavedTable {
        schema: table.schema(),
        batches: table.batches(),
        edited: table.edited(),
    });
    save_files(store, directory, form, contents, table.as_ref(), attend)
}

/// The state in a document, as [`Dataset::load_state`] takes it.
fn state_of(contents: &str) -> Result<String> {
    let contents: Value =
        serde_json::from_str(contents).map_err(|e| Error::internal(e.to_string()))?;
    let StateContents { state } = parsed("document", &contents)?;
    saved::check_fields(&state)?;
    Ok(state.to_string())
}
