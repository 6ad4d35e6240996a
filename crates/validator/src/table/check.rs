//! The checks in their order, chunk by chunk, and the messages about stored values.
//! Where a value lies and how it compares is known elsewhere.

use std::sync::Arc;

use arrow_array::{Array, ArrayRef, Float64Array, RecordBatch, UInt64Array};
use arrow_schema::{Field, Schema, SchemaRef};
use dataset_rt_storage::format::schema::{StoredColumn, StoredSchema};
use dataset_rt_storage::{Error, Result};

use super::cell::cell_text;
use super::checked::{CheckedChunk, CheckedTable, Ordinals};
use super::columns::{Columns, StoredPart, identity_fields, weight_field};
use super::compare::first_difference;
use super::identity::identity_column;
use super::place::{Run, Sources};
use super::stored::Converted;
use super::weight::weight_column;

/// Rows placed at a time: bounds what shuffled tables cost, whose every row is a run of its own,
/// and keeps the runs in the cache while the columns pass over them.
const SLICE_ROWS: usize = 32_768;

/// The stored columns of one cache, as its `metadata.arrow` holds them.
#[derive(Clone, Copy, Debug)]
pub struct CacheColumns<'a> {
    /// Its identity.
    pub cache_id: u64,
    /// Samples in it.
    pub rows: u64,
    /// Stored columns in schema order, stored types, any chunking; without columns where nothing
    /// but payloads is stored (the batches then still count the rows).
    pub batches: &'a [RecordBatch],
}

/// Checks a user's table column by column against the caches it speaks about.
///
/// The rules: identity, weight and every stored column are present, in any order, each name once,
/// no `payload`. Identities are whole numbers of any integer type (float64 below 2^53, float32
/// below 2^24), known, not null. Weights are numbers, not null, finite, above 0. Stored columns
/// have their stored type, up to integer width (values must fit), string and binary forms,
/// dictionaries of these, time units (values must fit) and all-null columns; zones stay the same.
/// Stored values equal the cache's own for that identity, except in columns named by `edited`,
/// whose values must still fit type and nullability. NaN equals NaN; -0.0 equals 0.0, as numbers
/// do. Duplicate rows and any order are fine; extra columns pass untouched, but for types that
/// Polars has no form for.
///
/// `table` must have passed Arrow's full validation (offsets, UTF-8, dictionary keys) before: this
/// function trusts arrays to be what they say. It compares whole runs of bytes where table rows
/// follow cache rows, and costs one typed comparison a cell elsewhere.
///
/// # Errors
/// `InvalidInput` at the first fault, naming column, row (0-based, in the whole table), expected
/// and found value and the way out; `Unsupported` above 2^32 - 1 rows and for such types;
/// `Internal` when `caches` are not what `schema` says. `attend` is called many times a second; its
/// error ends the check.
pub fn check_table(
    table_schema: &SchemaRef,
    table: &[RecordBatch],
    schema: &StoredSchema,
    caches: &[CacheColumns<'_>],
    edited: &[String],
    attend: &mut dyn FnMut() -> Result<()>,
) -> Result<CheckedTable> {
    let columns = Columns::find(table_schema, schema, edited)?;
    let sources = Sources::new(caches, schema)?;
    let output = Arc::new(columns.output_schema(table_schema, schema));
    let check = Check { columns, sources, schema, output: Arc::clone(&output) };
    check_row_count(table.iter().map(|batch| batch.num_rows() as u64).sum())?;
    let mut first_row = 0;
    let mut ordinals = OrdinalsSoFar::default();
    let mut chunks = Vec::with_capacity(table.len());
    for batch in table.iter().filter(|batch| batch.num_rows() > 0) {
        check_batch_types(table_schema, batch)?;
        chunks.push(check.chunk(batch, first_row, &mut ordinals, attend)?);
        first_row += batch.num_rows();
    }
    Ok(CheckedTable::new(output, chunks, ordinals.finish(), edited.to_vec()))
}

/// The default active table: every row of every cache in order, weight 1.0. Stored columns are
/// shared with the caches; the other three cost 8 bytes a row of the largest cache or batch.
///
/// # Errors
/// `Internal` when `caches` are not what `schema` says.
pub fn whole_table(schema: &StoredSchema, caches: &[CacheColumns<'_>]) -> Result<CheckedTable> {
    Sources::new(caches, schema)?;
    let mut fields = identity_fields();
    fields.extend(schema.to_fields());
    fields.push(weight_field());
    let output = Arc::new(Schema::new(fields));
    let largest_cache = caches.iter().map(|cache| cache.rows).max().unwrap_or(0);
    let batches = caches.iter().flat_map(|cache| cache.batches);
    let largest_batch = batches.map(RecordBatch::num_rows).max().unwrap_or(0);
    let row_numbers = UInt64Array::from_iter_values(0..largest_cache);
    let ones = Float64Array::from_value(1.0, largest_batch);
    let mut ordinals = OrdinalsSoFar::default();
    let mut chunks = Vec::new();
    for (ordinal, cache) in caches.iter().enumerate() {
        let width = cache.batches.iter().map(RecordBatch::num_rows).max().unwrap_or(0);
        let cache_ids = UInt64Array::from_value(cache.cache_id, width);
        let mut first = 0;
        for batch in cache.batches.iter().filter(|batch| batch.num_rows() > 0) {
            let rows = batch.num_rows();
            let sample_ids = row_numbers.slice(first, rows);
            let weights = ones.slice(0, rows);
            let mut columns: Vec<ArrayRef> =
                vec![Arc::new(cache_ids.slice(0, rows)), Arc::new(sample_ids.clone())];
            columns.extend(batch.columns().iter().cloned());
            columns.push(Arc::new(weights.clone()));
            let columns = join(&output, columns)?;
            chunks.push(CheckedChunk { columns, sample_ids, weights });
            ordinals.extend_same(ordinal as u32, rows);
            first += rows;
        }
    }
    Ok(CheckedTable::new(output, chunks, ordinals.finish(), Vec::new()))
}

struct Check<'a> {
    columns: Columns,
    sources: Sources<'a>,
    schema: &'a StoredSchema,
    output: SchemaRef,
}

impl Check<'_> {
    fn chunk(
        &self,
        batch: &RecordBatch,
        first_row: usize,
        ordinals: &mut OrdinalsSoFar,
        attend: &mut dyn FnMut() -> Result<()>,
    ) -> Result<CheckedChunk> {
        attend()?;
        let chunk = Chunk {
            check: self,
            batch,
            first_row,
            cache_ids: identity_column("cache_id", batch.column(self.columns.cache_id), first_row)?,
            sample_ids: identity_column(
                "sample_id",
                batch.column(self.columns.sample_id),
                first_row,
            )?,
        };
        let weights = weight_column(batch.column(self.columns.weight), first_row)?;
        let stored = chunk.stored_columns(attend)?;
        let mut found = Vec::new();
        for start in (0..batch.num_rows()).step_by(SLICE_ROWS) {
            let end = batch.num_rows().min(start + SLICE_ROWS);
            attend()?;
            found.clear();
            let runs = chunk.runs(start..end, &mut found)?;
            ordinals.extend(&found);
            chunk.compare(&stored, &runs)?;
        }
        let mut columns: Vec<ArrayRef> =
            vec![Arc::new(chunk.cache_ids), Arc::new(chunk.sample_ids.clone())];
        columns.extend(stored);
        columns.push(Arc::new(weights.clone()));
        let extras = self.columns.extras.iter();
        columns.extend(extras.map(|&position| Arc::clone(batch.column(position))));
        let columns = join(&self.output, columns)?;
        Ok(CheckedChunk { columns, sample_ids: chunk.sample_ids, weights })
    }

    fn parts(&self) -> impl Iterator<Item = (&StoredColumn, &StoredPart)> {
        self.schema.columns().iter().zip(&self.columns.stored)
    }
}

