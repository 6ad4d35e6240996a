//! Cell-by-cell equality of a user's column with the caches' own, run by run.
//! Knows no identity and builds no message.

use arrow_array::types::{
    ArrowPrimitiveType, BinaryViewType, ByteArrayType, ByteViewType, Date32Type, Float32Type,
    Float64Type, Int8Type, Int16Type, Int32Type, Int64Type, LargeBinaryType, LargeUtf8Type,
    StringViewType, TimestampMicrosecondType, TimestampMillisecondType, TimestampNanosecondType,
    TimestampSecondType, UInt8Type, UInt16Type, UInt32Type, UInt64Type,
};
use arrow_array::{
    Array, ArrayRef, BooleanArray, GenericByteArray, GenericByteViewArray, PrimitiveArray,
};
use arrow_buffer::ArrowNativeType;
use arrow_schema::{DataType, TimeUnit};
use dataset_rt_storage::format::schema::ColumnType;
use dataset_rt_storage::{Error, Result};

use super::place::{Run, Sources};

/// Shortest run compared as a whole: below it, setting up the comparison costs more than rows do.
const WHOLE_RUN_MIN: usize = 8;

/// The first row of `user` (in run order) that differs from the caches' column `column`, as run
/// and offset within it. Null equals null and nothing else; NaN equals NaN; -0.0 equals 0.0.
///
/// # Errors
/// `Internal` when an array does not have the type it was converted to.
pub(super) fn first_difference(
    user: &ArrayRef,
    column_type: &ColumnType,
    column: usize,
    runs: &[Run],
    sources: &Sources<'_>,
) -> Result<Option<(Run, usize)>> {
    macro_rules! primitive {
        ($arrow:ty) => {
            scan::<PrimitiveArray<$arrow>>(user, column, runs, sources)
        };
    }
    match (column_type, user.data_type()) {
        (ColumnType::Null, _) => Ok(None),
        (ColumnType::Bool, _) => scan::<BooleanArray>(user, column, runs, sources),
        (ColumnType::Int8, _) => primitive!(Int8Type),
        (ColumnType::Int16, _) => primitive!(Int16Type),
        (ColumnType::Int32, _) => primitive!(Int32Type),
        (ColumnType::Int64, _) => primitive!(Int64Type),
        (ColumnType::UInt8, _) => primitive!(UInt8Type),
        (ColumnType::UInt16, _) => primitive!(UInt16Type),
        (ColumnType::UInt32, _) => primitive!(UInt32Type),
        (ColumnType::UInt64, _) => primitive!(UInt64Type),
        (ColumnType::Float32, _) => primitive!(Float32Type),
        (ColumnType::Float64, _) => primitive!(Float64Type),
        (ColumnType::Date32, _) => primitive!(Date32Type),
        (ColumnType::Timestamp(TimeUnit::Second, _), _) => primitive!(TimestampSecondType),
        (ColumnType::Timestamp(TimeUnit::Millisecond, _), _) => {
            primitive!(TimestampMillisecondType)
        }
        (ColumnType::Timestamp(TimeUnit::Microsecond, _), _) => {
            primitive!(TimestampMicrosecondType)
        }
        (ColumnType::Timestamp(TimeUnit::Nanosecond, _), _) => primitive!(TimestampNanosecondType),
        (ColumnType::Utf8, DataType::Utf8View) => {
            scan::<GenericByteViewArray<StringViewType>>(user, column, runs, sources)
        }
        (ColumnType::Utf8, _) => {
            scan::<GenericByteArray<LargeUtf8Type>>(user, column, runs, sources)
        }
        (ColumnType::Binary, DataType::BinaryView) => {
            scan::<GenericByteViewArray<BinaryViewType>>(user, column, runs, sources)
        }
        (ColumnType::Binary, _) => {
            scan::<GenericByteArray<LargeBinaryType>>(user, column, runs, sources)
        }
    }
}

