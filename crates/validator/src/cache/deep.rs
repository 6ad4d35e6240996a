//! Every row: values, payloads, index records, content digest. One record batch of a shard and one
//! of the metadata in memory, payloads decompressed piece by piece.

use std::path::Path;

use arrow_array::cast::AsArray;
use arrow_array::types::UInt64Type;
use arrow_array::{Array, ArrayRef, LargeBinaryArray};
use arrow_buffer::{Buffer, OffsetBuffer, ScalarBuffer};
use dataset_rt_storage::format::codec::Decompressor;
use dataset_rt_storage::format::content::ContentHasher;
use dataset_rt_storage::format::digest::to_hex;
use dataset_rt_storage::format::index::{
    INDEX_RECORD_BYTES, IndexKind, IndexRecord, record_offset,
};
use dataset_rt_storage::format::limits::{BATCH_BYTES, DICTIONARY_BYTES_MAX};
use dataset_rt_storage::format::manifest::{
    DICTIONARY_FILE, INDEX_FILE, MANIFEST_FILE, METADATA_FILE, Manifest,
};
use dataset_rt_storage::store::{IoMode, ReadFile, read_file};
use dataset_rt_storage::{Error, Kind, Result};

use super::arrow_file::{ArrowFile, ArrowFiles, RawBytesLeft, reserved};
use super::report::Report;

/// Checks every row of a cache whose structure is right.
pub(super) fn check_rows(
    path: &Path,
    manifest: &Manifest,
    files: &ArrowFiles<'_>,
    report: &mut Report,
    attend: &mut dyn FnMut() -> Result<()>,
) -> Result<()> {
    let mut decompressor = None;
    if manifest.compression.is_per_payload() {
        let dictionary = match &manifest.dictionary {
            Some(_) => read_file(&path.join(DICTIONARY_FILE), DICTIONARY_BYTES_MAX).map(Some),
            None => Ok(None),
        };
        let made = dictionary.and_then(|d| Decompressor::new(&manifest.compression, d.as_deref()));
        match made {
            Ok(made) => decompressor = Some(made),
            Err(error) => {
                let expected = "a usable dictionary";
                return report.broken_by(error, "S03", DICTIONARY_FILE, "", expected);
            }
        }
    }
    let index = match ReadFile::open(&path.join(INDEX_FILE), IoMode::Pread) {
        Ok(index) => index,
        Err(error) => return report.unreadable(INDEX_FILE, error),
    };
    let Some(metadata) = files.open_metadata(report, attend)? else { return Ok(()) };
    let stored = manifest.schema()?;
    let mut rows = RowCheck {
        manifest,
        index,
        metadata: MetadataRows::new(&metadata),
        decompressor,
        content: Some(ContentHasher::new(&stored)),
        row: 0,
        payload_bytes: 0,
        nullable: stored.columns().iter().map(|column| column.nullable).collect(),
    };
    for shard in &manifest.shards {
        let Some(shard) = files.open_shard(shard, report, attend)? else { return Ok(()) };
        for batch in 0..shard.batches.len() {
            if report.is_full() {
                return Ok(());
            }
            attend()?;
            rows.check_batch(&shard, batch, report)?;
        }
    }
    rows.finish(report);
    Ok(())
}

/// The walk over all rows of the shards.
struct RowCheck<'a> {
    manifest: &'a Manifest,
    index: ReadFile,
    metadata: MetadataRows<'a>,
    decompressor: Option<Decompressor>,
    /// Gone once rows could not be read: the digest would only repeat that.
    content: Option<ContentHasher>,
    row: u64,
    payload_bytes: u64,
    nullable: Vec<bool>,
}