/// One chunk of the table on its way through the checks.
struct Chunk<'a> {
    check: &'a Check<'a>,
    batch: &'a RecordBatch,
    first_row: usize,
    cache_ids: UInt64Array,
    sample_ids: UInt64Array,
}

impl Chunk<'_> {
    fn runs(&self, rows: std::ops::Range<usize>, ordinals: &mut Vec<u32>) -> Result<Vec<Run>> {
        let sources = &self.check.sources;
        sources.runs(&self.cache_ids, &self.sample_ids, rows, self.first_row, ordinals)
    }

    fn stored_columns(&self, attend: &mut dyn FnMut() -> Result<()>) -> Result<Vec<ArrayRef>> {
        let convert = |(ordinal, (column, part)): (usize, (&StoredColumn, &StoredPart))| {
            attend()?;
            let array = self.batch.column(part.position);
            let converted = match part.conversion.apply(column, array)? {
                Converted::Column(converted) => converted,
                Converted::Misfit(row) if part.is_edited => {
                    return Err(self.misfit(column, array, row));
                }
                Converted::Misfit(row) => {
                    let run = self.runs(row..row + 1, &mut Vec::new())?;
                    let run = run.first().ok_or_else(|| Error::internal("a row has no place"))?;
                    return Err(self.difference(ordinal, column, array, run, 0));
                }
            };
            if part.is_edited && !column.nullable {
                self.refuse_nulls(column, &converted)?;
            }
            Ok(converted)
        };
        self.check.parts().enumerate().map(convert).collect()
    }

    fn compare(&self, stored: &[ArrayRef], runs: &[Run]) -> Result<()> {
        for (ordinal, ((column, part), array)) in self.check.parts().zip(stored).enumerate() {
            if part.is_edited {
                continue;
            }
            let sources = &self.check.sources;
            let difference = first_difference(array, &column.column_type, ordinal, runs, sources)?;
            if let Some((run, offset)) = difference {
                return Err(self.difference(ordinal, column, array, &run, offset));
            }
        }
        Ok(())
    }

    fn difference(
        &self,
        ordinal: usize,
        column: &StoredColumn,
        array: &ArrayRef,
        run: &Run,
        offset: usize,
    ) -> Error {
        let row = run.row + offset;
        let sources = &self.check.sources;
        let own = sources.column(run, ordinal);
        let expected = own.map_or_else(String::new, |own| cell_text(own, run.start + offset));
        let (cache_id, sample_id) = sources.identity(run, offset).unwrap_or_default();
        let name = &column.name;
        Error::invalid(format!(
            "column {name:?}, row {}: found {}; expected {expected}, the cache's own value for \
             cache_id {cache_id}, sample_id {sample_id}; a stored column was shifted, badly \
             joined or changed: if on purpose, pass edited=[{name:?}] or put the new values into \
             a new column",
            self.first_row + row,
            cell_text(array, row),
        ))
    }

    fn misfit(&self, column: &StoredColumn, array: &ArrayRef, row: usize) -> Error {
        Error::invalid(format!(
            "column {:?}, row {}: found {}; expected a value that fits {}, as the column is \
             stored; put the new values into a new column",
            column.name,
            self.first_row + row,
            cell_text(array, row),
            column.column_type.to_text(),
        ))
    }

    fn refuse_nulls(&self, column: &StoredColumn, array: &ArrayRef) -> Result<()> {
        let Some(nulls) = array.logical_nulls().filter(|nulls| nulls.null_count() > 0) else {
            return Ok(());
        };
        let row = nulls.iter().position(|is_valid| !is_valid).unwrap_or(0);
        Err(Error::invalid(format!(
            "column {:?}, row {}: found null; expected a value, since the column is stored \
             without nulls; fill it, or put the new values into a new column",
            column.name,
            self.first_row + row
        )))
    }
}

