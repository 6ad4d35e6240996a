//! One sample for a caller that must not wait, since it holds the interpreter lock: a few looks
//! into mapped, verified files. What that does not cover, errors above all, is `None` here and left
//! to [`Block`](crate::Block). Takes no lock of ours but for moments in which no Python runs: a
//! fork needs the interpreter lock, too, so none finds them taken.

use arrow_array::cast::AsArray;
use arrow_array::types::{
    ByteArrayType, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type, UInt8Type,
    UInt16Type, UInt32Type, UInt64Type,
};
use arrow_array::{Array, ArrowPrimitiveType, GenericByteArray};
use arrow_buffer::ArrowNativeType;
use arrow_schema::DataType;
use dataset_rt_storage::read::{Cache, Cell, PayloadAtHand};
use dataset_rt_storage::store::{Section, guarded_once};

use crate::active::{ActiveTable, SampleRef};
use crate::dataset::Dataset;
use crate::snapshot::Snapshot;

/// A sample as it lies in mapped files.
pub struct SampleAtHand<'a> {
    /// Cache id and row.
    pub identity: (u64, u64),
    /// Its payload.
    pub payload: PayloadAtHand<'a>,
    /// The values of the delivered columns.
    pub cells: Vec<Cell<'a>>,
}

impl<'a> SampleAtHand<'a> {
    fn find(
        section: Section<'a>,
        cache: &'a Cache,
        sample_id: u64,
        cells: impl FnOnce() -> Option<Vec<Cell<'a>>>,
    ) -> Option<Self> {
        let payload = cache.payload_at_hand(section, sample_id)?;
        let identity = (cache.cache_id(), sample_id);
        let sample = Self { identity, payload, cells: cells()? };
        sample.touch();
        Some(sample)
    }

    /// Touches what lies scattered, so that the processor fetches it side by side: objects made of
    /// it would wait for one piece of memory after another.
    fn touch(&self) {
        let first = |bytes: &[u8]| bytes.first().copied().unwrap_or(0);
        let cells = self.cells.iter().map(|cell| match cell {
            Cell::Text(bytes) | Cell::Binary(bytes) => first(bytes),
            _ => 0,
        });
        std::hint::black_box(cells.fold(first(self.payload.bytes()), |all, byte| all ^ byte));
    }
}

impl Dataset {
    /// What `make` makes of one physical sample with its stored columns. `None` when it is not at
    /// hand, `make` says so, or a file is no longer what it was.
    pub fn physical_at_hand<T>(
        &self,
        cache_id: u64,
        sample_id: u64,
        make: impl FnOnce(&SampleAtHand<'_>) -> Option<T>,
    ) -> Option<T> {
        let number = self.caches().iter().position(|cache| cache.cache_id() == cache_id)?;
        let cache = self.caches().get(number)?;
        let (made, shard) = in_section(|section| {
            let cells = || stored_cells(section, cache, sample_id);
            let sample = SampleAtHand::find(section, cache, sample_id, cells)?;
            Some((make(&sample)?, sample.payload.shard()))
        })?;
        is_unchanged(cache, shard).then_some(made)
    }
}

impl Snapshot {
    /// What `make` makes of the sample at stream position `position`, with stored and extra
    /// columns; else as [`Dataset::physical_at_hand`].
    pub fn at_hand<T>(
        &self,
        position: u64,
        make: impl FnOnce(&SampleAtHand<'_>) -> Option<T>,
    ) -> Option<T> {
        let (table, mut row) = (self.table(), [0]);
        let plan = self.plan_if_made()?;
        let _held = plan.prepared(position..position.checked_add(1)?)?;
        plan.rows_into(position, &mut row).ok()?;
        let [row] = row;
        let (made, number, shard) = in_section(|section| {
            let SampleRef { cache: number, sample_id } = table.sample_at(row).ok()?;
            let cache = table.caches().get(number as usize)?;
            let cells = || match table.as_checked() {
                Some(_) => table_cells(table, row),
                None => stored_cells(section, cache, sample_id),
            };
            let sample = SampleAtHand::find(section, cache, sample_id, cells)?;
            Some((make(&sample)?, number, sample.payload.shard()))
        })?;
        is_unchanged(table.caches().get(number as usize)?, shard).then_some(made)
    }
}

/// Another thread that meets a loss ends it, too: nobody waits here.
fn in_section<T>(work: impl FnOnce(Section<'_>) -> Option<T>) -> Option<T> {
    guarded_once(|section| Ok(work(section))).ok().flatten()
}

fn stored_cells<'a>(section: Section<'a>, cache: &'a Cache, row: u64) -> Option<Vec<Cell<'a>>> {
    let columns = cache.schema().columns().len();
    if columns == 0 {
        return Some(Vec::new());
    }
    let row = cache.row_at_hand(section, row)?;
    all(columns, |column| row.cell(column))
}

fn table_cells(table: &ActiveTable, row: u64) -> Option<Vec<Cell<'_>>> {
    all(table.delivered().len(), |column| {
        let (array, row) = table.delivered_cell(column, row)?;
        cell_of(array, row)
    })
}

fn all<'a>(columns: usize, cell: impl Fn(usize) -> Option<Cell<'a>>) -> Option<Vec<Cell<'a>>> {
    let mut cells = Vec::with_capacity(columns);
    for column in 0..columns {
        cells.push(cell(column)?);
    }
    Some(cells)
}

