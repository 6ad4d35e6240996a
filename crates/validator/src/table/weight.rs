//! The weight column as float64, every value usable. Knows no sampler.

use arrow_array::cast::AsArray;
use arrow_array::types::Float64Type;
use arrow_array::{Array, ArrayRef, Float64Array};
use arrow_cast::cast;
use arrow_schema::DataType;
use dataset_rt_storage::{Error, Result};

use super::cell::{cell_text, is_decimal};

/// Weights without nulls; Float64 columns keep their buffer. Integers past 2^53 and decimals
/// round to the nearest float64.
///
/// # Errors
/// `InvalidInput` for nulls, values that are not finite or not above 0, and types that are not
/// numbers. `first_row` is the table row of the chunk's first, for messages.
pub(super) fn weight_column(array: &ArrayRef, first_row: usize) -> Result<Float64Array> {
    let found = array.data_type();
    if !(found.is_integer() || found.is_floating() || is_decimal(found)) {
        return Err(Error::invalid(format!(
            "column \"weight\" has type {found}; expected numbers; cast it to float64"
        )));
    }
    if let Some(nulls) = array.nulls().filter(|nulls| nulls.null_count() > 0) {
        let at = nulls.iter().position(|is_valid| !is_valid).unwrap_or(0);
        return Err(refused("null", first_row + at, "fill it, or drop the row"));
    }
    let numbers = cast(array, &DataType::Float64)
        .map_err(|e| Error::invalid(format!("column \"weight\" cannot become float64: {e}")))?;
    let values = numbers.as_primitive::<Float64Type>().values();
    // NaN is not above 0, so one test covers it.
    let is_usable = |value: f64| (value > 0.0) & (value < f64::INFINITY);
    // Without a way out in the middle, values are looked at several at a time.
    let are_usable = values.iter().fold(true, |all, &value| all & is_usable(value));
    if !are_usable && let Some(at) = values.iter().position(|&value| !is_usable(value)) {
        let advice = if values.get(at) == Some(&0.0) {
            "filter the row out of the table instead of giving it weight 0"
        } else {
            "weights are relative: any positive numbers will do"
        };
        return Err(refused(&cell_text(array, at), first_row + at, advice));
    }
    Ok(Float64Array::new(values.clone(), None))
}

fn refused(found: &str, row: usize, advice: &str) -> Error {
    Error::invalid(format!(
        "column \"weight\", row {row}: found {found}; expected a finite number above 0; {advice}"
    ))
}
