//! Values of one column of a record batch, each of them there or lost. Knows no row of a cache.

use std::ops::Range;
use std::sync::Arc;

use super::proven::ProvenFile;
use super::region::{Attend, Found, Loss, Region};
use super::structure::crafted;
use crate::Result;
use crate::format::ipc::{BatchLayout, BodyKind, decompress_buffer};
use crate::format::schema::ColumnType;

/// One value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Value<'a> {
    Null,
    Bit(bool),
    /// As it stands in the file: little-endian numbers, text, bytes.
    Bytes(&'a [u8]),
}

/// Rows of one column.
pub(super) struct Cells {
    column_type: ColumnType,
    nullable: bool,
    nulls: u64,
    buffers: Vec<Part>,
    name: String,
}

/// Part of a buffer, asked for by offsets within the whole of it.
struct Part {
    base: u64,
    region: Arc<Region>,
}

/// Compressed buffers of the record batch looked at last, as they were read.
#[derive(Default)]
pub(super) struct Whole {
    batch: usize,
    buffers: Vec<(Range<u64>, Arc<Region>)>,
}

impl Whole {
    /// Those of batch `number`; others are forgotten.
    pub(super) fn of(&mut self, number: usize) -> &mut Self {
        if self.batch != number {
            *self = Self { batch: number, buffers: Vec::new() };
        }
        self
    }
}

impl Part {
    fn get(&self, range: Range<u64>) -> Found<&[u8]> {
        self.region.get(self.base.saturating_add(range.start)..self.base.saturating_add(range.end))
    }

    fn bit(&self, row: u64) -> Found<bool> {
        let byte = self.get(row / 8..row / 8 + 1)?;
        Ok(byte.first().is_some_and(|byte| byte >> (row % 8) & 1 == 1))
    }
}

/// What a column is, and how much its values may hold.
pub(super) struct Column<'a> {
    pub(super) column_type: &'a ColumnType,
    pub(super) nullable: bool,
    /// Nulls that the header states.
    pub(super) nulls: u64,
    /// Where its buffers lie.
    pub(super) buffers: &'a [Range<u64>],
    /// Most bytes that compressed values may stand for.
    pub(super) values_max: u64,
}

impl Cells {
    /// Rows `rows` of a batch. Compressed buffers are read as a whole, once: they stay in `whole`,
    /// which is that of the batch.
    pub(super) fn load(
        file: &mut ProvenFile,
        whole: &mut Whole,
        batch: &BatchLayout,
        column: &Column<'_>,
        rows: Range<u64>,
        attend: Attend<'_>,
    ) -> Result<Self> {
        let mut buffers: Vec<Part> = Vec::with_capacity(column.buffers.len());
        let is_variable = column.column_type.is_variable_width();
        for (role, buffer) in column.buffers.iter().enumerate() {
            let wanted = match (role, column.column_type.width_bytes()) {
                (0, _) if column.nulls == 0 => 0..0,
                (0, _) => rows.start / 8..rows.end.div_ceil(8),
                (1, Some(width)) => rows.start * width as u64..rows.end * width as u64,
                (1, None) if is_variable => rows.start * 8..(rows.end + 1) * 8,
                (1, None) => rows.start / 8..rows.end.div_ceil(8),
                _ => values_of(buffers.last(), &rows),
            };
            let raw_max = match (role, is_variable) {
                (2, _) => column.values_max,
                // Other writers pad buffers before they compress them.
                _ => batch.rows.saturating_add(1).saturating_mul(8),
            };
            let raw_max = raw_max.saturating_add(64);
            buffers.push(part(file, whole, batch.compression, buffer, wanted, raw_max, attend)?);
        }
        Ok(Self {
            column_type: column.column_type.clone(),
            nullable: column.nullable,
            nulls: column.nulls,
            buffers,
            name: file.name().to_owned(),
        })
    }

