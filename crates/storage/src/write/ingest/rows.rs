//! Takes samples one by one: infers or checks the schema, ends groups. Knows no Arrow batch.

use std::collections::{HashMap, VecDeque};

use super::super::column::ColumnBuilder;
use super::super::group::{GroupLimits, PayloadBuilder, RowGroup};
use super::cell::{Cell, push_cell};
use crate::format::limits::{COLUMNS_MAX, PAYLOAD_BYTES_MAX};
use crate::format::schema::{ColumnType, StoredColumn, StoredSchema, check_column_name};
use crate::{Error, Result};

/// Turns the rows of one source into row groups. A row that was refused leaves nothing behind.
pub struct Ingest {
    pub(super) source: String,
    pub(super) limits: GroupLimits,
    pub(super) columns: Vec<Column>,
    pub(super) positions: HashMap<String, usize>,
    /// Whether names and order of the columns are known.
    pub(super) is_shaped: bool,
    schema: Option<StoredSchema>,
    pub(super) payload: PayloadBuilder,
    pub(super) group_bytes: u64,
    closed: VecDeque<RowGroup>,
    held_bytes: u64,
    pub(super) rows_total: u64,
    pub(super) payload_bytes: u64,
    first_row_of_group: u64,
    open_row: Option<OpenRow>,
    is_declared: bool,
}

/// What a cell counts beside its text: the widest fixed value, or an offset.
const CELL_COST_BYTES: u64 = 8;

/// Names listed in a message at most.
const NAMES_SHOWN: usize = 10;

/// The row that was begun and not ended.
#[derive(Clone, Copy, Default)]
struct OpenRow {
    bytes: u64,
    cells: usize,
}

/// One column of the source.
pub(super) struct Column {
    pub(super) name: String,
    pub(super) nullable: bool,
    pub(super) builder: ColumnBuilder,
    /// Row whose value fixed the type; `None` before, and for declared types.
    pub(super) typed_by_row: Option<u64>,
}

impl Ingest {
    /// Starts an empty source. With a declared schema nothing is inferred.
    pub fn new(source: &str, declared: Option<StoredSchema>, limits: GroupLimits) -> Self {
        let columns: Vec<Column> = declared
            .iter()
            .flat_map(StoredSchema::columns)
            .map(|c| Column {
                name: c.name.clone(),
                nullable: c.nullable,
                builder: ColumnBuilder::new(Some(c.column_type.clone())),
                typed_by_row: None,
            })
            .collect();
        let is_declared = declared.is_some();
        let positions = columns.iter().enumerate().map(|(i, c)| (c.name.clone(), i)).collect();
        Self {
            source: source.to_owned(),
            limits,
            columns,
            positions,
            is_shaped: is_declared,
            schema: declared,
            payload: PayloadBuilder::new(),
            group_bytes: 0,
            closed: VecDeque::new(),
            held_bytes: 0,
            rows_total: 0,
            payload_bytes: 0,
            first_row_of_group: 0,
            open_row: None,
            is_declared,
        }
    }

    /// Goes on behind the first `rows` samples with `payload_bytes` of payload, which are stored
    /// already and have this schema.
    pub fn continued(
        source: &str,
        schema: StoredSchema,
        limits: GroupLimits,
        rows: u64,
        payload_bytes: u64,
    ) -> Self {
        Self {
            rows_total: rows,
            first_row_of_group: rows,
            payload_bytes,
            ..Self::new(source, Some(schema), limits)
        }
    }

    /// Rows taken so far.
    pub fn rows(&self) -> u64 {
        self.rows_total
    }

    /// Payload bytes taken so far.
    pub fn payload_bytes(&self) -> u64 {
        self.payload_bytes
    }

    /// Begins a row with a copy of its payload.
    ///
    /// # Errors
    /// `InvalidInput` for a payload larger than any payload may be, `Internal` when the row before
    /// was not ended.
    pub fn push_payload(&mut self, payload: &[u8]) -> Result<()> {
        if self.open_row.is_some() {
            return Err(Error::internal("a row begins before the one before it has ended"));
        }
        let len = payload.len() as u64;
        self.check_payload_len(self.rows_total, len)?;
        if self.payload.rows() > 0 && self.group_bytes + len > self.limits.batch_bytes {
            self.close_group()?;
        }
        self.payload.push(payload)?;
        self.open_row = Some(OpenRow { bytes: len, cells: 0 });
        Ok(())
    }

