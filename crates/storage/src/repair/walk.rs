//! Walks over the rows of what is left of a cache: which of them survive, and what they hold.

use std::ops::Range;
use std::sync::Arc;

use arrow_array::{ArrayRef, LargeBinaryArray, RecordBatch, RecordBatchOptions, UInt64Array};
use arrow_buffer::{Buffer, OffsetBuffer, ScalarBuffer};
use arrow_schema::{DataType, Field, Schema, SchemaRef};

use super::cells::Value;
use super::columns::Columns;
use super::examine::LostSamples;
use super::region::{Attend, Found, Loss};
use super::remains::Remains;
use crate::write::ColumnBuilder;
use crate::{Error, Result};

/// Column of the rows' ids in the damaged cache.
const ORIGINAL_ID: &str = "original_sample_id";

/// Neighbouring rows and what is left of them.
pub(super) struct Piece {
    pub(super) rows: Range<u64>,
    /// Why a row is lost, row by row.
    pub(super) losses: Vec<Option<Loss>>,
    columns: Columns,
    /// Payloads of the rows that are not lost, one after another.
    payloads: Vec<u8>,
    ends: Vec<i64>,
}

impl Remains {
    /// The piece that begins with `row`; `None` behind the last.
    pub(super) fn piece(&mut self, row: u64, attend: Attend<'_>) -> Result<Option<Piece>> {
        let Some((number, rows)) = self.piece_from(row) else { return Ok(None) };
        attend()?;
        if let Some(loss) = self.shard_loss(number, attend)? {
            let columns = self.columns(number, rows.clone(), attend)?;
            let losses = rows.clone().map(|_| Some(loss.clone())).collect();
            return Ok(Some(Piece { rows, losses, columns, payloads: Vec::new(), ends: vec![0] }));
        }
        let mut records = self.records(number, rows.clone(), attend)?;
        records.truncate(Self::piece_len(&records));
        let rows = rows.start..rows.start + records.len() as u64;
        let columns = self.columns(number, rows.clone(), attend)?;
        let (mut losses, mut payloads, mut ends) = (Vec::new(), Vec::new(), vec![0_i64]);
        for (row, record) in rows.clone().zip(records) {
            let found = match (record, columns.loss(row)) {
                (Ok(record), None) => self.payload(&record, &mut payloads, attend)?,
                (Err(loss), _) | (_, Some(loss)) => Err(loss),
            };
            if found.is_ok() {
                ends.push(payloads.len() as i64);
            }
            losses.push(found.err());
        }
        Ok(Some(Piece { rows, losses, columns, payloads, ends }))
    }
}

/// Which rows are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Selection {
    /// Those that survive, with their payloads.
    Survivors {
        /// Their ids in the damaged cache come along as a column.
        with_ids: bool,
    },
    /// Those that are lost, with what is known of their columns.
    Lost,
}

/// Rows of a damaged cache, batch by batch: one piece at a time in memory.
pub struct Samples {
    remains: Remains,
    selection: Selection,
    schema: SchemaRef,
    lost: Vec<LostSamples>,
    /// The first of `lost` that may still come.
    next_lost: usize,
    row: u64,
}

impl Samples {
    /// Those of `selection`; `lost` is what an examination found.
    ///
    /// # Errors
    /// `InvalidInput` when a stored column has the name of the one for ids.
    pub fn new(remains: Remains, selection: Selection, lost: Vec<LostSamples>) -> Result<Self> {
        let mut fields = remains.schema().to_fields();
        match selection {
            Selection::Survivors { with_ids } => {
                if with_ids && remains.schema().position(ORIGINAL_ID).is_some() {
                    return Err(Error::invalid(format!(
                        "the cache has a column {ORIGINAL_ID:?} already; salvage it without \
                         original ids"
                    )));
                }
                if with_ids {
                    fields.push(Field::new(ORIGINAL_ID, DataType::UInt64, false));
                }
                fields.push(Field::new("payload", DataType::LargeBinary, false));
            }
            Selection::Lost => {
                fields = fields.into_iter().map(|field| field.with_nullable(true)).collect();
                fields.insert(0, Field::new("sample_id", DataType::UInt64, false));
            }
        }
        let schema = Arc::new(Schema::new(fields));
        Ok(Self { remains, selection, schema, lost, next_lost: 0, row: 0 })
    }

    /// Columns of the batches.
    pub fn schema(&self) -> SchemaRef {
        SchemaRef::clone(&self.schema)
    }

    /// The next rows; `None` behind the last.
    ///
    /// # Errors
    /// `Conflict` when a file changed since the examination, and what `attend` returns.
    pub fn next_batch(
        &mut self,
        attend: &mut dyn FnMut() -> Result<()>,
    ) -> Result<Option<RecordBatch>> {
        loop {
            self.skip();
            let Some(piece) = self.remains.piece(self.row, attend)? else {
                self.remains.finish()?;
                return Ok(None);
            };
            self.check(&piece)?;
            self.row = piece.rows.end;
            let batch = match self.selection {
                Selection::Survivors { with_ids } => self.survivors(piece, with_ids)?,
                Selection::Lost => self.lost_rows(&piece)?,
            };
            if batch.num_rows() > 0 {
                return Ok(Some(batch));
            }
        }
    }