fn check_row_count(rows: u64) -> Result<()> {
    if rows == 0 {
        return Err(Error::invalid(
            "the table has no rows; expected at least one; an empty table cannot be iterated: \
             loosen the filter",
        ));
    }
    if rows > u64::from(u32::MAX) {
        return Err(Error::unsupported(format!(
            "the table has {rows} rows; expected at most {}; split it into several datasets",
            u32::MAX
        )));
    }
    Ok(())
}

fn check_batch_types(table: &SchemaRef, batch: &RecordBatch) -> Result<()> {
    let types = |fields: &arrow_schema::Fields| -> Vec<_> {
        fields.iter().map(|field: &Arc<Field>| field.data_type().clone()).collect()
    };
    let schema = batch.schema_ref();
    if Arc::ptr_eq(table, schema) || types(table.fields()) == types(schema.fields()) {
        return Ok(());
    }
    Err(Error::invalid(
        "the table's batches do not all have the table's column types; expected one schema; \
         pass one table, not batches of several",
    ))
}

fn join(schema: &SchemaRef, columns: Vec<ArrayRef>) -> Result<RecordBatch> {
    RecordBatch::try_new(Arc::clone(schema), columns).map_err(|e| {
        Error::invalid(format!(
            "the table contradicts itself: {e}; expected columns that obey their own schema; \
             rebuild the table"
        ))
    })
}

/// One number as long as all rows share it, one per row from the first other on.
#[derive(Default)]
struct OrdinalsSoFar {
    first: u32,
    rows: usize,
    per_row: Option<Vec<u32>>,
}

impl OrdinalsSoFar {
    fn extend(&mut self, ordinals: &[u32]) {
        if self.rows == 0 {
            self.first = ordinals.first().copied().unwrap_or(0);
        }
        if self.per_row.is_none() && ordinals.iter().any(|&ordinal| ordinal != self.first) {
            self.per_row = Some(vec![self.first; self.rows]);
        }
        if let Some(per_row) = &mut self.per_row {
            per_row.extend_from_slice(ordinals);
        }
        self.rows += ordinals.len();
    }

    fn extend_same(&mut self, ordinal: u32, rows: usize) {
        if self.rows == 0 {
            self.first = ordinal;
        }
        if self.per_row.is_none() && ordinal != self.first {
            self.per_row = Some(vec![self.first; self.rows]);
        }
        if let Some(per_row) = &mut self.per_row {
            per_row.resize(per_row.len() + rows, ordinal);
        }
        self.rows += rows;
    }

    fn finish(self) -> Ordinals {
        self.per_row.map_or(Ordinals::One(self.first), |caches| Ordinals::PerRow(caches.into()))
    }
}
