//! Whole shards as Arrow batches, in the types of the file, for inspection and export.
//! Knows nothing of single payloads.

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;

use super::cache::Cache;
use super::columns::{read_batch, read_header, read_layout};
use crate::format::codec::schema_marks;
use crate::format::ipc::FileLayout;
use crate::store::{Section, guarded};
use crate::{Error, Result};

impl Cache {
    /// Shard `shard` with its file's schema: `sample_id`, stored columns, `payload` as stored.
    /// Verified and validated as a whole; shared with the mapping unless compressed by buffer or
    /// not mapped. Costs a pass over the file on the first call.
    ///
    /// # Errors
    /// `InvalidInput` for a shard the cache does not have, `Corrupt` for damage, `Conflict` when
    /// the file changed while open.
    pub fn shard_batches(&self, shard: usize) -> Result<(SchemaRef, Vec<RecordBatch>)> {
        let number = u32::try_from(shard).map_err(|_| Error::invalid("no such shard"))?;
        let batches = guarded(|section| self.read_shard_batches(section, number))?;
        self.shard(number)?.file.check_unchanged()?;
        Ok((self.shard_schema(), batches))
    }

    fn read_shard_batches(&self, section: Section<'_>, number: u32) -> Result<Vec<RecordBatch>> {
        let file = &self.shard(number)?.file;
        let schema = self.shard_schema();
        let layout = self.shard_layout(section, number)?;
        let expected = self.manifest.shards.get(number as usize).map_or(0, |entry| entry.rows);
        // Every cell is stored uncompressed in the metadata file, every payload is counted: all
        // batches together hold no more values than that.
        let mut values_left =
            self.manifest.payload_bytes_total.saturating_add(self.manifest.metadata.size_bytes);
        let mut batches = Vec::with_capacity(layout.batches.len());
        let mut rows = 0_u64;
        for place in &layout.batches {
            let header = read_header(section, file, place, &schema)?;
            rows = rows.saturating_add(header.rows);
            if rows > expected {
                break;
            }
            batches.push(read_batch(section, file, &schema, &header, &mut values_left)?);
        }
        if rows != expected {
            return Err(Error::corrupt(format!(
                "its batches have {rows} rows; expected {expected}; rebuild the cache; in {}",
                file.name()
            )));
        }
        Ok(batches)
    }

    /// The schema that every shard must have.
    pub(super) fn shard_schema(&self) -> SchemaRef {
        let dictionary = self.manifest.dictionary.as_ref().map(|file| file.blake3.as_str());
        self.schema.shard_schema(&schema_marks(&self.manifest.compression, dictionary))
    }

    /// The footer of a shard, parsed once.
    pub(super) fn shard_layout(&self, section: Section<'_>, shard: u32) -> Result<&FileLayout> {
        let shard = self.shard(shard)?;
        if let Some(layout) = shard.layout.get() {
            return Ok(layout);
        }
        let layout = read_layout(section, &shard.file, &self.shard_schema())?;
        // Never `get_or_init`: a thread lost to `fork` in the middle of it would block its child.
        let _ = shard.layout.set(layout);
        shard.layout.get().ok_or_else(|| Error::internal("a layout just set is not there"))
    }
}