fn scan<C: Cells>(
    user: &ArrayRef,
    column: usize,
    runs: &[Run],
    sources: &Sources<'_>,
) -> Result<Option<(Run, usize)>> {
    let mismatch = || Error::internal(format!("column {column} changed its type between checks"));
    let user = user.as_any().downcast_ref::<C>().ok_or_else(mismatch)?;
    let mut seen: Option<(usize, usize, &C::Source)> = None;
    for run in runs {
        let source = match seen {
            Some((cache, batch, source)) if (cache, batch) == (run.cache, run.batch) => source,
            _ => {
                let array = sources.column(run, column).ok_or_else(mismatch)?;
                array.as_any().downcast_ref::<C::Source>().ok_or_else(mismatch)?
            }
        };
        seen = Some((run.cache, run.batch, source));
        if run.len >= WHOLE_RUN_MIN
            && has_same_nulls(user, source, run)
            && user.has_same_values(run.row, source, run.start, run.len)
        {
            continue;
        }
        let is_same = |offset: usize| {
            let (row, own) = (run.row + offset, run.start + offset);
            match (user.is_valid(row), source.is_valid(own)) {
                (true, true) => user.is_same(row, source, own),
                (mine, theirs) => mine == theirs,
            }
        };
        if let Some(offset) = (0..run.len).find(|&offset| !is_same(offset)) {
            return Ok(Some((*run, offset)));
        }
    }
    Ok(None)
}

fn has_same_nulls(user: &impl Array, source: &impl Array, run: &Run) -> bool {
    match (user.nulls(), source.nulls()) {
        (None, None) => true,
        (Some(mine), Some(theirs)) => {
            mine.inner().slice(run.row, run.len) == theirs.inner().slice(run.start, run.len)
        }
        (Some(one), None) | (None, Some(one)) => one.null_count() == 0,
    }
}

/// A typed column that compares itself with the stored form of the same type.
trait Cells: Array + 'static {
    /// The form every file has.
    type Source: Array + 'static;

    /// Whether two valid cells are equal.
    fn is_same(&self, row: usize, source: &Self::Source, own: usize) -> bool;

    /// Whether a whole run is equal, bytes under nulls included. `false` settles nothing: the
    /// rows are then compared one by one.
    fn has_same_values(&self, row: usize, source: &Self::Source, own: usize, len: usize) -> bool;
}

/// Equality of two numbers as users mean it.
trait Number: Copy {
    fn is_same(self, other: Self) -> bool;
}

macro_rules! numbers {
    ($($integer:ty)*) => { $(
        impl Number for $integer {
            fn is_same(self, other: Self) -> bool {
                self == other
            }
        }
    )* };
}
numbers!(i8 i16 i32 i64 u8 u16 u32 u64);

macro_rules! floats {
    ($($float:ty)*) => { $(
        impl Number for $float {
            fn is_same(self, other: Self) -> bool {
                self == other || (self.is_nan() && other.is_nan())
            }
        }
    )* };
}
floats!(f32 f64);

impl<T: ArrowPrimitiveType<Native: Number>> Cells for PrimitiveArray<T> {
    type Source = Self;

    fn is_same(&self, row: usize, source: &Self, own: usize) -> bool {
        self.value(row).is_same(source.value(own))
    }

    fn has_same_values(&self, row: usize, source: &Self, own: usize, len: usize) -> bool {
        let width = size_of::<T::Native>();
        let mine = self.values().inner().as_slice().get(row * width..(row + len) * width);
        let theirs = source.values().inner().as_slice().get(own * width..(own + len) * width);
        is_one_or_equal(mine, theirs)
    }
}

impl Cells for BooleanArray {
    type Source = Self;

    fn is_same(&self, row: usize, source: &Self, own: usize) -> bool {
        self.value(row) == source.value(own)
    }

    fn has_same_values(&self, row: usize, source: &Self, own: usize, len: usize) -> bool {
        self.values().slice(row, len) == source.values().slice(own, len)
    }
}

impl<T: ByteArrayType<Offset = i64>> Cells for GenericByteArray<T> {
    type Source = Self;

