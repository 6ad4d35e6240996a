//! A cache that may be damaged, opened for what is left of it: each row is put together from
//! whatever still holds its parts. Index records come from the index or the shard, columns from
//! `metadata.arrow` or the shard.

use std::ops::Range;
use std::path::{Path, PathBuf};

use arrow_schema::SchemaRef;

use super::cells::{Cells, Column};
use super::columns::{Columns, Place};
use super::payloads::Payloads;
use super::proven::{Digests, ProvenFile};
use super::region::{Attend, Found, Loss};
use super::structure::Structure;
use super::unproven;
use crate::absent::no_cache;
use crate::format::codec::schema_marks;
use crate::format::index::{
    INDEX_RECORD_BYTES, IndexKind, IndexRecord, encode_header, record_offset,
};
use crate::format::limits::MANIFEST_BYTES_MAX;
use crate::format::manifest::{INDEX_FILE, MANIFEST_FILE, Manifest, SHARDS_DIR};
use crate::format::schema::{ColumnType, StoredSchema};
use crate::store::{EntryKind, LocalStore, Store, read_file};
use crate::{Error, Kind, Result};

/// Rows looked at together: what one block of the index holds.
const PIECE_ROWS: u64 = 4096;
/// Payload bytes of them, or one larger payload.
const PIECE_BYTES: u64 = 8 * 1024 * 1024;

/// What vouches for the shards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trust {
    /// The manifest, which hashes to its own digest.
    Manifest,
    /// Nothing but Arrow structure and what `digests.bin` says, where the manifest is lost.
    Structure,
}

/// What is left of a cache. Memory: 32 bytes for each block of the index, the metadata and one
/// shard, 64 bytes for each of their record batches, and one piece.
pub struct Remains {
    pub(super) directory: PathBuf,
    /// As written, or made up from the shards.
    pub(super) manifest: Manifest,
    pub(super) schema: StoredSchema,
    pub(super) is_proven: bool,
    pub(super) digests: Digests,
    pub(super) shards: Vec<ShardRows>,
    shard_schema: SchemaRef,
    shards_lost: Option<String>,
    /// Where nothing vouches for them, the shards speak for themselves.
    tables: Option<Tables>,
    payloads: Payloads,
    shard: Option<OpenShard>,
}

/// The rows of a shard.
pub(super) struct ShardRows {
    pub(super) first_row: u64,
    pub(super) rows: u64,
}

struct Tables {
    index: ProvenFile,
    metadata: ProvenFile,
    metadata_batches: Structure,
}

struct OpenShard {
    number: usize,
    file: ProvenFile,
    batches: Structure,
}

impl Remains {
    /// Opens the cache at `directory`. Reads the metadata's headers, and as a whole the files whose
    /// block digests are lost.
    ///
    /// # Errors
    /// `NotFound` without a cache, `Unsupported` for another format version, `Corrupt` where the
    /// manifest is lost and `trust` does not go without it.
    pub fn open(directory: &Path, trust: Trust, attend: Attend<'_>) -> Result<Self> {
        match read_manifest(directory)? {
            Ok(manifest) => Self::proven(directory, manifest, attend),
            Err(_) if trust == Trust::Structure => {
                let manifest = unproven::manifest(directory, attend)?;
                Self::unproven(directory, manifest, attend)
            }
            Err(reason) => Err(Error::corrupt(format!(
                "nothing proves what is in {}: {reason}; restore manifest.json from a copy, or \
                 salvage what looks right with trust=\"structure\" (--unproven)",
                directory.display()
            ))),
        }
    }

    fn proven(directory: &Path, manifest: Manifest, attend: Attend<'_>) -> Result<Self> {
        let digests = Digests::open(directory, manifest.digest_layout()?)?;
        let shards = manifest.shards.len();
        let others: Vec<_> = manifest.verified_files().skip(shards).enumerate().collect();
        let mut files = Vec::new();
        for (i, entry) in others {
            files.push(ProvenFile::open(directory, entry, shards + i, &digests, attend)?);
        }
        let mut files = files.into_iter();
        // `verified_files` has this order.
        let (Some(mut metadata), Some(index)) = (files.next(), files.next()) else {
            return Err(Error::internal("a manifest names neither metadata nor index"));
        };
        let dictionary = match files.next() {
            None => None,
            Some(mut file) => Some(file.read(0..file.size_bytes(), attend)?),
        };
        let schema = manifest.schema()?;
        let rows = if schema.columns().is_empty() { 0 } else { manifest.samples_total };
        let metadata_schema = schema.metadata_schema();
        let metadata_batches = Structure::read(&mut metadata, &metadata_schema, rows, attend)?;
        let tables = Some(Tables { index, metadata, metadata_batches });
        Self::assemble(directory, manifest, digests, tables, dictionary)
    }