/// What was made of index, metadata and shard is only right if they are what they were.
fn is_unchanged(cache: &Cache, shard: u32) -> bool {
    cache.check_shard_unchanged(shard).is_ok() && cache.check_tables_unchanged().is_ok()
}

/// One value of a user's table, of the types that become plain Python objects.
fn cell_of(array: &dyn Array, row: usize) -> Option<Cell<'_>> {
    if array.is_null(row) {
        return Some(Cell::Null);
    }
    Some(match array.data_type() {
        DataType::Null => Cell::Null,
        DataType::Boolean => Cell::Bool(array.as_boolean().value(row)),
        DataType::Int8 => Cell::Signed(number::<Int8Type>(array, row)?.into()),
        DataType::Int16 => Cell::Signed(number::<Int16Type>(array, row)?.into()),
        DataType::Int32 => Cell::Signed(number::<Int32Type>(array, row)?.into()),
        DataType::Int64 => Cell::Signed(number::<Int64Type>(array, row)?),
        DataType::UInt8 => Cell::Unsigned(number::<UInt8Type>(array, row)?.into()),
        DataType::UInt16 => Cell::Unsigned(number::<UInt16Type>(array, row)?.into()),
        DataType::UInt32 => Cell::Unsigned(number::<UInt32Type>(array, row)?.into()),
        DataType::UInt64 => Cell::Unsigned(number::<UInt64Type>(array, row)?),
        DataType::Float32 => Cell::Float(number::<Float32Type>(array, row)?.into()),
        DataType::Float64 => Cell::Float(number::<Float64Type>(array, row)?),
        DataType::Utf8 => Cell::Text(bytes(array.as_string::<i32>(), row)?),
        DataType::LargeUtf8 => Cell::Text(bytes(array.as_string::<i64>(), row)?),
        DataType::Utf8View => Cell::Text(array.as_string_view().value(row).as_bytes()),
        DataType::LargeBinary => Cell::Binary(bytes(array.as_binary::<i64>(), row)?),
        _ => return None,
    })
}

fn number<T: ArrowPrimitiveType>(array: &dyn Array, row: usize) -> Option<T::Native> {
    array.as_primitive::<T>().values().get(row).copied()
}

/// The bytes of one value, wherever its offsets point now: they may lie in a mapped file.
fn bytes<T: ByteArrayType>(array: &GenericByteArray<T>, row: usize) -> Option<&[u8]> {
    let offset = |row: usize| array.value_offsets().get(row).map(|offset| offset.as_usize());
    array.value_data().get(offset(row)?..offset(row + 1)?)
}
