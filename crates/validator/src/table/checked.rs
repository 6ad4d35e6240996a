//! The table that passed every check, and the way from its rows to samples. Checks nothing itself.

use arrow_array::{Float64Array, RecordBatch, UInt64Array};
use arrow_schema::SchemaRef;

/// An active table: every row names a known sample, has a usable weight, and its stored columns
/// are the cache's own or were edited on purpose. Only [`super::check_table`] and
/// [`super::whole_table`] make one.
///
/// Columns in order: `cache_id` (UInt64), `sample_id` (UInt64), the stored columns in schema
/// order, `weight` (Float64), the extra columns in the user's order. Text is LargeUtf8 or
/// Utf8View, bytes LargeBinary or BinaryView, whichever came in; every other stored column has
/// its stored type. Buffers are shared with the caller's table wherever no conversion was due.
#[derive(Clone, Debug)]
pub struct CheckedTable {
    schema: SchemaRef,
    chunks: Vec<RecordBatch>,
    /// First row of each chunk, and the row count at the end.
    starts: Vec<usize>,
    sample_ids: Vec<UInt64Array>,
    weights: Vec<Float64Array>,
    ordinals: Ordinals,
    edited: Vec<String>,
}

/// What the checks know about one chunk of the table.
pub(super) struct CheckedChunk {
    pub(super) columns: RecordBatch,
    pub(super) sample_ids: UInt64Array,
    pub(super) weights: Float64Array,
}

/// Position of each row's cache in the list given to the check.
#[derive(Clone, Debug)]
pub(super) enum Ordinals {
    /// Every row belongs to this cache: the common case takes no memory.
    One(u32),
    /// One per row.
    PerRow(Vec<u32>),
}

/// Which cache each row of a table belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CacheOrdinals<'a> {
    /// All rows belong to the cache at this position of the list given to the check.
    One(u32),
    /// The position for each row of the table.
    PerRow(&'a [u32]),
}

/// One row of a checked table.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TableRow {
    /// Position of its cache in the list given to the check.
    pub cache: u32,
    /// Row of the sample in that cache.
    pub sample_id: u64,
    /// Its weight, finite and above 0.
    pub weight: f64,
    /// Which of [`CheckedTable::batches`] holds it.
    pub chunk: usize,
    /// Its row in that batch.
    pub row_in_chunk: usize,
}

impl CheckedTable {
    /// Joins chunks; `ordinals` covers their rows.
    pub(super) fn new(
        schema: SchemaRef,
        checked: Vec<CheckedChunk>,
        ordinals: Ordinals,
        edited: Vec<String>,
    ) -> Self {
        let mut starts = vec![0];
        let mut rows = 0;
        let (mut chunks, mut sample_ids, mut weights) = (Vec::new(), Vec::new(), Vec::new());
        for chunk in checked {
            rows += chunk.columns.num_rows();
            starts.push(rows);
            chunks.push(chunk.columns);
            sample_ids.push(chunk.sample_ids);
            weights.push(chunk.weights);
        }
        Self { schema, chunks, starts, sample_ids, weights, ordinals, edited }
    }

    /// Rows of the table.
    pub fn rows(&self) -> usize {
        self.starts.last().copied().unwrap_or(0)
    }

    /// Schema of every batch.
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// The table, in any chunking, no chunk empty.
    pub fn batches(&self) -> &[RecordBatch] {
        &self.chunks
    }

    /// First row of each batch, with the row count as one more entry at the end.
    pub fn chunk_starts(&self) -> &[usize] {
        &self.starts
    }

    /// `sample_id` of the rows of each batch, without nulls.
    pub fn sample_ids(&self) -> &[UInt64Array] {
        &self.sample_ids
    }

    /// `weight` of the rows of each batch, without nulls, all finite and above 0.
    pub fn weights(&self) -> &[Float64Array] {
        &self.weights
    }

    /// Which cache each row belongs to.
    pub fn caches(&self) -> CacheOrdinals<'_> {
        match &self.ordinals {
            Ordinals::One(cache) => CacheOrdinals::One(*cache),
            Ordinals::PerRow(caches) => CacheOrdinals::PerRow(caches),
        }
    }

    /// Position of the cache of `row`; `None` past the end.
    pub fn cache_of(&self, row: usize) -> Option<u32> {
        match &self.ordinals {
            Ordinals::One(cache) => (row < self.rows()).then_some(*cache),
            Ordinals::PerRow(caches) => caches.get(row).copied(),
        }
    }

    /// Batch and row within it of `row`, in O(log batches); `None` past the end.
    pub fn place_of(&self, row: usize) -> Option<(usize, usize)> {
        if row >= self.rows() {
            return None;
        }
        let chunk = self.starts.partition_point(|&start| start <= row).checked_sub(1)?;
        Some((chunk, row - self.starts.get(chunk)?))
    }

    /// Everything that leads from `row` to its sample, in O(log batches); `None` past the end.
    pub fn row(&self, row: usize) -> Option<TableRow> {
        let (chunk, row_in_chunk) = self.place_of(row)?;
        Some(TableRow {
            cache: self.cache_of(row)?,
            sample_id: *self.sample_ids.get(chunk)?.values().get(row_in_chunk)?,
            weight: *self.weights.get(chunk)?.values().get(row_in_chunk)?,
            chunk,
            row_in_chunk,
        })
    }

    /// Stored columns whose values may differ from the caches', in the order they were named.
    pub fn edited(&self) -> &[String] {
        &self.edited
    }
}