    fn unproven(directory: &Path, manifest: Manifest, attend: Attend<'_>) -> Result<Self> {
        let digests = Digests::unproven(directory, manifest.digest_layout()?)?;
        let dictionary = match &manifest.dictionary {
            None => None,
            Some(entry) => {
                // The shards name its digest: this one file can be proven.
                let number = manifest.shards.len() + 2;
                let entry = entry.as_verified();
                let mut file = ProvenFile::open(directory, entry, number, &digests, attend)?;
                Some(file.read(0..file.size_bytes(), attend)?)
            }
        };
        Self::assemble(directory, manifest, digests, None, dictionary)
    }

    fn assemble(
        directory: &Path,
        manifest: Manifest,
        digests: Digests,
        tables: Option<Tables>,
        dictionary: Option<Found<Vec<u8>>>,
    ) -> Result<Self> {
        let schema = manifest.schema()?;
        let marks = manifest.dictionary.as_ref().map(|file| file.blake3.as_str());
        let shard_schema = schema.shard_schema(&schema_marks(&manifest.compression, marks));
        let mut shards = Vec::with_capacity(manifest.shards.len());
        let mut first_row = 0_u64;
        for entry in &manifest.shards {
            shards.push(ShardRows { first_row, rows: entry.rows });
            // `Manifest` checked that the sum is `samples_total`.
            first_row = first_row.saturating_add(entry.rows);
        }
        let shards_lost = match LocalStore.kind(&directory.join(SHARDS_DIR))? {
            Some(EntryKind::Directory) => None,
            None => Some("the directory shards is missing".to_owned()),
            Some(_) => Some("shards is not a directory (links are not followed)".to_owned()),
        };
        let compression = manifest.compression;
        let is_proven = tables.is_some();
        let bytes_max = if is_proven { manifest.payload_bytes_total } else { u64::MAX };
        Ok(Self {
            directory: directory.to_owned(),
            schema,
            is_proven,
            digests,
            shards,
            shard_schema,
            shards_lost,
            tables,
            payloads: Payloads::new(compression, dictionary, bytes_max)?,
            shard: None,
            manifest,
        })
    }

    /// What the cache says about itself; made up from its shards where nothing is proven.
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// The stored columns.
    pub fn schema(&self) -> &StoredSchema {
        &self.schema
    }

    /// Whether the manifest vouches for what comes out.
    pub fn is_proven(&self) -> bool {
        self.is_proven
    }

    /// File `number` of the manifest, opened anew.
    pub(super) fn file(&self, number: usize, attend: Attend<'_>) -> Result<ProvenFile> {
        if number < self.shards.len() {
            return self.shard_file(number, attend);
        }
        let entry = self.manifest.verified_files().nth(number);
        let entry = entry.ok_or_else(|| Error::internal(format!("there is no file {number}")))?;
        ProvenFile::open(&self.directory, entry, number, &self.digests, attend)
    }

    /// Shard `number`, not read yet.
    pub(super) fn shard_file(&self, number: usize, attend: Attend<'_>) -> Result<ProvenFile> {
        let entry = self.manifest.verified_files().nth(number);
        let entry = entry.ok_or_else(|| Error::internal(format!("there is no shard {number}")))?;
        if let Some(reason) = &self.shards_lost {
            return Ok(ProvenFile::lost(entry, reason));
        }
        if self.is_proven {
            return ProvenFile::open(&self.directory, entry, number, &self.digests, attend);
        }
        let leaves = self.digests.leaves(number, entry.size_bytes)?;
        ProvenFile::unproven(&self.directory, entry.path, leaves)
    }

    fn open_shard(&mut self, number: usize, attend: Attend<'_>) -> Result<()> {
        if self.shard.as_ref().is_some_and(|shard| shard.number == number) {
            return Ok(());
        }
        self.close_shard()?;
        let mut file = self.shard_file(number, attend)?;
        let rows = self.shards.get(number).map_or(0, |shard| shard.rows);
        let batches = Structure::read(&mut file, &self.shard_schema, rows, attend)?;
        self.shard = Some(OpenShard { number, file, batches });
        Ok(())
    }

    fn close_shard(&mut self) -> Result<()> {
        self.payloads.forget();
        self.shard.take().map_or(Ok(()), |shard| shard.file.check_unchanged())
    }

    /// Fails when a file changed since it was opened.
    pub(super) fn finish(&mut self) -> Result<()> {
        self.close_shard()?;
        match &self.tables {
            None => Ok(()),
            Some(tables) => {
                tables.index.check_unchanged()?;
                tables.metadata.check_unchanged()
            }
        }
    }

