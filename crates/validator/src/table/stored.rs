//! A stored column as the user's table has it, brought to its stored type without loss.
//! Compares nothing with the cache.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{Array, ArrayRef, Int64Array, NullArray, new_null_array};
use arrow_cast::{CastOptions, cast, cast_with_options};
use arrow_schema::{DataType, TimeUnit};
use arrow_select::take::take;
use dataset_rt_storage::format::schema::{ColumnType, StoredColumn};
use dataset_rt_storage::{Error, Result};

/// How a column of the user's table becomes one of the stored type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Conversion {
    /// Already the stored type, or a form of it that is kept: no byte is touched.
    Keep,
    /// Offsets of 64 bits instead of shorter ones or none.
    Widen,
    /// Another integer type: exact, or an error for the value that does not fit.
    Integer,
    /// Another time unit: exact, or an error for the value that does not fit. Polars has no
    /// seconds and pandas no days, so what they show must find its way back.
    Unit,
    /// Dictionary codes are replaced by the values they name.
    Unpack,
    /// Only nulls may be in it.
    OnlyNulls,
}

/// A converted chunk, or the row whose value the stored type cannot hold.
pub(super) enum Converted {
    Column(ArrayRef),
    Misfit(usize),
}

impl Conversion {
    /// Decides from the types alone.
    ///
    /// # Errors
    /// `InvalidInput` when the types are not the same up to integer width, time unit and forms of
    /// strings and binaries.
    pub(super) fn find(column: &StoredColumn, found: &DataType) -> Result<Self> {
        direct(&column.column_type, found)
            .or_else(|| match found {
                // One level only: nested dictionaries are nobody's stored column.
                DataType::Dictionary(_, values) => {
                    direct(&column.column_type, values).map(|_| Self::Unpack)
                }
                _ => None,
            })
            .ok_or_else(|| wrong_type(column, found))
    }

    /// The type the column has afterwards.
    pub(super) fn output(&self, column: &StoredColumn, found: &DataType) -> DataType {
        match (self, &column.column_type) {
            (Self::Keep, _) => found.clone(),
            (Self::Unpack, ColumnType::Utf8) => DataType::Utf8View,
            (Self::Unpack, ColumnType::Binary) => DataType::BinaryView,
            (_, stored) => stored.to_arrow(),
        }
    }

    /// Converts one chunk.
    ///
    /// # Errors
    /// `Internal` when an Arrow kernel refuses what the types promised.
    pub(super) fn apply(&self, column: &StoredColumn, array: &ArrayRef) -> Result<Converted> {
        let target = self.output(column, array.data_type());
        Ok(match self {
            Self::Keep => Converted::Column(Arc::clone(array)),
            Self::Widen => Converted::Column(cast(array, &target).map_err(kernel)?),
            Self::Integer => narrow(array, &target)?,
            Self::Unit => change_unit(array, &target)?,
            Self::Unpack => unpack(column, array, &target)?,
            Self::OnlyNulls => match first_valid(array) {
                Some(row) => Converted::Misfit(row),
                None if target == DataType::Null => {
                    Converted::Column(Arc::new(NullArray::new(array.len())))
                }
                None => Converted::Column(new_null_array(&target, array.len())),
            },
        })
    }
}

fn direct(stored: &ColumnType, found: &DataType) -> Option<Conversion> {
    match (stored, found) {
        (ColumnType::Null, DataType::Null) => Some(Conversion::Keep),
        (ColumnType::Null, _) | (_, DataType::Null) => Some(Conversion::OnlyNulls),
        (ColumnType::Utf8, DataType::LargeUtf8 | DataType::Utf8View)
        | (ColumnType::Binary, DataType::LargeBinary | DataType::BinaryView) => {
            Some(Conversion::Keep)
        }
        (ColumnType::Utf8, DataType::Utf8)
        | (ColumnType::Binary, DataType::Binary | DataType::FixedSizeBinary(_)) => {
            Some(Conversion::Widen)
        }
        _ if *found == stored.to_arrow() => Some(Conversion::Keep),
        (ColumnType::Timestamp(_, zone), DataType::Timestamp(_, found)) if zone == found => {
            Some(Conversion::Unit)
        }
        (ColumnType::Date32, DataType::Date64 | DataType::Timestamp(_, None)) => {
            Some(Conversion::Unit)
        }
        _ if found.is_integer() && stored.to_arrow().is_integer() => Some(Conversion::Integer),
        _ => None,
    }
}

