//! The table that passed every check, and the way from its rows to samples. Checks nothing itself.

use arrow_array::cast::AsArray;
use arrow_array::types::{Float64Type, UInt64Type};
use arrow_array::{Array, Float64Array, RecordBatch, UInt64Array};
use arrow_buffer::ScalarBuffer;
use arrow_schema::SchemaRef;
use dataset_rt_storage::{Error, Result};

/// An active table: every row names a known sample, has a usable weight, and its stored columns
/// are the cache's own or were edited on purpose. Only [`super::check_table`] and
/// [`super::whole_table`] make one, and [`CheckedTable::restored`] one that was checked elsewhere.
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
    PerRow(ScalarBuffer<u32>),
}

/// Which cache each row of a table belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CacheOrdinals<'a> {
    /// All rows belong to the cache at this position of the list given to the check.
    One(u32),
    /// The position for each row of the table.
    PerRow(&'a [u32]),
}

/// [`CacheOrdinals`] that are handed in.
#[derive(Clone, Debug)]
pub enum RestoredOrdinals {
    /// All rows belong to the cache at this position of the list.
    One(u32),
    /// The position for each row of the table.
    PerRow(ScalarBuffer<u32>),
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

    /// A table that passed the checks in another process: its batches, its edited columns, and
    /// the cache of each row, of all rows for [`RestoredOrdinals::One`]. Costs nothing per row:
    /// what its values are is believed.
    ///
    /// # Errors
    /// `Corrupt` when the columns are not those of a checked table.
    pub fn restored(
        schema: SchemaRef,
        batches: Vec<RecordBatch>,
        ordinals: RestoredOrdinals,
        edited: Vec<String>,
    ) -> Result<Self> {
        let checked = batches.into_iter().map(restored_chunk).collect::<Result<Vec<_>>>()?;
        let rows: usize = checked.iter().map(|chunk| chunk.columns.num_rows()).sum();
        let ordinals = match ordinals {
            RestoredOrdinals::One(cache) => Ordinals::One(cache),
            RestoredOrdinals::PerRow(caches) if caches.len() == rows => Ordinals::PerRow(caches),
            RestoredOrdinals::PerRow(caches) => {
                let text = format!("a table of {rows} rows names the caches of {}", caches.len());
                return Err(Error::corrupt(text));
            }
        };
        if rows == 0 {
            return Err(Error::corrupt("a table without rows was handed over"));
        }
        Ok(Self::new(schema, checked, ordinals, edited))
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

fn restored_chunk(columns: RecordBatch) -> Result<CheckedChunk> {
    let number = |name: &str| columns.column_by_name(name).filter(|array| array.null_count() == 0);
    let sample_ids = number("sample_id").and_then(|array| array.as_primitive_opt::<UInt64Type>());
    let weights = number("weight").and_then(|array| array.as_primitive_opt::<Float64Type>());
    match (sample_ids.cloned(), weights.cloned()) {
        (Some(sample_ids), Some(weights)) if columns.num_rows() > 0 => {
            Ok(CheckedChunk { columns, sample_ids, weights })
        }
        _ => Err(Error::corrupt("a table without identities or weights was handed over")),
    }
}
