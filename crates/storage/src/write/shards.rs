//! The shard files of a cache under construction: opens, fills and closes them in row order.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_schema::SchemaRef;

use super::encode::EncodedGroup;
use super::hashed_file::HashedFile;
use crate::format::digest::{Digest, to_hex};
use crate::format::index::{IndexKind, IndexRecord};
use crate::format::ipc::{BatchPlace, file_head, file_tail};
use crate::format::manifest::{ShardEntry, shard_path};
use crate::store::Store;
use crate::{Error, Result};

/// Writes batches into shards of bounded size.
pub(super) struct ShardWriter {
    store: Arc<dyn Store>,
    directory: PathBuf,
    schema: SchemaRef,
    kind: IndexKind,
    max_shard_bytes: u64,
    tail_bytes: u64,
    open: Option<OpenShard>,
    finished: Vec<ShardEntry>,
}

/// Bytes that one batch adds to the footer of its file.
const FOOTER_ENTRY_BYTES: u64 = 24;
/// Slack for the alignment of the footer's parts.
const FOOTER_SLACK_BYTES: u64 = 16;

struct OpenShard {
    file: HashedFile,
    places: Vec<BatchPlace>,
    rows: u64,
}

impl ShardWriter {
    pub(super) fn new(
        store: Arc<dyn Store>,
        directory: &Path,
        schema: SchemaRef,
        kind: IndexKind,
        max_shard_bytes: u64,
    ) -> Result<Self> {
        Ok(Self {
            tail_bytes: file_tail(&schema, &[])?.len() as u64 + FOOTER_SLACK_BYTES,
            store,
            directory: directory.to_owned(),
            schema,
            kind,
            max_shard_bytes,
            open: None,
            finished: Vec::new(),
        })
    }

    /// Whether the open shard must be closed before `group` goes in.
    pub(super) fn is_full_for(&self, group: &EncodedGroup) -> bool {
        self.open.as_ref().is_some_and(|shard| {
            let entries = (shard.places.len() as u64 + 1) * FOOTER_ENTRY_BYTES;
            let batches = shard.file.size_bytes() + group.batch.size_bytes();
            batches + entries + self.tail_bytes > self.max_shard_bytes
        })
    }

    /// Writes one batch and gives `record` the index record of each of its samples.
    pub(super) fn write(
        &mut self,
        group: &EncodedGroup,
        record: &mut dyn FnMut(IndexRecord) -> Result<()>,
    ) -> Result<()> {
        if self.open.is_none() {
            self.open = Some(self.open_next()?);
        }
        let Some(shard) = &mut self.open else {
            return Err(Error::internal("no shard is open"));
        };
        let place = group.batch.place_at(shard.file.size_bytes());
        for piece in group.batch.pieces() {
            shard.file.write(piece)?;
        }
        let values = group
            .batch
            .buffer_ranges
            .last()
            .ok_or_else(|| Error::internal("a batch has no payload buffer"))?;
        let batch_number = shard.places.len() as u32;
        let values_start = place.body_start() + values.start;
        let raw = group.group.payload().value_offsets();
        for (stored, raw) in group.stored_offsets.windows(2).zip(raw.windows(2)) {
            // Payload lengths were checked against 2^31 - 1; a frame adds a few bytes at most.
            let raw_len = (raw[1] - raw[0]) as u32;
            record(match self.kind {
                IndexKind::FileRange => IndexRecord::FileRange {
                    offset: values_start + stored[0] as u64,
                    stored_len: (stored[1] - stored[0]) as u32,
                    raw_len,
                },
                IndexKind::BatchRange => {
                    let offset = stored[0] as u64;
                    IndexRecord::BatchRange { offset, batch: batch_number, raw_len }
                }
            })?;
        }
        shard.places.push(place);
        shard.rows += group.group.rows();
        Ok(())
    }

    fn open_next(&self) -> Result<OpenShard> {
        let path = self.directory.join(shard_path(self.finished.len()));
        let mut file = HashedFile::create(self.store.as_ref(), &path)?;
        file.write(&file_head(&self.schema)?)?;
        Ok(OpenShard { file, places: Vec::new(), rows: 0 })
    }

    /// Closes the open shard durably; gives its block digests, or `None` when none is open.
    pub(super) fn close(&mut self) -> Result<Option<Vec<Digest>>> {
        let Some(mut shard) = self.open.take() else { return Ok(None) };
        shard.file.write(&file_tail(&self.schema, &shard.places)?)?;
        let digest = shard.file.finish()?;
        self.finished.push(ShardEntry {
            path: shard_path(self.finished.len()),
            size_bytes: digest.size_bytes,
            blake3: to_hex(&digest.root),
            rows: shard.rows,
        });
        Ok(Some(digest.leaves))
    }

    pub(super) fn into_entries(self) -> Vec<ShardEntry> {
        self.finished
    }
}