fn narrow(array: &ArrayRef, target: &DataType) -> Result<Converted> {
    let options = CastOptions { safe: true, ..CastOptions::default() };
    let numbers = cast_with_options(array, target, &options).map_err(kernel)?;
    Ok(misfit(array, &numbers).map_or(Converted::Column(numbers), Converted::Misfit))
}

/// Integers in, integers out: instants that no calendar has are instants all the same, and only a
/// number that the target cannot hold is a misfit.
fn change_unit(array: &ArrayRef, target: &DataType) -> Result<Converted> {
    let lost = || Error::internal(format!("{} has no unit of time", array.data_type()));
    let from = ticks_a_day(array.data_type()).ok_or_else(lost)?;
    let to = ticks_a_day(target).ok_or_else(lost)?;
    let ticks = cast(array, &DataType::Int64).map_err(kernel)?;
    let ticks: Int64Array = ticks.as_primitive::<Int64Type>().unary_opt(|tick| {
        if to >= from {
            tick.checked_mul(to / from)
        } else {
            (tick % (from / to) == 0).then(|| tick / (from / to))
        }
    });
    if let Some(row) = misfit(array, &ticks) {
        return Ok(Converted::Misfit(row));
    }
    let ticks: ArrayRef = Arc::new(ticks);
    if *target != DataType::Date32 {
        return Ok(Converted::Column(cast(&ticks, target).map_err(kernel)?));
    }
    Ok(match narrow(&ticks, &DataType::Int32)? {
        Converted::Column(days) => Converted::Column(cast(&days, target).map_err(kernel)?),
        misfit @ Converted::Misfit(_) => misfit,
    })
}

fn ticks_a_day(data_type: &DataType) -> Option<i64> {
    const SECONDS: i64 = 24 * 60 * 60;
    Some(match data_type {
        DataType::Date32 => 1,
        DataType::Timestamp(TimeUnit::Second, _) => SECONDS,
        DataType::Date64 | DataType::Timestamp(TimeUnit::Millisecond, _) => SECONDS * 1_000,
        DataType::Timestamp(TimeUnit::Microsecond, _) => SECONDS * 1_000_000,
        DataType::Timestamp(TimeUnit::Nanosecond, _) => SECONDS * 1_000_000_000,
        _ => return None,
    })
}

/// The first value that became null for want of room.
fn misfit(array: &dyn Array, converted: &dyn Array) -> Option<usize> {
    if converted.null_count() == array.null_count() {
        return None;
    }
    (0..array.len()).find(|&row| array.is_valid(row) && converted.is_null(row))
}

/// Text is never copied per row, only its 16-byte views are; what the dictionary names is then
/// converted like a plain column, so that a row, not a code, is at fault.
fn unpack(column: &StoredColumn, array: &ArrayRef, target: &DataType) -> Result<Converted> {
    let lost = || Error::internal(format!("column {:?} is no dictionary", column.name));
    let dictionary = array.as_any_dictionary_opt().ok_or_else(lost)?;
    let values = match target {
        DataType::Utf8View | DataType::BinaryView => {
            cast(dictionary.values(), target).map_err(kernel)?
        }
        _ => Arc::clone(dictionary.values()),
    };
    let unpacked = take(values.as_ref(), dictionary.keys(), None).map_err(kernel)?;
    let inner = direct(&column.column_type, unpacked.data_type()).ok_or_else(lost)?;
    inner.apply(column, &unpacked)
}

fn first_valid(array: &ArrayRef) -> Option<usize> {
    match array.logical_nulls() {
        None => (!array.is_empty()).then_some(0),
        Some(nulls) => nulls.iter().position(|is_valid| is_valid),
    }
}

fn kernel(error: arrow_schema::ArrowError) -> Error {
    Error::internal(format!("cannot convert a column: {error}"))
}

fn wrong_type(column: &StoredColumn, found: &DataType) -> Error {
    Error::invalid(format!(
        "column {:?} has type {found}; expected {}, as it is stored; cast it back, or put the \
         new values into a new column",
        column.name,
        column.column_type.to_text()
    ))
}