impl RowCheck<'_> {
    fn check_batch(&mut self, shard: &ArrowFile, batch: usize, report: &mut Report) -> Result<()> {
        let first = self.row;
        let rows = shard.batches.get(batch).map_or(0, |b| b.rows);
        self.row += rows;
        let at = format!("batch {batch}");
        let left = RawBytesLeft {
            columns: self.manifest.metadata.size_bytes,
            payload: self.payload_bytes_left(),
        };
        let arrays = match shard.arrays(batch, left) {
            Ok((arrays, bytes)) => {
                report.bytes_checked += bytes;
                arrays
            }
            Err(error) => {
                report.broken_by(error, "A07", &shard.name, at, "valid columns")?;
                self.content = None;
                self.metadata.skip();
                return Ok(());
            }
        };
        let (Some(ids), Some(payload)) = (arrays.first(), arrays.last()) else {
            return Err(Error::internal("a shard has no columns"));
        };
        let columns = arrays.get(1..arrays.len() - 1).unwrap_or_default();
        self.check_nulls(&arrays, &shard.name, &at, report);
        check_ids(ids, first, &shard.name, &at, report);
        let stored = payload.as_binary::<i64>();
        let records = match self.records(first, rows) {
            Ok(records) => records,
            Err(error) => {
                self.content = None;
                return report.broken_by(error, "I02", INDEX_FILE, at, "records of these rows");
            }
        };
        let values = shard.batches.get(batch).and_then(|b| b.buffers.last()).map_or(0, |b| b.start);
        self.check_records(&records, stored, values, batch, first, report);
        let rows = BatchRows { columns, stored, records: &records };
        if let Err((i, error)) = self.check_payloads(&rows) {
            self.content = None;
            let place = format!("row {}", first + i as u64);
            report.broken_by(error, "S03", &shard.name, place, "the recorded length")?;
        }
        if !columns.is_empty() {
            self.metadata.compare(columns, first, report)?;
        }
        Ok(())
    }

    /// Raw payload bytes that the manifest leaves for the rows to come.
    fn payload_bytes_left(&self) -> u64 {
        self.manifest.payload_bytes_total.saturating_sub(self.payload_bytes)
    }

    fn check_nulls(&self, arrays: &[ArrayRef], file: &str, at: &str, report: &mut Report) {
        let last = arrays.len() - 1;
        for (i, array) in arrays.iter().enumerate() {
            let is_own = i == 0 || i == last;
            let nullable = !is_own && self.nullable.get(i - 1).copied().unwrap_or(true);
            if !nullable && array.logical_null_count() > 0 {
                let place = format!("{at}, column {i}");
                let found = format!("{} nulls", array.logical_null_count());
                report.broken("A08", file, place, "no nulls", found);
            }
        }
    }

    fn records(&self, first: u64, rows: u64) -> Result<Vec<[u8; INDEX_RECORD_BYTES as usize]>> {
        // The index has room for `samples_total` records, and the rows of all shards sum to that.
        let len = rows.saturating_mul(INDEX_RECORD_BYTES);
        let mut bytes = reserved(len)?;
        bytes.resize(len as usize, 0);
        self.index.read_at(record_offset(first), &mut bytes)?;
        Ok(bytes.as_chunks().0.to_vec())
    }

    fn check_records(
        &self,
        records: &[[u8; INDEX_RECORD_BYTES as usize]],
        stored: &LargeBinaryArray,
        values_start: u64,
        batch: usize,
        first: u64,
        report: &mut Report,
    ) {
        let kind = self.manifest.index_kind();
        let is_framed = self.decompressor.is_some();
        for (i, (record, pair)) in records.iter().zip(stored.value_offsets().windows(2)).enumerate()
        {
            let (start, len) = (pair[0] as u64, (pair[1] - pair[0]) as u64);
            let found = IndexRecord::decode(kind, *record);
            // The length of a framed payload stands in the index alone; S03 tries it.
            let raw_len = match (&found, is_framed) {
                (Ok(found), true) => u64::from(found.raw_len()),
                _ => len,
            };
            let expected = match kind {
                IndexKind::FileRange => IndexRecord::FileRange {
                    offset: values_start + start,
                    stored_len: len as u32,
                    raw_len: raw_len as u32,
                },
                IndexKind::BatchRange => IndexRecord::BatchRange {
                    offset: start,
                    batch: batch as u32,
                    raw_len: raw_len as u32,
                },
            };
            let is_right =
                found.as_ref().is_ok_and(|found| *found == expected) && len <= u64::from(u32::MAX);
            if !is_right {
                let place = format!("row {}", first + i as u64);
                let found = found.map_or_else(|e| e.to_string(), |found| format!("{found:?}"));
                report.broken("I02", INDEX_FILE, place, format!("{expected:?}"), found);
            }
        }
    }

    /// Takes the rows into the content digest, payloads as the source gave them; or names the row
    /// that does not decompress.
    fn check_payloads(&mut self, rows: &BatchRows<'_>) -> std::result::Result<(), (usize, Error)> {
        if self.decompressor.is_none() {
            return self.take(rows, 0, rows.stored.clone()).map_err(|error| (0, error));
        }
        let mut piece = Piece::default();
        for i in 0..rows.stored.len() {
            let at = |error| (i, error);
            self.decompress(rows, i, &mut piece).map_err(at)?;
            if piece.bytes.len() as u64 >= BATCH_BYTES || i + 1 == rows.stored.len() {
                let start = i + 1 - (piece.ends.len() - 1);
                let raw = std::mem::take(&mut piece).into_array().map_err(at)?;
                self.take(rows, start, raw).map_err(at)?;
            }
        }
        Ok(())
    }

    /// Appends payload `i` of the batch to `piece`. Refuses a length that the stored bytes, or
    /// the bytes of all payloads, do not justify, before memory is taken for it.
    fn decompress(&mut self, rows: &BatchRows<'_>, i: usize, piece: &mut Piece) -> Result<()> {
        let record = rows.records.get(i).copied();
        let record = record.ok_or_else(|| Error::internal("a row without an index record"))?;
        let raw_len = u64::from(IndexRecord::decode(IndexKind::FileRange, record)?.raw_len());
        let frame = rows.stored.value(i);
        let left = self.payload_bytes_left().saturating_sub(piece.bytes.len() as u64);
        let most = self.manifest.compression.algo.raw_bytes_max(frame.len() as u64).min(left);
        if raw_len > most {
            return Err(Error::corrupt(format!(
                "the index says {raw_len} bytes; {} stored bytes and the {left} bytes that \
                 payload_bytes_total leaves allow {most}",
                frame.len()
            )));
        }
        let start = piece.bytes.len();
        let room = raw_len as usize;
        piece.bytes.try_reserve(room).map_err(|_| {
            Error::new(Kind::Exhausted, format!("no memory for {raw_len} bytes; free some"))
        })?;
        piece.bytes.resize(start + room, 0);
        let target = piece.bytes.get_mut(start..).unwrap_or_default();
        // An empty payload is stored as no bytes, not as a frame.
        if let (Some(decompressor), false) =
            (&mut self.decompressor, frame.is_empty() && raw_len == 0)
        {
            decompressor.decompress(frame, target)?;
        }
        piece.ends.push(piece.bytes.len() as i64);
        Ok(())
    }

    /// Counts and digests raw payloads and the columns beside them, from row `start` of the batch.
    fn take(&mut self, rows: &BatchRows<'_>, start: usize, raw: LargeBinaryArray) -> Result<()> {
        let offsets = raw.value_offsets();
        let (first, last) = (offsets.first(), offsets.last());
        self.payload_bytes += first.zip(last).map_or(0, |(a, b)| (b - a) as u64);
        let Some(content) = &mut self.content else { return Ok(()) };
        let columns: Vec<ArrayRef> =
            rows.columns.iter().map(|column| column.slice(start, raw.len())).collect();
        content.update(&columns, &raw)
    }

    fn finish(self, report: &mut Report) {
        let Some(content) = self.content else { return };
        let found = to_hex(&content.finish());
        // Of damaged files the digest of contents is another one, too: that is no second fault.
        if found != self.manifest.content_blake3 && !report.has_damaged_files() {
            let expected = self.manifest.content_blake3.as_str();
            report.broken("C01", MANIFEST_FILE, "content_blake3", expected, found);
        }
        if self.payload_bytes != self.manifest.payload_bytes_total {
            report.broken(
                "C02",
                MANIFEST_FILE,
                "payload_bytes_total",
                self.payload_bytes.to_string(),
                self.manifest.payload_bytes_total.to_string(),
            );
        }
    }
}