    pub(super) fn check_payload_len(&self, row: u64, len: u64) -> Result<()> {
        if len <= PAYLOAD_BYTES_MAX {
            return Ok(());
        }
        Err(self.refuse(
            row,
            format!(
                "payload has {len} bytes; expected at most {PAYLOAD_BYTES_MAX}; split it into \
                 several samples"
            ),
        ))
    }

    /// Takes one metadata value of the row begun; `ordinal` counts the values of this row.
    ///
    /// # Errors
    /// `InvalidInput` naming source, sample, key, expected and found type; the row is gone then.
    pub fn cell(&mut self, ordinal: usize, key: &str, cell: Cell<'_>) -> Result<()> {
        let outcome = self.push_cell(ordinal, key, cell);
        if outcome.is_err() {
            self.discard();
        }
        outcome
    }

    fn push_cell(&mut self, ordinal: usize, key: &str, cell: Cell<'_>) -> Result<()> {
        if self.open_row.is_none() {
            return Err(Error::internal("a value comes outside of a row"));
        }
        let position = match self.columns.get(ordinal) {
            Some(column) if column.name == key => ordinal,
            _ => self.position_of(key)?,
        };
        let rows = self.payload.rows();
        let (Some(column), Some(row)) = (self.columns.get_mut(position), &mut self.open_row) else {
            return Err(Error::internal("a column position is out of range"));
        };
        if column.builder.len() >= rows {
            let text = format!("key {key:?} appears twice; give each column its own key");
            return Err(self.refuse(self.rows_total, text));
        }
        if cell == Cell::Null && !column.nullable {
            let text = format!(
                "key {key:?} is None, but the declared schema does not allow nulls; give it a \
                 value or declare the column nullable"
            );
            return Err(self.refuse(self.rows_total, text));
        }
        let is_untyped = column.builder.column_type().is_none();
        let pushed = push_cell(&mut column.builder, cell);
        if is_untyped && column.builder.column_type().is_some() {
            column.typed_by_row = Some(self.rows_total);
        }
        match pushed {
            Ok(bytes) => {
                row.bytes += bytes;
                row.cells += 1;
                Ok(())
            }
            Err(refusal) => {
                let text = format!(
                    "key {key:?}: expected {}, found {}; {}",
                    refusal.expected, refusal.found, refusal.advice
                );
                Err(self.refuse(self.rows_total, text))
            }
        }
    }

    /// Takes back what came after the last row that was kept: values, types, and columns that no
    /// kept row has.
    pub(super) fn discard(&mut self) {
        self.open_row = None;
        let kept = (self.rows_total - self.first_row_of_group) as usize;
        self.payload.truncate(kept);
        if self.rows_total == 0 && !self.is_declared {
            self.columns.clear();
            self.positions.clear();
            self.is_shaped = false;
        }
        for column in &mut self.columns {
            column.builder.truncate(kept);
            if column.typed_by_row.is_some_and(|row| row >= self.rows_total) {
                column.builder.forget_type();
                column.typed_by_row = None;
            }
        }
    }

    fn position_of(&mut self, key: &str) -> Result<usize> {
        if let Some(&position) = self.positions.get(key) {
            return Ok(position);
        }
        if self.is_shaped {
            return Err(self.unknown_key(key));
        }
        check_column_name(key)
            .map_err(|e| self.refuse(self.rows_total, format!("key {key:?}: {e}")))?;
        self.add_column(key, true, None)
    }

    pub(super) fn add_column(
        &mut self,
        name: &str,
        nullable: bool,
        column_type: Option<ColumnType>,
    ) -> Result<usize> {
        let position = self.columns.len();
        if position >= COLUMNS_MAX {
            let text = format!("more than {COLUMNS_MAX} metadata keys; store fewer columns");
            return Err(self.refuse(self.rows_total, text));
        }
        let builder = ColumnBuilder::new(column_type);
        let typed_by_row = builder.column_type().map(|_| self.rows_total);
        self.columns.push(Column { name: name.to_owned(), nullable, builder, typed_by_row });
        self.positions.insert(name.to_owned(), position);
        Ok(position)
    }

    fn unknown_key(&self, key: &str) -> Error {
        let names: Vec<&str> = self.columns.iter().map(|c| c.name.as_str()).collect();
        self.refuse(
            self.rows_total,
            format!("unknown key {key:?}; expected {names:?}; give every sample the same keys"),
        )
    }