    /// Why every row of shard `number` is lost, if so: nothing of it is there, nor does the index
    /// hold so many records that an empty payload might survive.
    pub(super) fn shard_loss(&mut self, number: usize, attend: Attend<'_>) -> Result<Option<Loss>> {
        self.open_shard(number, attend)?;
        let shard = self.shards.get(number);
        let end = shard.map_or(0, |shard| shard.first_row.saturating_add(shard.rows));
        let shard = self.shard.as_ref().filter(|_| end > self.records_there());
        Ok(shard.and_then(|shard| shard.file.whole_loss()))
    }

    /// Where the rows from `row` of shard `number` on end that neither the index nor a record batch
    /// of the shard knows, and why they are lost. Damage can turn a row's number into any other:
    /// such a gap may have more rows than anyone could walk over.
    pub(super) fn gap(
        &mut self,
        number: usize,
        row: u64,
        attend: Attend<'_>,
    ) -> Result<Option<(u64, Loss)>> {
        if row < self.records_there() {
            return Ok(None);
        }
        self.open_shard(number, attend)?;
        let (Some(rows), Some(shard)) = (self.shards.get(number), &self.shard) else {
            return Ok(None);
        };
        let until = shard.batches.hidden_until(row - rows.first_row);
        Ok(until.map(|until| {
            let stop = rows.first_row.saturating_add(until.min(rows.rows));
            (stop, shard.batches.loss(&shard.file))
        }))
    }

    /// More index records than this are not there.
    fn records_there(&self) -> u64 {
        let bytes = self.tables.as_ref().map_or(0, |tables| tables.index.bytes_there());
        bytes / INDEX_RECORD_BYTES
    }

    /// The rows of one shard from `row` on that are looked at together.
    pub(super) fn piece_from(&self, row: u64) -> Option<(usize, Range<u64>)> {
        let number = self.shards.partition_point(|shard| shard.first_row <= row).checked_sub(1)?;
        let shard = self.shards.get(number)?;
        let end = shard.first_row.saturating_add(shard.rows);
        let end = row.saturating_add(PIECE_ROWS).min(end);
        (row < end).then_some((number, row..end))
    }

    /// Where the payloads of `rows` of shard `number` lie.
    pub(super) fn records(
        &mut self,
        number: usize,
        rows: Range<u64>,
        attend: Attend<'_>,
    ) -> Result<Vec<Found<IndexRecord>>> {
        self.open_shard(number, attend)?;
        let kind = self.manifest.index_kind();
        let count = (rows.end - rows.start) as usize;
        let mut records: Vec<Option<IndexRecord>> = vec![None; count];
        if let Some(tables) = &mut self.tables {
            let range = record_offset(rows.start)..record_offset(rows.end);
            let region = tables.index.region(range, attend)?;
            for (row, record) in rows.clone().zip(&mut records) {
                let start = record_offset(row);
                let bytes = region.get(start..start + INDEX_RECORD_BYTES).ok();
                let bytes = bytes.and_then(|bytes| bytes.first_chunk());
                *record = bytes.and_then(|bytes| IndexRecord::decode(kind, *bytes).ok());
            }
        }
        if let (Some(records), false) =
            (records.iter().copied().collect::<Option<Vec<_>>>(), records.is_empty())
        {
            return Ok(records.into_iter().map(Ok).collect());
        }
        let derived = self.derived(number, rows, attend)?;
        let known = records.into_iter().zip(derived);
        Ok(known.map(|(record, derived)| record.map_or(derived, Ok)).collect())
    }

    /// Index records worked out from the shard.
    fn derived(
        &mut self,
        number: usize,
        rows: Range<u64>,
        attend: Attend<'_>,
    ) -> Result<Vec<Found<IndexRecord>>> {
        let kind = self.manifest.index_kind();
        let first_row = self.shards.get(number).map_or(0, |shard| shard.first_row);
        let shard = self.shard.as_mut().ok_or_else(|| Error::internal("no shard is open"))?;
        let OpenShard { file, batches, .. } = shard;
        let mut found = Vec::with_capacity((rows.end - rows.start) as usize);
        let mut row = rows.start;
        while row < rows.end {
            let Some((batch, (start, end))) = batches.batch_of(row - first_row) else {
                found.push(Err(batches.loss(file)));
                row += 1;
                continue;
            };
            let (start, end) = (first_row + start, (first_row + end).min(rows.end));
            let header = match batches.header(file, batch, attend)? {
                Ok(header) => header.clone(),
                Err(loss) => {
                    found.extend((row..end).map(|_| Err(loss.clone())));
                    row = end;
                    continue;
                }
            };
            let last = self.shard_schema.fields().len().saturating_sub(1);
            let buffers = header.column_buffers(&self.shard_schema, last);
            // Offsets alone: the values would be the payloads themselves.
            let offsets = Column {
                column_type: &ColumnType::Binary,
                nullable: false,
                nulls: 0,
                buffers: buffers.get(..2).unwrap_or_default(),
                values_max: 0,
            };
            let values = buffers.get(2).cloned().unwrap_or(0..0);
            let rows = row - start..end - start;
            let whole = batches.whole(batch);
            let cells = Cells::load(file, whole, &header, &offsets, rows, attend)?;
            for row in row..end {
                let range = match cells.range(row - start) {
                    Ok(range) => range,
                    Err(loss) => {
                        found.push(Err(loss));
                        continue;
                    }
                };
                let offset = values.start.saturating_add(range.start);
                let stored = offset..values.start.saturating_add(range.end);
                let Ok(stored_len) = u32::try_from(range.end - range.start) else {
                    found.push(Err(file.loss("a payload is larger than any payload may be")));
                    continue;
                };
                found.push(match kind {
                    IndexKind::BatchRange => Ok(IndexRecord::BatchRange {
                        offset: range.start,
                        batch: batch as u32,
                        raw_len: stored_len,
                    }),
                    IndexKind::FileRange if self.payloads.is_framed() => {
                        let raw_len = match file.read(stored, attend)? {
                            Ok(frame) => self.payloads.raw_len(file, &frame)?,
                            Err(loss) => Err(loss),
                        };
                        raw_len.map(|raw_len| IndexRecord::FileRange {
                            offset,
                            stored_len,
                            raw_len,
                        })
                    }
                    IndexKind::FileRange => {
                        Ok(IndexRecord::FileRange { offset, stored_len, raw_len: stored_len })
                    }
                });
            }
            row = end;
        }
        Ok(found)
    }

