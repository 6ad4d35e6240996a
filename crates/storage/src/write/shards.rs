//! The shard files of a cache under construction: opens, fills and closes them in row order.
//! Shards that an interrupted write finished are compared with what would be written instead.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_schema::SchemaRef;

use super::encode::EncodedGroup;
use super::hashed_file::HashedFile;
use super::journal::Journal;
use super::replay::ReplayedFile;
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
    /// Shards it records beyond the finished ones are compared before they are replaced.
    journal: Option<Journal>,
    rows: u64,
    rows_reused: u64,
    differs_at: Option<u64>,
}

/// Bytes that one batch adds to the footer of its file.
const FOOTER_ENTRY_BYTES: u64 = 24;
/// Slack for the alignment of the footer's parts.
const FOOTER_SLACK_BYTES: u64 = 16;

struct OpenShard {
    file: ShardFile,
    places: Vec<BatchPlace>,
    rows: u64,
}

enum ShardFile {
    New(HashedFile),
    Replayed(ReplayedFile),
}

impl ShardFile {
    fn size_bytes(&self) -> u64 {
        match self {
            Self::New(file) => file.size_bytes(),
            Self::Replayed(file) => file.size_bytes(),
        }
    }
}

impl ShardWriter {
    pub(super) fn new(
        store: Arc<dyn Store>,
        directory: &Path,
        schema: SchemaRef,
        kind: IndexKind,
        max_shard_bytes: u64,
        journal: Option<Journal>,
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
            journal,
            rows: 0,
            rows_reused: 0,
            differs_at: None,
        })
    }

    /// Shards that the next run would find, should this one end now.
    pub(super) fn journalled(&self) -> usize {
        self.journal.as_ref().map_or(0, Journal::len)
    }

    /// Rows of shards that an interrupted write had finished and this one kept.
    pub(super) fn rows_reused(&self) -> u64 {
        self.rows_reused
    }

    /// First row whose batch was not what an interrupted write had stored.
    pub(super) fn differs_at(&self) -> Option<u64> {
        self.differs_at
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
            self.open_next()?;
        }
        let values = group
            .batch
            .buffer_ranges
            .last()
            .ok_or_else(|| Error::internal("a batch has no payload buffer"))?;
        let place = group.batch.place_at(self.open()?.file.size_bytes());
        for piece in group.batch.pieces() {
            self.put(piece)?;
        }
        let shard = self.open()?;
        let batch = shard.places.len() as u32;
        shard.places.push(place);
        shard.rows += group.group.rows();
        self.rows += group.group.rows();
        let payloads = StoredPayloads {
            values_start: place.body_start() + values.start,
            batch,
            stored_offsets: &group.stored_offsets,
            raw_offsets: group.group.payload().value_offsets(),
        };
        payloads.index_records(self.kind, record)
    }

    fn open(&mut self) -> Result<&mut OpenShard> {
        self.open.as_mut().ok_or_else(|| Error::internal("no shard is open"))
    }

    fn open_next(&mut self) -> Result<()> {
        let path = self.directory.join(shard_path(self.finished.len()));
        let file = if self.finished.len() < self.journalled() {
            ShardFile::Replayed(ReplayedFile::open(&path)?)
        } else {
            ShardFile::New(HashedFile::create(self.store.as_ref(), &path)?)
        };
        self.open = Some(OpenShard { file, places: Vec::new(), rows: 0 });
        self.put(&file_head(&self.schema)?)
    }

    /// The next bytes of the open shard: written, unless they stand there already.
    fn put(&mut self, bytes: &[u8]) -> Result<()> {
        if let ShardFile::Replayed(file) = &mut self.open()?.file {
            if file.matches(bytes)? {
                return Ok(());
            }
            self.diverge()?;
        }
        match &mut self.open()?.file {
            ShardFile::New(file) => file.write(bytes),
            ShardFile::Replayed(_) => Err(Error::internal("a shard is still compared")),
        }
    }

    /// From here on this run wrote something else: stored rows are dropped, what was found equal
    /// goes into a new file.
    fn diverge(&mut self) -> Result<()> {
        self.differs_at.get_or_insert(self.rows);
        let number = self.finished.len();
        let path = self.directory.join(shard_path(number));
        let shard = self.open.take().ok_or_else(|| Error::internal("no shard is open"))?;
        if let Some(journal) = &mut self.journal {
            journal.truncate(number)?;
        }
        let file = match shard.file {
            ShardFile::Replayed(file) => ShardFile::New(file.into_new(self.store.as_ref(), &path)?),
            file @ ShardFile::New(_) => file,
        };
        self.open = Some(OpenShard { file, ..shard });
        Ok(())
    }

    /// Takes a finished shard over as it is.
    pub(super) fn adopt(&mut self, entry: ShardEntry) {
        self.rows += entry.rows;
        self.rows_reused += entry.rows;
        self.finished.push(entry);
    }

    /// Forgets recorded shards behind the finished ones.
    pub(super) fn drop_rest(&mut self) -> Result<()> {
        let finished = self.finished.len();
        match &mut self.journal {
            Some(journal) if journal.len() > finished => {
                self.differs_at.get_or_insert(self.rows);
                journal.truncate(finished)
            }
            _ => Ok(()),
        }
    }

    /// Closes the open shard durably; gives its block digests, or `None` when none is open. The
    /// last shard is not journalled: the cache is complete a moment later.
    pub(super) fn close(&mut self, is_last: bool) -> Result<Option<Vec<Digest>>> {
        let Some(shard) = &self.open else { return Ok(None) };
        let tail = file_tail(&self.schema, &shard.places)?;
        self.put(&tail)?;
        let Some(shard) = self.open.take() else { return Ok(None) };
        let (digest, is_new) = match shard.file {
            ShardFile::New(file) => (file.finish()?, true),
            ShardFile::Replayed(file) => (file.finish(), false),
        };
        let entry = ShardEntry {
            path: shard_path(self.finished.len()),
            size_bytes: digest.size_bytes,
            blake3: to_hex(&digest.root),
            rows: shard.rows,
        };
        if !is_new {
            self.rows_reused += shard.rows;
        } else if let Some(journal) = self.journal.as_mut().filter(|_| !is_last) {
            journal.append(&entry)?;
        }
        self.finished.push(entry);
        Ok(Some(digest.leaves))
    }

    /// Ends the journal, once everything else is durable.
    pub(super) fn end_journal(&mut self) -> Result<()> {
        self.journal.as_mut().map_or(Ok(()), Journal::remove)
    }

    /// The finished shards in order.
    pub(super) fn entries(&self) -> &[ShardEntry] {
        &self.finished
    }
}

