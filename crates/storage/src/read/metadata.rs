//! The metadata table: `metadata.arrow`, parsed when something needs it first.
//! Knows nothing of single cells.

use std::sync::Arc;

use arrow_array::{RecordBatch, RecordBatchOptions};
use arrow_schema::SchemaRef;

use super::cache::Cache;
use super::columns::{buffer_roles, read_batch, read_header, read_layout};
use crate::format::ipc::{BatchLayout, BodyKind};
use crate::store::{Section, guarded};
use crate::{Error, Result};

/// Where the columns of the metadata table lie.
pub(super) struct MetadataTable {
    pub schema: SchemaRef,
    pub batches: Vec<BatchLayout>,
    /// First row of each batch, and the row count at the end.
    pub starts: Vec<u64>,
    /// Number of the first buffer of each column, the same in every batch.
    pub first_buffers: Vec<usize>,
}

impl Cache {
    /// The whole metadata table as Arrow batches of stored columns: verified, offsets and text
    /// checked, and shared with the mapping where the file is mapped: our own code looks at them
    /// in guarded sections. The first call costs a pass over the file; later ones only the list.
    ///
    /// # Errors
    /// `Corrupt` when the file is damaged or not what the manifest says, `Conflict` when it
    /// changed while open.
    pub fn metadata_batches(&self) -> Result<Vec<RecordBatch>> {
        self.metadata_batches_attended(&mut || Ok(()))
    }

    /// [`Cache::metadata_batches`], calling `attend` before every batch; its error ends the pass.
    ///
    /// # Errors
    /// As [`Cache::metadata_batches`], or what `attend` returned.
    pub fn metadata_batches_attended(
        &self,
        attend: &mut dyn FnMut() -> Result<()>,
    ) -> Result<Vec<RecordBatch>> {
        if let Some(batches) = self.metadata_batches.get() {
            self.metadata.check_unchanged()?;
            return Ok(batches.clone());
        }
        let batches = guarded(|section| self.read_metadata_batches(section, attend))?;
        self.metadata.check_unchanged()?;
        // Never `get_or_init`: a thread lost to `fork` in the middle of it would block its child.
        let _ = self.metadata_batches.set(batches.clone());
        Ok(self.metadata_batches.get().cloned().unwrap_or(batches))
    }

    fn read_metadata_batches(
        &self,
        section: Section<'_>,
        attend: &mut dyn FnMut() -> Result<()>,
    ) -> Result<Vec<RecordBatch>> {
        let table = self.metadata_table(section)?;
        if table.schema.fields().is_empty() {
            return self.rows_without_columns(&table.schema).map(|batch| vec![batch]);
        }
        // Counts compressed values; there are none in this file.
        let mut unlimited = u64::MAX;
        let batches = table.batches.iter().map(|layout| {
            attend()?;
            read_batch(section, &self.metadata, &table.schema, layout, &mut unlimited)
        });
        batches.collect()
    }

    /// Footer and batch headers of the metadata file.
    pub(super) fn metadata_table(&self, section: Section<'_>) -> Result<&MetadataTable> {
        if let Some(table) = self.metadata_table.get() {
            return Ok(table);
        }
        let table = self.read_metadata_table(section)?;
        let _ = self.metadata_table.set(table);
        self.metadata_table.get().ok_or_else(|| Error::internal("a table just set is not there"))
    }

    #[cold]
    fn read_metadata_table(&self, section: Section<'_>) -> Result<MetadataTable> {
        let schema = self.schema.metadata_schema();
        let layout = read_layout(section, &self.metadata, &schema)?;
        let mut batches = Vec::with_capacity(layout.batches.len());
        let mut starts = vec![0_u64];
        let mut rows = 0_u64;
        for place in &layout.batches {
            let batch = read_header(section, &self.metadata, place, &schema)?;
            if batch.compression != BodyKind::None {
                return Err(self.unfit("it is compressed"));
            }
            // Batches hold at most 2^31 rows each and the file less than 2^60 of them.
            rows = rows.saturating_add(batch.rows);
            starts.push(rows);
            batches.push(batch);
        }
        // Without columns Arrow cannot say how many rows there are: the file has no batches.
        let expected = if schema.fields().is_empty() { 0 } else { self.rows() };
        if rows != expected {
            return Err(self.unfit(&format!("it has {rows} rows; expected {expected}")));
        }
        let mut first_buffers = Vec::with_capacity(schema.fields().len());
        let mut buffers = 0;
        for field in schema.fields() {
            first_buffers.push(buffers);
            buffers += buffer_roles(field.data_type()).len();
        }
        Ok(MetadataTable { schema, batches, starts, first_buffers })
    }

    fn rows_without_columns(&self, schema: &SchemaRef) -> Result<RecordBatch> {
        let rows = usize::try_from(self.rows()).unwrap_or(usize::MAX);
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        RecordBatch::try_new_with_options(Arc::clone(schema), Vec::new(), &options)
            .map_err(|e| Error::internal(format!("cannot count rows without columns: {e}")))
    }

    fn unfit(&self, what: &str) -> Error {
        Error::corrupt(format!("{what}; rebuild the cache; in {}", self.metadata.name()))
    }
}