    /// As many of `records`, which begin a piece, as hold no more than a piece may.
    pub(super) fn piece_len(records: &[Found<IndexRecord>]) -> usize {
        let mut bytes = 0_u64;
        let lens = records.iter().map(|record| record.as_ref().map_or(0, IndexRecord::raw_len));
        let within = lens.take_while(|len| {
            bytes = bytes.saturating_add(u64::from(*len));
            bytes <= PIECE_BYTES
        });
        within.count().max(1)
    }

    /// Appends the payload of `record`, of the shard that is open, to `out`.
    pub(super) fn payload(
        &mut self,
        record: &IndexRecord,
        out: &mut Vec<u8>,
        attend: Attend<'_>,
    ) -> Result<Found<()>> {
        let shard = self.shard.as_mut().ok_or_else(|| Error::internal("no shard is open"))?;
        self.payloads.append(&mut shard.file, &mut shard.batches, record, out, attend)
    }

    /// The stored columns of `rows` of shard `number`.
    pub(super) fn columns(
        &mut self,
        number: usize,
        rows: Range<u64>,
        attend: Attend<'_>,
    ) -> Result<Columns> {
        let mut columns = Columns::new(self.schema.columns().len());
        if self.schema.columns().is_empty() {
            return Ok(columns);
        }
        let values_max = match self.is_proven {
            true => self.manifest.metadata.size_bytes,
            false => u64::MAX,
        };
        if let Some(tables) = &mut self.tables {
            let Tables { metadata, metadata_batches, .. } = tables;
            let place = Place { first_row: 0, own_columns: 0, values_max };
            columns.take(&self.schema, metadata, metadata_batches, &place, &rows, attend)?;
            if columns.is_whole(&rows) {
                return Ok(columns);
            }
        }
        self.open_shard(number, attend)?;
        let first_row = self.shards.get(number).map_or(0, |shard| shard.first_row);
        let shard = self.shard.as_mut().ok_or_else(|| Error::internal("no shard is open"))?;
        let OpenShard { file, batches, .. } = shard;
        let place = Place { first_row, own_columns: 1, values_max };
        columns.take(&self.schema, file, batches, &place, &rows, attend)?;
        Ok(columns)
    }

    /// The header that the index must have.
    pub(super) fn index_header(&self) -> [u8; 64] {
        encode_header(self.manifest.index_kind())
    }
}

/// The manifest, or why it vouches for nothing.
fn read_manifest(directory: &Path) -> Result<std::result::Result<Manifest, String>> {
    let bytes = match read_file(&directory.join(MANIFEST_FILE), MANIFEST_BYTES_MAX) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == Kind::NotFound => {
            let is_cache = LocalStore.kind(&directory.join(SHARDS_DIR))?.is_some()
                || LocalStore.kind(&directory.join(INDEX_FILE))?.is_some();
            if !is_cache {
                return Err(no_cache(directory));
            }
            return Ok(Err(format!("{MANIFEST_FILE} is missing")));
        }
        Err(error) if error.kind() == Kind::Corrupt => return Ok(Err(error.message().to_owned())),
        Err(error) => return Err(error),
    };
    match Manifest::decode(&bytes) {
        Ok(manifest) => Ok(Ok(manifest)),
        Err(error) if error.kind() == Kind::Corrupt => Ok(Err(error.message().to_owned())),
        Err(error) => Err(error),
    }
}
