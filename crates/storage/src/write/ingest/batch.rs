//! The columnar path: Arrow batches into the same open group as rows, closed by the same limits.
//! Knows nothing of C interfaces: batches come validated in full.

use arrow_array::cast::AsArray;
use arrow_array::{
    Array, ArrayRef, BinaryArray, BinaryViewArray, FixedSizeBinaryArray, LargeBinaryArray,
    RecordBatch,
};
use arrow_schema::DataType;

use super::super::column::{add_variable_costs, fixed_cost_bytes};
use super::limits::ROW_COST_BYTES;
use super::rows::Ingest;
use crate::format::schema::ColumnType;
use crate::{Error, Result};

/// Name of the column that holds the payloads.
const PAYLOAD_COLUMN: &str = "payload";
/// Rows whose text and dictionary columns are converted at a time: bounds the memory of a cast.
const CHUNK_ROWS: usize = 65_536;

/// The payload column in the forms that Arrow producers use.
enum Payloads<'a> {
    Large(&'a LargeBinaryArray),
    Small(&'a BinaryArray),
    View(&'a BinaryViewArray),
    Fixed(&'a FixedSizeBinaryArray),
}

impl<'a> Payloads<'a> {
    fn new(array: &'a ArrayRef) -> Option<Self> {
        Some(match array.data_type() {
            DataType::LargeBinary => Self::Large(array.as_binary::<i64>()),
            DataType::Binary => Self::Small(array.as_binary::<i32>()),
            DataType::BinaryView => Self::View(array.as_binary_view()),
            DataType::FixedSizeBinary(_) => Self::Fixed(array.as_fixed_size_binary()),
            _ => return None,
        })
    }

    fn len_bytes(&self, row: usize) -> u64 {
        match self {
            Self::Large(array) => array.value(row).len() as u64,
            Self::Small(array) => array.value(row).len() as u64,
            Self::View(array) => u64::from(array.views()[row] as u32),
            Self::Fixed(array) => array.value(row).len() as u64,
        }
    }

    /// Puts rows `start..end` behind `bytes`: one copy, where the layout allows it.
    fn append_to(&self, start: usize, end: usize, bytes: &mut Vec<u8>) {
        match self {
            Self::Large(array) => {
                let offsets = array.value_offsets();
                let range = offsets[start] as usize..offsets[end] as usize;
                bytes.extend_from_slice(&array.value_data()[range]);
            }
            Self::Small(array) => {
                let offsets = array.value_offsets();
                let range = offsets[start] as usize..offsets[end] as usize;
                bytes.extend_from_slice(&array.value_data()[range]);
            }
            Self::View(array) => (start..end).for_each(|i| bytes.extend_from_slice(array.value(i))),
            Self::Fixed(array) => {
                (start..end).for_each(|i| bytes.extend_from_slice(array.value(i)));
            }
        }
    }
}

/// One stored column of the batch: position among the source's columns, and the values.
struct Incoming<'a> {
    position: usize,
    array: &'a ArrayRef,
    column_type: ColumnType,
}

impl Ingest {
    /// Takes the rows of an Arrow batch: the stored columns, by name and in any order, and a
    /// binary column `payload` without nulls. Text, view and dictionary forms become the stored
    /// type; every other type must be the column's own. The arrays must be valid in full
    /// (`ArrayData::validate_full`), since foreign ones may not be.
    ///
    /// # Errors
    /// `InvalidInput` for missing, unknown, repeated or reserved columns, other types, null
    /// payloads, nulls in a column declared without, and payloads above 2^31 - 1 bytes;
    /// `Unsupported` for types caches do not store. No row of the batch is kept then.
    pub fn push_batch(&mut self, batch: &RecordBatch) -> Result<()> {
        if self.has_open_row() {
            return Err(Error::internal("an Arrow batch came within a row"));
        }
        if batch.num_rows() == 0 {
            return Ok(());
        }
        let payload = self.payload_of(batch)?;
        let payloads = Payloads::new(payload).ok_or_else(|| {
            let found = payload.data_type();
            self.refuse_at(
                self.rows,
                format!(
                    "column \"payload\": expected binary, large_binary or binary_view, found \
                     {found}; cast it"
                ),
            )
        })?;
        self.check_payloads(payload, &payloads)?;
        let had_columns = self.is_settled;
        let outcome = self.bind(batch).and_then(|incoming| {
            self.check_batch_hold(&incoming, &payloads, batch.num_rows())?;
            Ok(incoming)
        });
        let incoming = outcome.inspect_err(|_| {
            if !had_columns {
                self.forget_columns();
            }
        })?;
        self.take_types(&incoming);
        self.is_settled = true;
        let mut start = 0;
        while start < batch.num_rows() {
            let len = CHUNK_ROWS.min(batch.num_rows() - start);
            self.push_chunk(&incoming, &payloads, start, len)?;
            start += len;
        }
        self.settle_schema()
    }

    fn payload_of<'a>(&self, batch: &'a RecordBatch) -> Result<&'a ArrayRef> {
        let schema = batch.schema_ref();
        let mut found =
            schema.fields().iter().zip(batch.columns()).filter(|(f, _)| f.name() == PAYLOAD_COLUMN);
        match (found.next(), found.next()) {
            (Some((_, array)), None) => Ok(array),
            (first, _) => {
                let count = if first.is_none() { "no" } else { "more than one" };
                Err(self.refuse_at(
                    self.rows,
                    format!(
                        "Arrow batch with {count} column \"payload\"; expected one; name the \
                         column with the payload bytes so"
                    ),
                ))
            }
        }
    }

    fn check_payloads(&self, array: &ArrayRef, payloads: &Payloads<'_>) -> Result<()> {
        if let Some(row) = first_null(array) {
            return Err(self.refuse_at(
                self.rows + row as u64,
                "payload: expected bytes, found null; drop the row or give empty bytes",
            ));
        }
        (0..array.len())
            .try_for_each(|i| self.check_payload_len(self.rows + i as u64, payloads.len_bytes(i)))
    }

    /// Finds the column of every array; makes the columns when this batch is the first.
    fn bind<'a>(&mut self, batch: &'a RecordBatch) -> Result<Vec<Incoming<'a>>> {
        let schema = batch.schema_ref();
        let mut incoming = Vec::with_capacity(batch.num_columns());
        let mut is_bound = vec![false; self.columns.len()];
        for (field, array) in schema.fields().iter().zip(batch.columns()) {
            let name = field.name();
            if name == PAYLOAD_COLUMN {
                continue;
            }
            let column_type = ColumnType::from_arrow(array.data_type())
                .map_err(|e| e.within(format!("{}, column {name:?}", self.place(self.rows))))?;
            let position = match self.lookup(name) {
                Some(position) => position,
                None if self.is_settled => {
                    let text = format!("unknown column {name:?}; give every batch the same columns");
                    return Err(self.refuse_at(self.rows, text));
                }
                None => {
                    is_bound.push(false);
                    self.add_column(name, None)?
                }
            };
            match is_bound.get_mut(position) {
                Some(bound) if !*bound => *bound = true,
                _ => {
                    let text = format!("column {name:?} comes twice; expected it once");
                    return Err(self.refuse_at(self.rows, text));
                }
            }
            self.check_column(position, name, array, &column_type)?;
            incoming.push(Incoming { position, array, column_type });
        }
        if let Some(missing) = is_bound.iter().position(|bound| !bound) {
            let name = self.columns.get(missing).map_or("", |c| c.name.as_str());
            let text = format!("column {name:?} is missing; give every batch the same columns");
            return Err(self.refuse_at(self.rows, text));
        }
        Ok(incoming)
    }

    fn check_column(
        &self,
        position: usize,
        name: &str,
        array: &ArrayRef,
        column_type: &ColumnType,
    ) -> Result<()> {
        let Some(column) = self.columns.get(position) else {
            return Err(Error::internal("a column is not where the look-up says"));
        };
        match column.values.column_type() {
            Some(known) if known != column_type && *column_type != ColumnType::Null => {
                return Err(self.refuse_at(
                    self.rows,
                    format!(
                        "column {name:?}: expected {}, found {}; cast it",
                        known.to_text(),
                        array.data_type()
                    ),
                ));
            }
            _ => {}
        }
        match first_null(array) {
            Some(row) if !column.is_nullable => Err(self.refuse_at(
                self.rows + row as u64,
                format!(
                    "column {name:?}: expected {}, not null, found null; give a value, or \
                     declare the column nullable",
                    column_type.to_text()
                ),
            )),
            _ => Ok(()),
        }
    }

    /// Columns without a type may stay so in a batch of type `Null` only; what then waits for
    /// them counts before any of it is taken.
    fn check_batch_hold(
        &self,
        incoming: &[Incoming<'_>],
        payloads: &Payloads<'_>,
        rows: usize,
    ) -> Result<()> {
        let stays_untyped = incoming.iter().any(|column| {
            column.column_type == ColumnType::Null
                && self.columns.get(column.position).is_some_and(|c| c.values.column_type().is_none())
        });
        if !stays_untyped {
            return Ok(());
        }
        let fixed: u64 = incoming.iter().map(|c| fixed_cost_bytes(&c.column_type)).sum();
        let row_bytes = |i| payloads.len_bytes(i).saturating_add(fixed + ROW_COST_BYTES);
        self.check_hold((0..rows).map(row_bytes).fold(0, u64::saturating_add))
    }

    fn take_types(&mut self, incoming: &[Incoming<'_>]) {
        for Incoming { position, column_type, .. } in incoming {
            let Some(column) = self.columns.get_mut(*position) else { continue };
            if column.values.column_type().is_none() && *column_type != ColumnType::Null {
                column.values.set_type(column_type.clone());
                column.note_type(self.rows);
                self.untyped -= 1;
            }
        }
    }

    fn push_chunk(
        &mut self,
        incoming: &[Incoming<'_>],
        payloads: &Payloads<'_>,
        start: usize,
        len: usize,
    ) -> Result<()> {
        let mut costs: Vec<u64> =
            (start..start + len).map(|i| payloads.len_bytes(i) + ROW_COST_BYTES).collect();
        let mut arrays = Vec::with_capacity(incoming.len());
        for Incoming { position, array, column_type } in incoming {
            let array = stored_form(&array.slice(start, len), column_type)?;
            add_variable_costs(&array, column_type, &mut costs);
            let fixed = self.columns.get(*position).map_or(0, |c| c.cost_bytes);
            costs.iter_mut().for_each(|cost| *cost += fixed);
            arrays.push((*position, array));
        }
        let mut taken = 0;
        for (i, &row_bytes) in costs.iter().enumerate() {
            if self.limits.closes_before(self.fill, payloads.len_bytes(start + i)) {
                self.take_run(&arrays, payloads, start, taken..i)?;
                self.close_group()?;
                taken = i;
            }
            self.fill.add(row_bytes);
            if self.limits.is_full(self.fill) {
                self.take_run(&arrays, payloads, start, taken..i + 1)?;
                self.close_group()?;
                taken = i + 1;
            }
        }
        self.take_run(&arrays, payloads, start, taken..len)
    }

    fn take_run(
        &mut self,
        arrays: &[(usize, ArrayRef)],
        payloads: &Payloads<'_>,
        chunk_start: usize,
        run: std::ops::Range<usize>,
    ) -> Result<()> {
        for (position, array) in arrays {
            if let Some(column) = self.columns.get_mut(*position) {
                column.values.append(array, run.start, run.len())?;
            }
        }
        let first = self.payload_offsets.last().copied().unwrap_or(0);
        let mut end = first;
        for i in run.clone() {
            end += payloads.len_bytes(chunk_start + i) as i64;
            self.payload_offsets.push(end);
        }
        self.reserve_payload((end - first) as usize)?;
        payloads.append_to(chunk_start + run.start, chunk_start + run.end, &mut self.payload);
        self.payload_bytes += (end - first) as u64;
        self.rows += run.len() as u64;
        Ok(())
    }
}

/// First null row; dictionaries may hide nulls in their values.
fn first_null(array: &ArrayRef) -> Option<usize> {
    let nulls = array.logical_nulls().filter(|nulls| nulls.null_count() > 0)?;
    (0..nulls.len()).find(|&i| nulls.is_null(i))
}

fn stored_form(array: &ArrayRef, column_type: &ColumnType) -> Result<ArrayRef> {
    let stored = column_type.to_arrow();
    if *array.data_type() == stored {
        return Ok(array.clone());
    }
    arrow_cast::cast(array, &stored)
        .map_err(|e| Error::internal(format!("cannot convert a column to {stored}: {e}")))
}
