//! `metadata.arrow` under construction: stored columns in batches cut by the rows alone, so that
//! the same rows give the same file for any shard size and compression.

use std::path::Path;

use arrow_array::{Array, ArrayRef};
use arrow_schema::SchemaRef;

use super::column::{ColumnBuilder, add_variable_costs, fixed_cost_bytes};
use super::hashed_file::HashedFile;
use crate::Result;
use crate::format::digest::FileDigest;
use crate::format::ipc::{BatchPlace, BodyCompression, encode_batch, file_head, file_tail};
use crate::format::limits::{METADATA_BATCH_BYTES, METADATA_BATCH_ROWS};
use crate::format::schema::StoredSchema;
use crate::store::Store;

/// Gathers columns of row groups until a batch is full.
pub(crate) struct MetadataFile {
    file: HashedFile,
    schema: SchemaRef,
    stored: StoredSchema,
    places: Vec<BatchPlace>,
    /// One builder a column, so that memory follows the bytes and not the number of groups.
    pending: Vec<ColumnBuilder>,
    pending_rows: u64,
    pending_bytes: u64,
}

impl MetadataFile {
    pub(super) fn create(store: &dyn Store, path: &Path, stored: &StoredSchema) -> Result<Self> {
        Self::over(HashedFile::create(store, path)?, stored)
    }

    /// Begins the new `file`.
    pub(crate) fn over(mut file: HashedFile, stored: &StoredSchema) -> Result<Self> {
        let schema = stored.metadata_schema();
        file.write(&file_head(&schema)?)?;
        Ok(Self {
            file,
            schema,
            stored: stored.clone(),
            places: Vec::new(),
            pending: stored
                .columns()
                .iter()
                .map(|c| ColumnBuilder::new(Some(c.column_type.clone())))
                .collect(),
            pending_rows: 0,
            pending_bytes: 0,
        })
    }

    /// Takes the columns of the next rows.
    pub(crate) fn push(&mut self, columns: &[ArrayRef]) -> Result<()> {
        let rows = columns.first().map_or(0, |c| c.len());
        let fixed: u64 =
            self.stored.columns().iter().map(|c| fixed_cost_bytes(&c.column_type)).sum();
        let mut costs = vec![fixed; rows];
        for (array, column) in columns.iter().zip(self.stored.columns()) {
            add_variable_costs(array, &column.column_type, &mut costs);
        }
        let mut start = 0;
        for (row, cost) in costs.into_iter().enumerate() {
            let is_full = self.pending_rows == METADATA_BATCH_ROWS
                || self.pending_bytes + cost > METADATA_BATCH_BYTES;
            if is_full && self.pending_rows > 0 {
                self.keep(columns, start, row - start)?;
                self.write_batch()?;
                start = row;
            }
            self.pending_rows += 1;
            self.pending_bytes += cost;
        }
        self.keep(columns, start, rows - start)
    }

    fn keep(&mut self, columns: &[ArrayRef], start: usize, len: usize) -> Result<()> {
        let mut pairs = self.pending.iter_mut().zip(columns);
        pairs.try_for_each(|(builder, column)| builder.append(column, start, len))
    }

    fn write_batch(&mut self) -> Result<()> {
        self.pending_rows = 0;
        self.pending_bytes = 0;
        let columns =
            self.pending.iter_mut().map(ColumnBuilder::take).collect::<Result<Vec<_>>>()?;
        let batch = encode_batch(&self.schema, &columns, BodyCompression::None)?;
        self.places.push(batch.place_at(self.file.size_bytes()));
        batch.pieces().try_for_each(|piece| self.file.write(piece))
    }

    /// Writes what is pending and ends the file durably. A cache without stored columns has a
    /// file without batches: Arrow could not say how many rows they have.
    pub(crate) fn finish(mut self) -> Result<FileDigest> {
        if self.pending_rows > 0 {
            self.write_batch()?;
        }
        self.file.write(&file_tail(&self.schema, &self.places)?)?;
        self.file.finish()
    }
}
