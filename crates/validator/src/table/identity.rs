//! Identity columns of any integral form as `u64`. Knows no cache.

use arrow_array::cast::AsArray;
use arrow_array::types::{
    ArrowPrimitiveType, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type,
    UInt8Type, UInt16Type, UInt32Type, UInt64Type,
};
use arrow_array::{Array, ArrayRef, UInt64Array};
use arrow_schema::DataType;
use dataset_rt_storage::{Error, Result};

use super::cell::cell_text;

/// First whole number a float64 cannot tell from its neighbour: ids from there on are refused.
const EXACT_F64: f64 = 9_007_199_254_740_992.0;
/// The same for float32, where a larger id would have been rounded to another sample's.
const EXACT_F32: f64 = 16_777_216.0;

/// Identities without nulls; UInt64 columns keep their buffer.
///
/// # Errors
/// `InvalidInput` for nulls, negative or fractional values, and types that are not numbers.
/// `first_row` is the table row of the chunk's first, for messages.
pub(super) fn identity_column(
    name: &str,
    array: &ArrayRef,
    first_row: usize,
) -> Result<UInt64Array> {
    refuse_nulls(name, array, first_row)?;
    match array.data_type() {
        DataType::UInt64 => {
            Ok(UInt64Array::new(array.as_primitive::<UInt64Type>().values().clone(), None))
        }
        DataType::UInt8 => Ok(unsigned::<UInt8Type>(array)),
        DataType::UInt16 => Ok(unsigned::<UInt16Type>(array)),
        DataType::UInt32 => Ok(unsigned::<UInt32Type>(array)),
        DataType::Int8 => signed::<Int8Type>(name, array, first_row),
        DataType::Int16 => signed::<Int16Type>(name, array, first_row),
        DataType::Int32 => signed::<Int32Type>(name, array, first_row),
        DataType::Int64 => signed::<Int64Type>(name, array, first_row),
        DataType::Float32 => float::<Float32Type>(name, array, first_row, EXACT_F32),
        DataType::Float64 => float::<Float64Type>(name, array, first_row, EXACT_F64),
        other => Err(Error::invalid(format!(
            "column {name:?} has type {other}; expected an integer type, or floats that hold \
             integers; keep the column as get_metadata() gives it, or cast it to uint64"
        ))),
    }
}

fn refuse_nulls(name: &str, array: &ArrayRef, first_row: usize) -> Result<()> {
    let Some(nulls) = array.nulls().filter(|nulls| nulls.null_count() > 0) else {
        return Ok(());
    };
    let at = nulls.iter().position(|is_valid| !is_valid).unwrap_or(0);
    Err(Error::invalid(format!(
        "column {name:?}, row {}: found null; expected the identity of a sample; drop rows that \
         a join left without a match",
        first_row + at
    )))
}

fn unsigned<T>(array: &ArrayRef) -> UInt64Array
where
    T: ArrowPrimitiveType,
    T::Native: Into<u64>,
{
    let values = array.as_primitive::<T>().values();
    UInt64Array::from_iter_values(values.iter().map(|&value| value.into()))
}

fn signed<T>(name: &str, array: &ArrayRef, first_row: usize) -> Result<UInt64Array>
where
    T: ArrowPrimitiveType,
    T::Native: Into<i64>,
{
    let values = array.as_primitive::<T>().values();
    if let Some(at) = values.iter().position(|&value| value.into() < 0) {
        return Err(refused(name, array, at, first_row));
    }
    Ok(UInt64Array::from_iter_values(values.iter().map(|&value| value.into().unsigned_abs())))
}

fn float<T>(name: &str, array: &ArrayRef, first_row: usize, bound: f64) -> Result<UInt64Array>
where
    T: ArrowPrimitiveType,
    T::Native: Into<f64>,
{
    let values = array.as_primitive::<T>().values();
    // NaN fails the range test, so it is refused here as well.
    let is_whole = |value: f64| (0.0..bound).contains(&value) && value.fract() == 0.0;
    if let Some(at) = values.iter().position(|&value| !is_whole(value.into())) {
        return Err(refused(name, array, at, first_row));
    }
    Ok(UInt64Array::from_iter_values(values.iter().map(|&value| value.into() as u64)))
}

fn refused(name: &str, array: &ArrayRef, at: usize, first_row: usize) -> Error {
    let bound = match array.data_type() {
        DataType::Float32 => " below 2**24 (float32 holds no larger id exactly)",
        DataType::Float64 => " below 2**53",
        _ => "",
    };
    Error::invalid(format!(
        "column {name:?}, row {}: found {}; expected a whole number from 0{bound}; keep \
         identities as get_metadata() gives them",
        first_row + at,
        cell_text(array, at)
    ))
}