    /// The value of row `row` of the batch, which is one of those loaded.
    pub(super) fn value(&self, row: u64) -> Found<Value<'_>> {
        if self.column_type == ColumnType::Null {
            return Ok(Value::Null);
        }
        if self.nulls > 0 && !self.part(0)?.bit(row)? {
            return match self.nullable {
                true => Ok(Value::Null),
                false => Err(self.loss("it has a null where none may be")),
            };
        }
        match self.column_type.width_bytes() {
            Some(width) => {
                let start = row * width as u64;
                self.part(1)?.get(start..start + width as u64).map(Value::Bytes)
            }
            None if self.column_type.is_variable_width() => {
                let bytes = self.part(2)?.get(self.range(row)?)?;
                let is_text = self.column_type != ColumnType::Utf8;
                if !is_text && std::str::from_utf8(bytes).is_err() {
                    return Err(self.loss("it has text that is not UTF-8"));
                }
                Ok(Value::Bytes(bytes))
            }
            None => self.part(1)?.bit(row).map(Value::Bit),
        }
    }

    /// Whether nothing of what was loaded is missing.
    pub(super) fn is_whole(&self) -> bool {
        self.buffers.iter().all(|part| part.region.is_whole())
    }

    /// Where in the values the bytes of `row` lie.
    pub(super) fn range(&self, row: u64) -> Found<Range<u64>> {
        let pair = self.part(1)?.get(row * 8..row * 8 + 16)?;
        let offsets = pair.as_chunks::<8>().0;
        let offset = |i: usize| offsets.get(i).map(|bytes| i64::from_le_bytes(*bytes));
        match (offset(0), offset(1)) {
            (Some(start), Some(end)) if 0 <= start && start <= end => Ok(start as u64..end as u64),
            // Without the row: neighbours that are lost for one reason are one loss.
            _ => Err(self.loss("offsets of a batch do not ascend")),
        }
    }

    fn part(&self, role: usize) -> Found<&Part> {
        self.buffers.get(role).ok_or_else(|| self.loss("a column has too few buffers"))
    }

    fn loss(&self, reason: impl Into<String>) -> Loss {
        Loss { file: self.name.clone(), reason: reason.into() }
    }
}

/// The values that the offsets of `rows` name, as far as these are known.
fn values_of(offsets: Option<&Part>, rows: &Range<u64>) -> Range<u64> {
    let offset = |row: u64| {
        let bytes = offsets?.get(row * 8..row * 8 + 8).ok()?;
        u64::try_from(i64::from_le_bytes(bytes.try_into().ok()?)).ok()
    };
    let known = (rows.start..=rows.end).filter_map(offset);
    known
        .fold(None, |range: Option<Range<u64>>, at| {
            Some(range.map_or(at..at, |range| range.start.min(at)..range.end.max(at)))
        })
        .unwrap_or(0..0)
}

/// `wanted` of the bytes that `buffer` stands for.
fn part(
    file: &mut ProvenFile,
    whole: &mut Whole,
    compression: BodyKind,
    buffer: &Range<u64>,
    wanted: Range<u64>,
    raw_max: u64,
    attend: Attend<'_>,
) -> Result<Part> {
    if compression != BodyKind::None {
        let known = whole.buffers.iter().find(|(known, _)| known == buffer);
        let region = match known {
            Some((_, region)) => Arc::clone(region),
            None => Arc::new(whole_buffer(file, compression, buffer, raw_max, attend)?),
        };
        if known.is_none() {
            whole.buffers.push((buffer.clone(), Arc::clone(&region)));
        }
        return Ok(Part { base: 0, region });
    }
    let len = buffer.end - buffer.start;
    // What lies behind the buffer is not the column's, whatever offsets say.
    let (start, end) = (wanted.start.min(len), wanted.end.min(len));
    let region = file.region(buffer.start + start..buffer.start + end, attend)?;
    Ok(Part { base: buffer.start, region: Arc::new(region) })
}

/// A compressed buffer, decompressed to at most `raw_max` bytes.
pub(super) fn whole_buffer(
    file: &mut ProvenFile,
    compression: BodyKind,
    buffer: &Range<u64>,
    raw_max: u64,
    attend: Attend<'_>,
) -> Result<Region> {
    let stored = match file.read(buffer.clone(), attend)? {
        Ok(stored) => stored,
        Err(loss) => return Ok(Region::lost(loss)),
    };
    match decompress_buffer(&stored, compression, raw_max) {
        Ok(raw) => Ok(Region::whole(file.name(), raw)),
        Err(error) => crafted(file, error).map(Region::lost),
    }
}