/// Where the payloads of one record batch lie.
pub(super) struct StoredPayloads<'a> {
    /// Where in the file the payload values begin.
    pub(super) values_start: u64,
    /// Number of the batch in its file.
    pub(super) batch: u32,
    /// Offsets of the stored payloads within the values, one more than rows.
    pub(super) stored_offsets: &'a [i64],
    /// The same before compression; may begin anywhere.
    pub(super) raw_offsets: &'a [i64],
}

impl StoredPayloads<'_> {
    /// Gives `record` the index record of each row.
    pub(super) fn index_records(
        &self,
        kind: IndexKind,
        record: &mut dyn FnMut(IndexRecord) -> Result<()>,
    ) -> Result<()> {
        for (stored, raw) in self.stored_offsets.windows(2).zip(self.raw_offsets.windows(2)) {
            // Payload lengths were checked against 2^31 - 1; a frame adds a few bytes at most.
            let raw_len = (raw[1] - raw[0]) as u32;
            record(match kind {
                IndexKind::FileRange => IndexRecord::FileRange {
                    offset: self.values_start + stored[0] as u64,
                    stored_len: (stored[1] - stored[0]) as u32,
                    raw_len,
                },
                IndexKind::BatchRange => {
                    let offset = stored[0] as u64;
                    IndexRecord::BatchRange { offset, batch: self.batch, raw_len }
                }
            })?;
        }
        Ok(())
    }
}
