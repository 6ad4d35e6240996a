//! From rows to where their payloads lie, by way of `index.bin`.
//! Knows nothing of the payloads themselves.

use super::cache::Cache;
use super::file::Window;
use crate::format::index::{
    INDEX_HEADER_BYTES, INDEX_RECORD_BYTES, IndexRecord, encode_header, record_offset,
};
use crate::store::{Section, guarded};
use crate::{Error, Kind, Result};

/// Where the payload of one row lies. Whoever uses it checks it again: it is plain data and may
/// come from another cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PayloadPlace {
    /// Shard number.
    pub shard: u32,
    /// What the index says about it.
    pub record: IndexRecord,
}

impl Cache {
    /// Where the payload of `row` lies. Costs O(log shards).
    ///
    /// # Errors
    /// `SampleNotFound` for a row the cache does not have, `Corrupt` for a damaged index.
    pub fn locate(&self, row: u64) -> Result<PayloadPlace> {
        let mut found = Vec::with_capacity(1);
        self.locate_many(&[row], &mut found)?;
        found.pop().ok_or_else(|| Error::internal("one row located nowhere"))
    }

    /// Appends the places of `rows`, in their order, to `out`.
    ///
    /// # Errors
    /// Those of [`Cache::locate`]; `out` may then hold some of the places.
    pub fn locate_many(&self, rows: &[u64], out: &mut Vec<PayloadPlace>) -> Result<()> {
        let kept = out.len();
        guarded(|section| {
            out.truncate(kept);
            self.locate_inside(section, rows, out)
        })
    }

    fn locate_inside(
        &self,
        section: Section<'_>,
        rows: &[u64],
        out: &mut Vec<PayloadPlace>,
    ) -> Result<()> {
        self.check_index_header(section)?;
        let kind = self.manifest.index_kind();
        let mut window = Window::new(section, &self.index)?;
        out.reserve(rows.len());
        for &row in rows {
            let shard = self.shard_of(row)?;
            let start = record_offset(row);
            let bytes = window.get(start..start + INDEX_RECORD_BYTES)?;
            let bytes = bytes.try_into().map_err(|_| Error::internal("short index record"))?;
            let record = IndexRecord::decode(kind, bytes)
                .and_then(|record| self.check_record(shard, &record).map(|()| record))
                .map_err(|e| e.within(format!("{} row {row}", self.index.name())))?;
            out.push(PayloadPlace { shard, record });
        }
        if !self.index.is_mapped()? {
            self.index.check_unchanged()?;
        }
        Ok(())
    }

    /// The shard that holds `row`.
    pub(super) fn shard_of(&self, row: u64) -> Result<u32> {
        if row >= self.rows() {
            return Err(Error::new(
                Kind::SampleNotFound,
                format!(
                    "there is no sample {row}; expected one below {}; in {}",
                    self.rows(),
                    self.path().display()
                ),
            ));
        }
        if self.shards.len() == 1 {
            return Ok(0);
        }
        let after = self.shard_starts.partition_point(|&start| start <= row);
        Ok(after.saturating_sub(1) as u32)
    }

    /// Refuses records that cannot be true, whatever their digest says.
    pub(super) fn check_record(&self, shard: u32, record: &IndexRecord) -> Result<()> {
        let file = &self.shard(shard)?.file;
        let raw_len = u64::from(record.raw_len());
        if raw_len > self.manifest.payload_bytes_total {
            return Err(Error::corrupt(format!(
                "index names a payload of {raw_len} bytes; expected at most the {} bytes of all \
                 payloads; rebuild the cache",
                self.manifest.payload_bytes_total
            )));
        }
        let IndexRecord::FileRange { offset, stored_len, raw_len } = *record else {
            return Ok(());
        };
        let end = offset.checked_add(u64::from(stored_len));
        if end.is_none_or(|end| end > file.size_bytes()) {
            return Err(Error::corrupt(format!(
                "index names {stored_len} bytes at {offset}; expected a range within the {} \
                 bytes of {}; rebuild the cache",
                file.size_bytes(),
                file.name()
            )));
        }
        let is_framed = self.manifest.compression.is_per_payload();
        if !is_framed && stored_len != raw_len {
            return Err(Error::corrupt(format!(
                "index says that {stored_len} stored bytes are {raw_len} bytes of payload; \
                 expected equal numbers without compression; rebuild the cache"
            )));
        }
        let algo = self.manifest.compression.algo;
        if is_framed && u64::from(raw_len) > algo.raw_bytes_max(u64::from(stored_len)) {
            return Err(Error::corrupt(format!(
                "index says that {stored_len} stored bytes are {raw_len} bytes of payload, more \
                 than they can hold; rebuild the cache"
            )));
        }
        Ok(())
    }

    fn check_index_header(&self, section: Section<'_>) -> Result<()> {
        if self.index_checked.get().is_some() {
            return Ok(());
        }
        let found = self.index.read(section, 0..INDEX_HEADER_BYTES)?;
        let expected = encode_header(self.manifest.index_kind());
        if *found != expected {
            return Err(Error::corrupt(format!(
                "the header does not fit the manifest; rebuild the cache; in {}",
                self.index.name()
            )));
        }
        let _ = self.index_checked.set(());
        Ok(())
    }
}
