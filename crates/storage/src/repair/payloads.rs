//! From index records to payloads. Knows neither rows nor where records come from.

use super::cells::whole_buffer;
use super::proven::{ProvenFile, reserve};
use super::region::{Attend, Found, Loss, Region};
use super::structure::{Structure, crafted};
use crate::Result;
use crate::format::codec::{Compression, Decompressor};
use crate::format::index::IndexRecord;
use crate::format::limits::PAYLOAD_BYTES_MAX;

/// Turns stored bytes back into payloads.
pub(super) struct Payloads {
    compression: Compression,
    decompressor: Decompressor,
    /// Why compressed payloads cannot be read: the dictionary is gone.
    lost: Option<Loss>,
    /// Bytes of all payloads.
    bytes_max: u64,
    /// The payloads of the batch decompressed last.
    kept: Option<(u32, Region)>,
}

impl Payloads {
    /// Payloads of one cache; `dictionary` if they were compressed with one.
    pub(super) fn new(
        compression: Compression,
        dictionary: Option<Found<Vec<u8>>>,
        bytes_max: u64,
    ) -> Result<Self> {
        let (dictionary, lost) = match dictionary {
            None => (None, None),
            Some(Ok(bytes)) => (Some(bytes), None),
            Some(Err(loss)) => (None, Some(loss)),
        };
        let decompressor = Decompressor::new(&compression, dictionary.as_deref())?;
        Ok(Self { compression, decompressor, lost, bytes_max, kept: None })
    }

    /// Another shard comes.
    pub(super) fn forget(&mut self) {
        self.kept = None;
    }

    /// Bytes of the payload stored as `frame`, which nothing but the frame records.
    pub(super) fn raw_len(&self, file: &ProvenFile, frame: &[u8]) -> Result<Found<u32>> {
        match self.decompressor.raw_len(frame) {
            Ok(len) => Ok(Ok(len as u32)),
            Err(error) => crafted(file, error).map(Err),
        }
    }

    /// Whether the lengths of records stand in the frames alone.
    pub(super) fn is_framed(&self) -> bool {
        self.compression.is_per_payload()
    }

    /// Appends the payload of `record` to `out`.
    pub(super) fn append(
        &mut self,
        file: &mut ProvenFile,
        structure: &mut Structure,
        record: &IndexRecord,
        out: &mut Vec<u8>,
        attend: Attend<'_>,
    ) -> Result<Found<()>> {
        let raw_len = u64::from(record.raw_len());
        let (offset, stored_len) = match *record {
            IndexRecord::BatchRange { raw_len: 0, .. } => return Ok(Ok(())),
            IndexRecord::BatchRange { offset, batch, .. } => {
                return self.append_of_batch(file, structure, batch, offset, raw_len, out, attend);
            }
            IndexRecord::FileRange { offset, stored_len, .. } => (offset, u64::from(stored_len)),
        };
        let most = self.compression.algo.raw_bytes_max(stored_len).min(self.bytes_max);
        let is_framed = self.is_framed();
        if raw_len > most || (!is_framed && raw_len != stored_len) {
            let reason = format!("{stored_len} stored bytes cannot be {raw_len} bytes of payload");
            return Ok(Err(file.loss(reason)));
        }
        if stored_len == 0 && raw_len == 0 {
            return Ok(Ok(()));
        }
        if let (Some(loss), true) = (&self.lost, is_framed) {
            return Ok(Err(loss.clone()));
        }
        let Some(end) = offset.checked_add(stored_len) else {
            return Ok(Err(file.loss("a payload lies outside of it")));
        };
        let stored = match file.read(offset..end, attend)? {
            Ok(stored) => stored,
            Err(loss) => return Ok(Err(loss)),
        };
        reserve(out, raw_len)?;
        if !is_framed {
            out.extend_from_slice(&stored);
            return Ok(Ok(()));
        }
        let start = out.len();
        out.resize(start + raw_len as usize, 0);
        match self.decompressor.decompress(&stored, out.get_mut(start..).unwrap_or_default()) {
            Ok(()) => Ok(Ok(())),
            Err(error) => {
                out.truncate(start);
                crafted(file, error).map(Err)
            }
        }
    }

    #[expect(clippy::too_many_arguments, reason = "a record in its parts")]
    fn append_of_batch(
        &mut self,
        file: &mut ProvenFile,
        structure: &mut Structure,
        batch: u32,
        offset: u64,
        raw_len: u64,
        out: &mut Vec<u8>,
        attend: Attend<'_>,
    ) -> Result<Found<()>> {
        if self.kept.as_ref().is_none_or(|(kept, _)| *kept != batch) {
            self.kept = None;
            let header = match structure.header(file, batch as usize, attend)? {
                Ok(header) => header,
                Err(loss) => return Ok(Err(loss)),
            };
            let (compression, buffer) = (header.compression, header.buffers.last().cloned());
            let buffer = buffer.unwrap_or(0..0);
            let raw_max = self.bytes_max.min(PAYLOAD_BYTES_MAX).saturating_add(64);
            let region = whole_buffer(file, compression, &buffer, raw_max, attend)?;
            self.kept = Some((batch, region));
        }
        let found = match &self.kept {
            Some((_, region)) => region.get(offset..offset.saturating_add(raw_len)),
            None => Err(file.loss("no record batch holds the payload")),
        };
        match found {
            Ok(bytes) => {
                reserve(out, raw_len)?;
                out.extend_from_slice(bytes);
                Ok(Ok(()))
            }
            Err(loss) => Ok(Err(loss)),
        }
    }
}