/// The rows of one batch as they are stored.
struct BatchRows<'a> {
    columns: &'a [ArrayRef],
    stored: &'a LargeBinaryArray,
    records: &'a [[u8; INDEX_RECORD_BYTES as usize]],
}

/// Decompressed payloads of some neighbouring rows.
struct Piece {
    bytes: Vec<u8>,
    ends: Vec<i64>,
}

impl Default for Piece {
    fn default() -> Self {
        Self { bytes: Vec::new(), ends: vec![0] }
    }
}

impl Piece {
    fn into_array(self) -> Result<LargeBinaryArray> {
        let offsets = OffsetBuffer::new(ScalarBuffer::from(self.ends));
        LargeBinaryArray::try_new(offsets, Buffer::from_vec(self.bytes), None)
            .map_err(|e| Error::internal(e.to_string()))
    }
}

fn check_ids(ids: &ArrayRef, first: u64, file: &str, at: &str, report: &mut Report) {
    let ids = ids.as_primitive::<UInt64Type>().values();
    if let Some((i, id)) = ids.iter().enumerate().find(|(i, id)| **id != first + *i as u64) {
        let place = format!("{at}, row {}", first + i as u64);
        report.broken("S01", file, place, (first + i as u64).to_string(), id.to_string());
    }
}

