//! One value of a column as a message shows it. Knows nothing of what is being checked.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{
    ArrowPrimitiveType, TimestampMicrosecondType, TimestampMillisecondType,
    TimestampNanosecondType, TimestampSecondType,
};
use arrow_array::{Array, ArrayRef, PrimitiveArray};
use arrow_cast::cast;
use arrow_cast::display::{ArrayFormatter, FormatOptions};
use arrow_schema::{DataType, TimeUnit};
use arrow_select::take::take;

use super::compare::cell_bytes;

/// Longest text or binary value shown, in characters: messages stay readable.
const SHOWN_MAX: usize = 60;

/// The value at `row` in words: strings quoted, long ones cut, null as `null`.
pub(super) fn cell_text(array: &dyn Array, row: usize) -> String {
    if row >= array.len() {
        return "no value".to_owned();
    }
    if array.logical_nulls().is_some_and(|nulls| nulls.is_null(row)) {
        return "null".to_owned();
    }
    if let Some(dictionary) = array.as_any_dictionary_opt() {
        let values = dictionary.values();
        if values.data_type().is_nested() {
            // Arrow panics on structs whose nulls contradict their fields.
            return unnamed(array);
        }
        let key = dictionary.keys().slice(row, 1);
        return match take(values.as_ref(), key.as_ref(), None) {
            Ok(value) => cell_text(value.as_ref(), 0),
            Err(_) => unnamed(array),
        };
    }
    match array.data_type() {
        DataType::Utf8 => quoted_bytes(cell_bytes(array.as_string::<i32>(), row)),
        DataType::LargeUtf8 => quoted_bytes(cell_bytes(array.as_string::<i64>(), row)),
        DataType::Utf8View => quoted(array.as_string_view().value(row)),
        DataType::Binary => hexadecimal(cell_bytes(array.as_binary::<i32>(), row).unwrap_or(b"")),
        DataType::LargeBinary => {
            hexadecimal(cell_bytes(array.as_binary::<i64>(), row).unwrap_or(b""))
        }
        DataType::BinaryView => hexadecimal(array.as_binary_view().value(row)),
        DataType::Timestamp(unit, Some(zone)) => {
            format!("{}Z in zone {zone}", formatted(&as_utc(array, *unit, row), 0))
        }
        // Arrow panics on decimals with more digits than their type has: shown as what weights
        // are taken for.
        found if is_decimal(found) => cast(&array.slice(row, 1), &DataType::Float64)
            .map_or_else(|_| unnamed(array), |number| formatted(&number, 0)),
        _ => formatted(array, row),
    }
}

/// Types whose values no column can hold are not shown: formatting nested ones meets decimals too.
fn formatted(array: &dyn Array, row: usize) -> String {
    let found = array.data_type();
    if !(found.is_primitive() || *found == DataType::Boolean) {
        return unnamed(array);
    }
    ArrayFormatter::try_new(array, &FormatOptions::new())
        .and_then(|formatter| formatter.value(row).try_to_string())
        .unwrap_or_else(|_| unnamed(array))
}

fn unnamed(array: &dyn Array) -> String {
    format!("a value of type {}", array.data_type())
}

/// Whether `found` is a decimal of any width.
pub(super) fn is_decimal(found: &DataType) -> bool {
    matches!(
        found,
        DataType::Decimal32(..)
            | DataType::Decimal64(..)
            | DataType::Decimal128(..)
            | DataType::Decimal256(..)
    )
}

/// One instant without its zone: formatting with it needs a database of zones.
fn as_utc(array: &dyn Array, unit: TimeUnit, row: usize) -> ArrayRef {
    fn one<T: ArrowPrimitiveType>(array: &dyn Array, row: usize) -> ArrayRef {
        Arc::new(PrimitiveArray::<T>::from_value(array.as_primitive::<T>().value(row), 1))
    }
    match unit {
        TimeUnit::Second => one::<TimestampSecondType>(array, row),
        TimeUnit::Millisecond => one::<TimestampMillisecondType>(array, row),
        TimeUnit::Microsecond => one::<TimestampMicrosecondType>(array, row),
        TimeUnit::Nanosecond => one::<TimestampNanosecondType>(array, row),
    }
}

/// Text as it is in memory that may have changed since it was found to be text.
fn quoted_bytes(bytes: Option<&[u8]>) -> String {
    quoted(&String::from_utf8_lossy(bytes.unwrap_or_default()))
}

fn quoted(text: &str) -> String {
    match text.char_indices().nth(SHOWN_MAX) {
        None => format!("{text:?}"),
        Some((cut, _)) => format!("{:?}... ({} bytes)", &text[..cut], text.len()),
    }
}

fn hexadecimal(bytes: &[u8]) -> String {
    let shown: String =
        bytes.iter().take(SHOWN_MAX / 2).map(|byte| format!("{byte:02x}")).collect();
    let dots = if bytes.len() > SHOWN_MAX / 2 { "..." } else { "" };
    format!("0x{shown}{dots} ({} bytes)", bytes.len())
}

#[cfg(test)]
mod tests {
    use arrow_array::{
        Decimal128Array, Int64Array, LargeBinaryArray, LargeStringArray, StringViewArray,
        TimestampMillisecondArray,
    };

    use super::*;

    #[test]
    fn values_are_short_and_unambiguous() {
        assert_eq!(cell_text(&Int64Array::from(vec![Some(-4), None]), 0), "-4");
        assert_eq!(cell_text(&Int64Array::from(vec![Some(-4), None]), 1), "null");
        assert_eq!(cell_text(&StringViewArray::from(vec!["a\"b"]), 0), "\"a\\\"b\"");
        assert_eq!(cell_text(&LargeBinaryArray::from(vec![&[1, 255][..]]), 0), "0x01ff (2 bytes)");
        let long = "é".repeat(100);
        let text = cell_text(&LargeStringArray::from(vec![long.as_str()]), 0);
        assert!(text.ends_with("... (200 bytes)") && text.len() < 160, "{text}");
        assert_eq!(cell_text(&Int64Array::from(vec![1]), 9), "no value");
        let time = TimestampMillisecondArray::from(vec![1_500]).with_timezone("Europe/Berlin");
        assert_eq!(cell_text(&time, 0), "1970-01-01T00:00:01.500Z in zone Europe/Berlin");
    }

    #[test]
    fn decimals_with_more_digits_than_their_type_are_shown() {
        let decimal = Decimal128Array::from(vec![-123_456]);
        let decimal = decimal.with_precision_and_scale(3, 2).unwrap();
        assert_eq!(cell_text(&decimal, 0), "-1234.56");
    }
}