    fn is_same(&self, row: usize, source: &Self, own: usize) -> bool {
        is_one_or_equal(cell_bytes(self, row), cell_bytes(source, own))
    }

    fn has_same_values(&self, row: usize, source: &Self, own: usize, len: usize) -> bool {
        let (Some(mine), Some(theirs)) = (span(self, row, len), span(source, own, len)) else {
            return false;
        };
        let is_one = std::ptr::eq(mine.0, theirs.0);
        let (base, own_base) = (mine.0.first(), theirs.0.first());
        let has_same_lengths = || {
            let (Some(base), Some(own_base)) = (base, own_base) else { return false };
            mine.0.iter().zip(theirs.0).all(|(a, b)| a - base == b - own_base)
        };
        (is_one || has_same_lengths()) && is_one_or_equal(Some(mine.1), Some(theirs.1))
    }
}

impl Cells for GenericByteViewArray<StringViewType> {
    type Source = GenericByteArray<LargeUtf8Type>;

    fn is_same(&self, row: usize, source: &Self::Source, own: usize) -> bool {
        is_one_or_equal(Some(self.value(row).as_ref()), cell_bytes(source, own))
    }

    fn has_same_values(&self, row: usize, source: &Self::Source, own: usize, len: usize) -> bool {
        has_same_views(self, row, source, own, len)
    }
}

impl Cells for GenericByteViewArray<BinaryViewType> {
    type Source = GenericByteArray<LargeBinaryType>;

    fn is_same(&self, row: usize, source: &Self::Source, own: usize) -> bool {
        is_one_or_equal(Some(self.value(row)), cell_bytes(source, own))
    }

    fn has_same_values(&self, row: usize, source: &Self::Source, own: usize, len: usize) -> bool {
        has_same_views(self, row, source, own, len)
    }
}

/// Views carry their length in the low half: unequal lengths settle a row without its bytes.
fn has_same_views<V: ByteViewType, T: ByteArrayType<Offset = i64>>(
    user: &GenericByteViewArray<V>,
    row: usize,
    source: &GenericByteArray<T>,
    own: usize,
    len: usize,
) -> bool {
    if user.null_count() > 0 {
        return false;
    }
    let (Some(views), Some((offsets, _))) =
        (user.views().get(row..row + len), span(source, own, len))
    else {
        return false;
    };
    let lengths = offsets.windows(2).map(|pair| match pair {
        [from, to] => (to - from) as u64,
        _ => 0,
    });
    views.iter().zip(lengths).all(|(&view, length)| u64::from(view as u32) == length)
        && (0..len).all(|i| {
            let mine: &[u8] = user.value(row + i).as_ref();
            is_one_or_equal(Some(mine), cell_bytes(source, own + i))
        })
}

/// The bytes of one cell. Offsets were checked before, but may lie in a file that somebody
/// overwrites: they are checked again where they are used.
pub(super) fn cell_bytes<T: ByteArrayType>(
    array: &GenericByteArray<T>,
    row: usize,
) -> Option<&[u8]> {
    let offsets = array.value_offsets().get(row..)?;
    let (from, to) = (offsets.first()?.to_usize()?, offsets.get(1)?.to_usize()?);
    array.value_data().get(from..to)
}

/// Offsets (one more than values) and bytes of a run.
fn span<T: ByteArrayType<Offset = i64>>(
    array: &GenericByteArray<T>,
    row: usize,
    len: usize,
) -> Option<(&[i64], &[u8])> {
    let offsets = array.value_offsets().get(row..=row + len)?;
    let (from, to) = (offsets.first()?, offsets.last()?);
    let bytes = array.value_data();
    Some((offsets, bytes.get(usize::try_from(*from).ok()?..usize::try_from(*to).ok()?)?))
}

/// The same memory, or the same bytes.
fn is_one_or_equal(mine: Option<&[u8]>, theirs: Option<&[u8]>) -> bool {
    match (mine, theirs) {
        (Some(mine), Some(theirs)) => std::ptr::eq(mine, theirs) || mine == theirs,
        _ => false,
    }
}