    /// Ends the row.
    ///
    /// # Errors
    /// `InvalidInput` naming the key that is missing (the row is gone then), or the columns without
    /// a type once no more rows can wait for it.
    pub fn end_row(&mut self) -> Result<()> {
        let row = self.open_row.ok_or_else(|| Error::internal("a row ends that has not begun"))?;
        if row.cells != self.columns.len() {
            let rows = self.payload.rows();
            let missing = self.columns.iter().find(|c| c.builder.len() < rows);
            let key = missing.map_or_else(String::new, |c| format!("{:?}", c.name));
            let text = format!("key {key} is missing; give every sample the same keys");
            let error = self.refuse(self.rows_total, text);
            self.discard();
            return Err(error);
        }
        self.open_row = None;
        self.is_shaped = true;
        self.group_bytes += row.bytes + self.fixed_row_bytes();
        self.payload_bytes += self.payload.last_len();
        self.rows_total += 1;
        if self.payload.rows() >= self.limits.batch_rows
            || self.group_bytes >= self.limits.batch_bytes
        {
            self.close_group()?;
        }
        Ok(())
    }

    /// The same for every row, whichever types are known by then: groups must end in the same
    /// places when a source goes on in the middle.
    pub(super) fn fixed_row_bytes(&self) -> u64 {
        self.columns.len() as u64 * CELL_COST_BYTES
    }

    pub(super) fn close_group(&mut self) -> Result<()> {
        let columns =
            self.columns.iter_mut().map(|c| c.builder.take()).collect::<Result<Vec<_>>>()?;
        let payload = self.payload.take()?;
        let raw_bytes = std::mem::take(&mut self.group_bytes);
        let first_row = self.first_row_of_group;
        let group = RowGroup::new(first_row, columns, payload, raw_bytes, self.payload.spares());
        self.first_row_of_group += group.rows();
        self.closed.push_back(group);
        if self.schema().is_some() {
            self.held_bytes = 0;
            return Ok(());
        }
        self.held_bytes += raw_bytes;
        if self.held_bytes < self.limits.hold_bytes {
            return Ok(());
        }
        let untyped = self.columns.iter().filter(|c| c.builder.column_type().is_none());
        let untyped: Vec<&str> = untyped.map(|c| c.name.as_str()).collect();
        let (shown, more) = untyped.split_at(untyped.len().min(NAMES_SHOWN));
        let more =
            if more.is_empty() { String::new() } else { format!(" and {} more", more.len()) };
        Err(Error::invalid(format!(
            "source {:?}: columns {shown:?}{more} had no value in the first {} samples, and the first \
             shard must close; declare a `schema` on the source",
            self.source, self.first_row_of_group
        )))
    }

    /// The stored columns, once every column has a type.
    pub fn schema(&mut self) -> Option<&StoredSchema> {
        if self.schema.is_none()
            && self.is_shaped
            && self.columns.iter().all(|c| c.builder.column_type().is_some())
        {
            self.schema = self.typed_schema().ok();
        }
        self.schema.as_ref()
    }

    /// Columns without a type count as Arrow null.
    fn typed_schema(&self) -> Result<StoredSchema> {
        StoredSchema::new(
            self.columns
                .iter()
                .map(|c| StoredColumn {
                    name: c.name.clone(),
                    column_type: c.builder.column_type().cloned().unwrap_or(ColumnType::Null),
                    nullable: c.nullable,
                })
                .collect(),
        )
    }

    /// The next closed group in row order, once the schema is known.
    pub fn take_group(&mut self) -> Option<RowGroup> {
        if self.closed.is_empty() {
            return None;
        }
        let schema = self.schema()?.clone();
        self.closed.pop_front().map(|group| group.typed(&schema))
    }

    /// Ends the source: the schema, and the groups not taken yet.
    ///
    /// # Errors
    /// `InvalidInput` for a source without samples, `Internal` when its last row has not ended.
    pub fn finish(mut self) -> Result<(StoredSchema, Vec<RowGroup>)> {
        if self.open_row.is_some() {
            return Err(Error::internal("the source ends within a row"));
        }
        if self.rows_total == 0 {
            return Err(Error::invalid(format!(
                "source {:?} yielded no samples; expected at least one; check what it iterates",
                self.source
            )));
        }
        // From here on a column without a type is null, so nothing waits for one any more.
        let schema = match self.schema.take() {
            Some(schema) => schema,
            None => self.typed_schema()?,
        };
        self.schema = Some(schema.clone());
        if self.payload.rows() > 0 {
            self.close_group()?;
        }
        let groups = self.closed.into_iter().map(|group| group.typed(&schema)).collect();
        Ok((schema, groups))
    }

    pub(super) fn has_open_row(&self) -> bool {
        self.open_row.is_some()
    }

    pub(super) fn refuse(&self, row: u64, text: impl std::fmt::Display) -> Error {
        Error::invalid(format!("source {:?}, sample {row}: {text}", self.source))
    }
}
