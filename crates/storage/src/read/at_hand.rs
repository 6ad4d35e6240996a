//! Single samples where nothing has to be opened, read, hashed or decompressed for them: a few
//! looks into mapped, verified files. Decides nothing: whatever is out of the ordinary is `None`
//! here, and left to `gather`, `locate` and `payload`, which know the errors.

use std::ops::Range;

use super::cache::Cache;
use super::file::MappedView;
use super::gather::{cell_range, part};
use super::metadata::MetadataTable;
use super::payload::Payload;
use crate::format::index::{INDEX_RECORD_BYTES, IndexRecord, record_offset};
use crate::format::ipc::BatchLayout;
use crate::format::schema::{ColumnType, StoredColumn};
use crate::store::Section;

/// One metadata value. Text is not known to be UTF-8.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Cell<'a> {
    /// No value.
    Null,
    /// A boolean.
    Bool(bool),
    /// A signed integer of any width.
    Signed(i64),
    /// An unsigned integer of any width.
    Unsigned(u64),
    /// A float of any width.
    Float(f64),
    /// What should be UTF-8.
    Text(&'a [u8]),
    /// Bytes.
    Binary(&'a [u8]),
}

/// The stored columns of one row.
#[derive(Clone, Copy)]
pub struct RowAtHand<'a> {
    columns: &'a [StoredColumn],
    table: &'a MetadataTable,
    layout: &'a BatchLayout,
    file: MappedView<'a>,
    /// Row in its batch.
    row: u64,
}

/// The payload of one row.
#[derive(Clone, Copy)]
pub struct PayloadAtHand<'a> {
    cache: &'a Cache,
    shard: u32,
    range: (u64, u64),
    bytes: &'a [u8],
}

impl Cache {
    /// The cells of row `row`, if metadata is mapped and parsed already. Whoever hands on what it
    /// made of them calls [`Cache::check_tables_unchanged`] before.
    pub fn row_at_hand<'a>(&'a self, section: Section<'a>, row: u64) -> Option<RowAtHand<'a>> {
        let table = self.metadata_table.get()?;
        let batch = table.starts.partition_point(|&start| start <= row).checked_sub(1)?;
        Some(RowAtHand {
            columns: self.schema.columns(),
            table,
            layout: table.batches.get(batch)?,
            file: self.metadata.view_at_hand(section)?,
            row: row - table.starts.get(batch)?,
        })
    }

    /// The payload of row `row`, if it is stored as it is, and mapped and verified already.
    /// Whoever hands on what it made of it calls [`Cache::check_shard_unchanged`] and
    /// [`Cache::check_tables_unchanged`] before.
    pub fn payload_at_hand<'a>(
        &'a self,
        section: Section<'a>,
        row: u64,
    ) -> Option<PayloadAtHand<'a>> {
        self.index_checked.get()?;
        if row >= self.rows() || self.is_compressed() {
            return None;
        }
        let start = record_offset(row);
        let index = self.index.view_at_hand(section)?;
        let bytes = index.at_hand(start..start.checked_add(INDEX_RECORD_BYTES)?)?;
        let record = IndexRecord::decode(self.manifest.index_kind(), bytes.try_into().ok()?);
        let (record, shard) = (record.ok()?, self.shard_of(row).ok()?);
        self.check_record(shard, &record).ok()?;
        let IndexRecord::FileRange { offset, stored_len, .. } = record else { return None };
        let end = offset.checked_add(u64::from(stored_len))?;
        let bytes = self.shard(shard).ok()?.file.view_at_hand(section)?.at_hand(offset..end)?;
        Some(PayloadAtHand { cache: self, shard, range: (offset, end), bytes })
    }
}

impl<'a> PayloadAtHand<'a> {
    /// The bytes.
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// The same bytes, for as long as somebody likes.
    pub fn share(&self) -> Option<Payload> {
        let file = &self.cache.shard(self.shard).ok()?.file;
        file.unverified_view(&(self.range.0..self.range.1)).ok().map(Payload::shared)
    }

    /// The shard it lies in.
    pub fn shard(&self) -> u32 {
        self.shard
    }
}

impl<'a> RowAtHand<'a> {
    /// The cell of stored column `column`, if it has a plain Python form and its block was
    /// verified already.
    pub fn cell(&self, column: usize) -> Option<Cell<'a>> {
        let stored = self.columns.get(column)?;
        if stored.column_type == ColumnType::Null {
            return Some(Cell::Null);
        }
        if *self.layout.nulls.get(column)? > 0 && !self.bit(column, 0)? {
            return Some(Cell::Null);
        }
        Some(match stored.column_type {
            ColumnType::Bool => Cell::Bool(self.bit(column, 1)?),
            ColumnType::Int8 => Cell::Signed(i8::from_le_bytes(self.fixed(column)?).into()),
            ColumnType::Int16 => Cell::Signed(i16::from_le_bytes(self.fixed(column)?).into()),
            ColumnType::Int32 => Cell::Signed(i32::from_le_bytes(self.fixed(column)?).into()),
            ColumnType::Int64 => Cell::Signed(i64::from_le_bytes(self.fixed(column)?)),
            ColumnType::UInt8 => Cell::Unsigned(u8::from_le_bytes(self.fixed(column)?).into()),
            ColumnType::UInt16 => Cell::Unsigned(u16::from_le_bytes(self.fixed(column)?).into()),
            ColumnType::UInt32 => Cell::Unsigned(u32::from_le_bytes(self.fixed(column)?).into()),
            ColumnType::UInt64 => Cell::Unsigned(u64::from_le_bytes(self.fixed(column)?)),
            ColumnType::Float32 => Cell::Float(f32::from_le_bytes(self.fixed(column)?).into()),
            ColumnType::Float64 => Cell::Float(f64::from_le_bytes(self.fixed(column)?)),
            ColumnType::Utf8 => Cell::Text(self.bytes(column)?),
            ColumnType::Binary => Cell::Binary(self.bytes(column)?),
            _ => return None,
        })
    }

    /// The file range of buffer `role` of a column.
    fn buffer(&self, column: usize, role: usize) -> Option<&'a Range<u64>> {
        self.layout.buffers.get(self.table.first_buffers.get(column)? + role)
    }

    fn bit(&self, column: usize, role: usize) -> Option<bool> {
        let byte = part(self.buffer(column, role)?, self.row / 8, 1).ok()?;
        let byte = self.file.at_hand(byte)?.first()?;
        Some(byte >> (self.row % 8) & 1 == 1)
    }

    fn fixed<const WIDTH: usize>(&self, column: usize) -> Option<[u8; WIDTH]> {
        let offset = self.row.checked_mul(WIDTH as u64)?;
        let range = part(self.buffer(column, 1)?, offset, WIDTH as u64).ok()?;
        self.file.at_hand(range)?.try_into().ok()
    }

    fn bytes(&self, column: usize) -> Option<&'a [u8]> {
        let pair = part(self.buffer(column, 1)?, self.row.checked_mul(8)?, 16).ok()?;
        let cell = cell_range(self.file.at_hand(pair)?, self.buffer(column, 2)?)?;
        self.file.at_hand(cell)
    }
}
