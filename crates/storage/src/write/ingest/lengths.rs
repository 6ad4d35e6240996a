//! How many bytes each row of a foreign column has once it is stored, before it is converted.
//! Knows no name and no limit.

use arrow_array::cast::AsArray;
use arrow_array::types::{
    ByteArrayType, ByteViewType, Int16Type, Int32Type, Int64Type, RunEndIndexType,
};
use arrow_array::{Array, ArrayRef, GenericByteArray, GenericByteViewArray};
use arrow_schema::DataType;

/// Adds the length of every value of `column` to the number in its row: text and binary in any
/// form, dictionaries and runs of them in every row that shows one. Other types count nothing.
pub(super) fn add_lengths(column: &ArrayRef, lengths: &mut [u64]) {
    match column.data_type() {
        DataType::Utf8 => add_plain(column.as_string::<i32>(), lengths),
        DataType::LargeUtf8 => add_plain(column.as_string::<i64>(), lengths),
        DataType::Binary => add_plain(column.as_binary::<i32>(), lengths),
        DataType::LargeBinary => add_plain(column.as_binary::<i64>(), lengths),
        DataType::Utf8View => add_views(column.as_string_view(), lengths),
        DataType::BinaryView => add_views(column.as_binary_view(), lengths),
        DataType::FixedSizeBinary(width) => {
            for length in lengths {
                *length = length.saturating_add(width.unsigned_abs().into());
            }
        }
        DataType::Dictionary(..) => add_named(column, lengths),
        DataType::RunEndEncoded(ends, _) => match ends.data_type() {
            DataType::Int16 => add_runs::<Int16Type>(column, lengths),
            DataType::Int32 => add_runs::<Int32Type>(column, lengths),
            _ => add_runs::<Int64Type>(column, lengths),
        },
        _ => {}
    }
}

fn add_plain<T: ByteArrayType>(column: &GenericByteArray<T>, lengths: &mut [u64])
where
    T::Offset: Into<i64>,
{
    for (length, pair) in lengths.iter_mut().zip(column.value_offsets().windows(2)) {
        let (from, to): (i64, i64) = (pair[0].into(), pair[1].into());
        *length = length.saturating_add(to.saturating_sub(from).unsigned_abs());
    }
}

fn add_views<T: ByteViewType>(column: &GenericByteViewArray<T>, lengths: &mut [u64]) {
    for (length, view) in lengths.iter_mut().zip(column.views()) {
        // The low 32 bits of a view are its length.
        *length = length.saturating_add((*view as u32).into());
    }
}

fn add_named(column: &ArrayRef, lengths: &mut [u64]) {
    let Some(dictionary) = column.as_any_dictionary_opt() else { return };
    let values = dictionary.values();
    // Values of a fixed width are never large, and keys need values to be normalised.
    if values.data_type().is_primitive() || values.is_empty() {
        return;
    }
    let mut named = vec![0; values.len()];
    add_lengths(values, &mut named);
    for (row, key) in dictionary.normalized_keys().into_iter().enumerate() {
        if let (Some(length), Some(value), true) =
            (lengths.get_mut(row), named.get(key), dictionary.keys().is_valid(row))
        {
            *length = length.saturating_add(*value);
        }
    }
}

fn add_runs<R: RunEndIndexType>(column: &ArrayRef, lengths: &mut [u64]) {
    let Some(runs) = column.as_run_opt::<R>() else { return };
    let mut repeated = vec![0; runs.values().len()];
    add_lengths(runs.values(), &mut repeated);
    for (row, length) in lengths.iter_mut().enumerate().take(runs.len()) {
        let value = repeated.get(runs.get_physical_index(row)).copied().unwrap_or(0);
        *length = length.saturating_add(value);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::types::Int8Type;
    use arrow_array::{
        BinaryArray, BinaryViewArray, DictionaryArray, FixedSizeBinaryArray, Int64Array,
        LargeStringArray, RunArray, StringViewArray,
    };

    use super::*;

    #[test]
    fn every_form_of_bytes_counts_what_it_shows() {
        let long = "x".repeat(40);
        let fixed = FixedSizeBinaryArray::try_from_iter(vec![b"abcd"; 4].into_iter()).unwrap();
        let dictionary: DictionaryArray<Int8Type> =
            ["b", "a", &long, "b"].into_iter().map(Some).chain([None]).collect();
        let runs: RunArray<Int32Type> = ["b", "a", "a", &long].into_iter().collect();
        let columns: [(ArrayRef, [u64; 3]); 8] = [
            (Arc::new(BinaryArray::from(vec![&b"ab"[..], b"", b"abc", b"z"])), [0, 3, 1]),
            (Arc::new(LargeStringArray::from(vec!["é", "", "abc", "z"])), [0, 3, 1]),
            (Arc::new(BinaryViewArray::from(vec![&b"ab"[..], b"", b"abc", b"z"])), [0, 3, 1]),
            (Arc::new(StringViewArray::from(vec!["", "", &long, "z"])), [0, 40, 1]),
            (Arc::new(fixed), [4, 4, 4]),
            (Arc::new(Int64Array::from(vec![1; 4])), [0, 0, 0]),
            (Arc::new(dictionary.slice(1, 4)), [40, 1, 0]),
            (Arc::new(runs), [1, 1, 40]),
        ];
        for (column, expected) in columns {
            let mut lengths = [0; 3];
            add_lengths(&column.slice(1, 3), &mut lengths);
            assert_eq!(lengths, expected, "{}", column.data_type());
        }
    }
}