/// Walks `metadata.arrow` beside the shards.
struct MetadataRows<'a> {
    file: &'a ArrowFile,
    next_batch: usize,
    held: Vec<ArrayRef>,
    /// Rows of the held batch that were compared.
    used: usize,
    is_off: bool,
}

impl<'a> MetadataRows<'a> {
    fn new(file: &'a ArrowFile) -> Self {
        Self { file, next_batch: 0, held: Vec::new(), used: 0, is_off: false }
    }

    /// Gives up comparing: the shards' rows are not known any more.
    fn skip(&mut self) {
        self.is_off = true;
    }

    fn compare(&mut self, columns: &[ArrayRef], first: u64, report: &mut Report) -> Result<()> {
        let rows = columns.first().map_or(0, |c| c.len());
        let mut done = 0;
        while done < rows && !self.is_off {
            let held_rows = self.held.first().map_or(0, |c| c.len());
            if self.used == held_rows {
                self.load(report)?;
                continue;
            }
            let len = (held_rows - self.used).min(rows - done);
            for (i, (held, column)) in self.held.iter().zip(columns).enumerate() {
                let (held, column) = (held.slice(self.used, len), column.slice(done, len));
                if held.as_ref() != column.as_ref() {
                    let row = (0..len)
                        .find(|&k| held.slice(k, 1).as_ref() != column.slice(k, 1).as_ref())
                        .unwrap_or(0);
                    let place = format!("row {}, column {i}", first + (done + row) as u64);
                    let expected = "the value in the shard";
                    report.broken("S02", METADATA_FILE, place, expected, "another value");
                }
            }
            self.used += len;
            done += len;
        }
        Ok(())
    }

    fn load(&mut self, report: &mut Report) -> Result<()> {
        // Nothing in this file is compressed.
        let none = RawBytesLeft { columns: 0, payload: 0 };
        // Never two batches at once.
        self.held.clear();
        match self.file.arrays(self.next_batch, none) {
            Ok((arrays, bytes)) => {
                report.bytes_checked += bytes;
                self.held = arrays;
            }
            Err(error) => {
                let place = format!("batch {}", self.next_batch);
                report.broken_by(error, "A07", METADATA_FILE, place, "valid columns")?;
                self.is_off = true;
            }
        }
        self.used = 0;
        self.next_batch += 1;
        Ok(())
    }
}
