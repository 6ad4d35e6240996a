//! Every row: values, payloads, index records, content digest. One record batch in memory.

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
use dataset_rt_storage::format::limits::DICTIONARY_BYTES_MAX;
use dataset_rt_storage::format::manifest::{
    DICTIONARY_FILE, INDEX_FILE, MANIFEST_FILE, METADATA_FILE, Manifest,
};
use dataset_rt_storage::store::{IoMode, ReadFile, read_file};
use dataset_rt_storage::{Error, Result};

use super::arrow_file::{ArrowFile, ArrowFiles};
use super::report::Report;

/// Checks every row of a cache whose structure is right.
pub(super) fn check_rows(
    path: &Path,
    manifest: &Manifest,
    files: ArrowFiles,
    report: &mut Report,
) -> Result<()> {
    let dictionary = match &manifest.dictionary {
        Some(_) => Some(read_file(&path.join(DICTIONARY_FILE), DICTIONARY_BYTES_MAX)?),
        None => None,
    };
    let mut decompressor = None;
    if manifest.compression.is_per_payload() {
        match Decompressor::new(&manifest.compression, dictionary.as_deref()) {
            Ok(made) => decompressor = Some(made),
            Err(error) => {
                let expected = "a usable dictionary";
                report.broken("S03", DICTIONARY_FILE, "", expected, error.message());
                return Ok(());
            }
        }
    }
    let stored = manifest.schema()?;
    let mut rows = RowCheck {
        manifest,
        index: ReadFile::open(&path.join(INDEX_FILE), IoMode::Pread)?,
        metadata: MetadataRows::new(&files.metadata),
        decompressor,
        content: Some(ContentHasher::new(&stored)),
        row: 0,
        payload_bytes: 0,
        nullable: stored.columns().iter().map(|column| column.nullable).collect(),
    };
    for shard in &files.shards {
        for batch in 0..shard.batches.len() {
            if report.is_full() {
                return Ok(());
            }
            rows.check_batch(shard, batch, report)?;
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
        let arrays = match shard.arrays(batch) {
            Ok((arrays, bytes)) => {
                report.bytes_checked += bytes;
                arrays
            }
            Err(error) => {
                report.broken("A07", &shard.name, at, "valid columns", error.message());
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
        let records = self.records(first, rows)?;
        let values = shard.batches.get(batch).and_then(|b| b.buffers.last()).map_or(0, |b| b.start);
        self.check_records(&records, stored, values, batch, first, report);
        match self.raw_payloads(stored, &records) {
            Err((i, error)) => {
                let place = format!("row {}", first + i as u64);
                report.broken("S03", &shard.name, place, "the recorded length", error.message());
                self.content = None;
            }
            Ok(raw) => {
                let offsets = raw.value_offsets();
                let (start, end) = (offsets.first(), offsets.last());
                self.payload_bytes += start.zip(end).map_or(0, |(a, b)| (b - a) as u64);
                if let Some(content) = &mut self.content {
                    content.update(columns, &raw)?;
                }
            }
        }
        if !columns.is_empty() {
            self.metadata.compare(columns, first, report)?;
        }
        Ok(())
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
        let mut bytes = vec![0; (rows * INDEX_RECORD_BYTES) as usize];
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

    /// Payloads as the source gave them, or the row that does not decompress.
    fn raw_payloads(
        &mut self,
        stored: &LargeBinaryArray,
        records: &[[u8; INDEX_RECORD_BYTES as usize]],
    ) -> std::result::Result<LargeBinaryArray, (usize, Error)> {
        let Some(decompressor) = &mut self.decompressor else { return Ok(stored.clone()) };
        let mut bytes: Vec<u8> = Vec::new();
        let mut offsets = vec![0_i64];
        for (i, record) in records.iter().enumerate().take(stored.len()) {
            let at = |error| (i, error);
            let raw_len = IndexRecord::decode(IndexKind::FileRange, *record).map_err(at)?.raw_len();
            if u64::from(raw_len) > self.manifest.payload_bytes_total {
                let text = format!("the index says {raw_len} bytes, more than all payloads have");
                return Err(at(Error::corrupt(text)));
            }
            let frame = stored.value(i);
            let algo = self.manifest.compression.algo;
            if u64::from(raw_len) > algo.raw_bytes_max(frame.len() as u64) {
                let text = format!("{} stored bytes cannot hold {raw_len} bytes", frame.len());
                return Err(at(Error::corrupt(text)));
            }
            let start = bytes.len();
            if bytes.try_reserve(raw_len as usize).is_err() {
                return Err(at(Error::corrupt(format!("no memory for {raw_len} bytes"))));
            }
            bytes.resize(start + raw_len as usize, 0);
            let target = bytes.get_mut(start..).unwrap_or_default();
            // An empty payload is stored as no bytes, not as a frame.
            if !(frame.is_empty() && raw_len == 0) {
                decompressor.decompress(frame, target).map_err(at)?;
            }
            offsets.push(bytes.len() as i64);
        }
        let offsets = OffsetBuffer::new(ScalarBuffer::from(offsets));
        LargeBinaryArray::try_new(offsets, Buffer::from_vec(bytes), None)
            .map_err(|e| (0, Error::internal(e.to_string())))
    }

    fn finish(self, report: &mut Report) {
        let Some(content) = self.content else { return };
        let found = to_hex(&content.finish());
        if found != self.manifest.content_blake3 {
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
        match self.file.arrays(self.next_batch) {
            Ok((arrays, bytes)) => {
                report.bytes_checked += bytes;
                self.held = arrays;
            }
            Err(error) => {
                let place = format!("batch {}", self.next_batch);
                report.broken("A07", METADATA_FILE, place, "valid columns", error.message());
                self.is_off = true;
            }
        }
        self.used = 0;
        self.next_batch += 1;
        Ok(())
    }
}