    /// Passes over rows of which none is taken.
    fn skip(&mut self) {
        while let Some(lost) = self.lost.get(self.next_lost) {
            match self.selection {
                Selection::Survivors { .. } if lost.start <= self.row => {
                    self.row = self.row.max(lost.stop);
                }
                Selection::Survivors { .. } => return,
                Selection::Lost if lost.stop <= self.row => {}
                Selection::Lost => {
                    self.row = self.row.max(lost.start);
                    return;
                }
            }
            self.next_lost += 1;
        }
        if self.selection == Selection::Lost {
            self.row = self.remains.manifest().samples_total;
        }
    }

    /// The verdict of the examination must still be true.
    fn check(&self, piece: &Piece) -> Result<()> {
        let mut next = self.next_lost;
        for (row, loss) in piece.rows.clone().zip(&piece.losses) {
            while self.lost.get(next).is_some_and(|lost| lost.stop <= row) {
                next += 1;
            }
            let was_lost = self.lost.get(next).is_some_and(|lost| lost.start <= row);
            if was_lost != loss.is_some() {
                let now = loss.as_ref().map_or("right", |loss| loss.reason.as_str());
                return Err(Error::conflict(format!(
                    "{} changed while it was salvaged: sample {row} was {} before and is now: \
                     {now}; try again when nothing writes there",
                    self.remains.directory.display(),
                    if was_lost { "lost" } else { "right" }
                )));
            }
        }
        Ok(())
    }

    fn survivors(&self, piece: Piece, with_ids: bool) -> Result<RecordBatch> {
        let kept = || {
            let rows = piece.rows.clone().zip(&piece.losses);
            rows.filter(|(_, loss)| loss.is_none()).map(|(row, _)| row)
        };
        let mut arrays = self.arrays(&piece.columns, kept())?;
        if with_ids {
            arrays.push(Arc::new(UInt64Array::from_iter_values(kept())));
        }
        let rows = piece.ends.len() - 1;
        let offsets = OffsetBuffer::new(ScalarBuffer::from(piece.ends));
        let payload = LargeBinaryArray::try_new(offsets, Buffer::from_vec(piece.payloads), None)
            .map_err(|e| Error::internal(format!("payloads are not valid: {e}")))?;
        arrays.push(Arc::new(payload));
        self.batch(arrays, rows)
    }

    fn lost_rows(&self, piece: &Piece) -> Result<RecordBatch> {
        let lost = || {
            let rows = piece.rows.clone().zip(&piece.losses);
            rows.filter(|(_, loss)| loss.is_some()).map(|(row, _)| row)
        };
        let ids = UInt64Array::from_iter_values(lost());
        let rows = ids.len();
        let mut arrays = self.arrays(&piece.columns, lost())?;
        arrays.insert(0, Arc::new(ids));
        self.batch(arrays, rows)
    }

    fn batch(&self, arrays: Vec<ArrayRef>, rows: usize) -> Result<RecordBatch> {
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        RecordBatch::try_new_with_options(self.schema(), arrays, &options)
            .map_err(|e| Error::internal(format!("rows put together are no batch: {e}")))
    }

    fn arrays(
        &self,
        columns: &Columns,
        rows: impl Iterator<Item = u64> + Clone,
    ) -> Result<Vec<ArrayRef>> {
        let is_lost = self.selection == Selection::Lost;
        columns_of(&self.remains, columns, rows, is_lost).and_then(|found| {
            found.map_err(|loss| Error::internal(format!("a survivor is lost: {}", loss.reason)))
        })
    }
}

/// The stored columns of `rows` as arrays; with `nulls_for_lost`, values that are lost are null.
pub(super) fn columns_of(
    remains: &Remains,
    columns: &Columns,
    rows: impl Iterator<Item = u64> + Clone,
    nulls_for_lost: bool,
) -> Result<Found<Vec<ArrayRef>>> {
    let mut arrays = Vec::new();
    for (i, stored) in remains.schema().columns().iter().enumerate() {
        let mut builder = ColumnBuilder::new(Some(stored.column_type.clone()));
        for row in rows.clone() {
            match columns.value(row, i) {
                Ok(Value::Null) => builder.push_nulls(1),
                Ok(Value::Bit(bit)) => builder.push_bool(bit),
                Ok(Value::Bytes(bytes)) => builder.push_stored(bytes),
                Err(_) if nulls_for_lost => builder.push_nulls(1),
                Err(loss) => return Ok(Err(loss)),
            }
        }
        arrays.push(builder.take()?);
    }
    Ok(Ok(arrays))
}
