//! Stored columns of some rows, put together from the files that still hold them, value by value.

use std::ops::Range;

use super::cells::{Cells, Column, Value};
use super::proven::ProvenFile;
use super::region::{Attend, Found, Loss};
use super::structure::Structure;
use crate::Result;
use crate::format::manifest::METADATA_FILE;
use crate::format::schema::StoredSchema;

/// Where the stored columns lie in a file.
pub(super) struct Place {
    /// Row of the cache that is the file's first.
    pub first_row: u64,
    /// Columns in front of them.
    pub own_columns: usize,
    /// Bytes that text or binary of one batch may have.
    pub values_max: u64,
}

/// Stored columns of some rows, from wherever they were found.
pub(super) struct Columns {
    /// Better ones first.
    segments: Vec<Segment>,
    why: Option<Loss>,
    count: usize,
}

struct Segment {
    rows: Range<u64>,
    /// Row of the cache that is the first of its batch.
    first_row: u64,
    cells: Vec<Cells>,
}

impl Columns {
    /// None yet, of `count` columns.
    pub(super) fn new(count: usize) -> Self {
        Self { segments: Vec::new(), why: None, count }
    }

    /// Adds what `file` has of `rows`.
    pub(super) fn take(
        &mut self,
        schema: &StoredSchema,
        file: &mut ProvenFile,
        batches: &mut Structure,
        place: &Place,
        rows: &Range<u64>,
        attend: Attend<'_>,
    ) -> Result<()> {
        let file_schema = batches.schema();
        let mut row = rows.start;
        while row < rows.end {
            let Some((number, (start, end))) = batches.batch_of(row - place.first_row) else {
                self.why = Some(batches.loss(file));
                row += 1;
                continue;
            };
            let (start, end) = (place.first_row + start, (place.first_row + end).min(rows.end));
            let header = match batches.header(file, number, attend)? {
                Ok(header) => header.clone(),
                Err(loss) => {
                    self.why = Some(loss);
                    row = end;
                    continue;
                }
            };
            let mut cells = Vec::with_capacity(self.count);
            for (i, stored) in schema.columns().iter().enumerate() {
                let column = Column {
                    column_type: &stored.column_type,
                    nullable: stored.nullable,
                    nulls: header.nulls.get(i + place.own_columns).copied().unwrap_or(0),
                    buffers: header.column_buffers(&file_schema, i + place.own_columns),
                    values_max: place.values_max,
                };
                let rows = row - start..end - start;
                let whole = batches.whole(number);
                cells.push(Cells::load(file, whole, &header, &column, rows, attend)?);
            }
            self.segments.push(Segment { rows: row..end, first_row: start, cells });
            row = end;
        }
        Ok(())
    }

    /// Whether every value is there.
    pub(super) fn is_whole(&self, rows: &Range<u64>) -> bool {
        let known: u64 = self.segments.iter().map(|s| s.rows.end - s.rows.start).sum();
        known == rows.end - rows.start
            && self.segments.iter().flat_map(|segment| &segment.cells).all(Cells::is_whole)
    }

    /// The value of column `column` in row `row`.
    pub(super) fn value(&self, row: u64, column: usize) -> Found<Value<'_>> {
        let mut why = None;
        for segment in self.segments.iter().filter(|segment| segment.rows.contains(&row)) {
            match segment.cells.get(column).map(|cells| cells.value(row - segment.first_row)) {
                Some(Ok(value)) => return Ok(value),
                Some(Err(loss)) => why = Some(loss),
                None => {}
            }
        }
        Err(why.or_else(|| self.why.clone()).unwrap_or_else(|| Loss {
            file: METADATA_FILE.to_owned(),
            reason: "no record batch holds the row".to_owned(),
        }))
    }

    /// Why a value of row `row` is lost, if one is.
    pub(super) fn loss(&self, row: u64) -> Option<Loss> {
        (0..self.count).find_map(|column| self.value(row, column).err())
    }
}
