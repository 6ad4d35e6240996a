//! Arrow arrays as another library might hand them over: any buffers, offsets and lengths.
//! The only place here that is trusted to break rules.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use arrow_array::ffi::{FFI_ArrowArray, FFI_ArrowSchema, from_ffi};
use arrow_array::{Array, ArrayRef, make_array};
use arrow_buffer::{BooleanBuffer, Buffer, NullBuffer};
use arrow_data::{ArrayData, BufferSpec, layout};
use arrow_schema::{DataType, Field, Fields, IntervalUnit, TimeUnit};

use crate::edits::{Input, edit};

/// Depth of nested types.
const DEPTH_MAX: usize = 2;

/// An array of `len` rows that passed the validation every table gets at the border.
pub fn array(input: &mut Input<'_>, len: usize) -> Option<ArrayRef> {
    let data_type = data_type(input, DEPTH_MAX);
    let imported = caught(|| {
        let data = crafted(input, &data_type, len, DEPTH_MAX)?;
        data.validate_full().ok()?;
        let array = FFI_ArrowArray::new(&data);
        let schema = FFI_ArrowSchema::try_from(data.data_type()).ok()?;
        // SAFETY: the array comes from `data`, whose buffers `validate_full` found to be as long
        // as its offsets, lengths and types say; the schema is that of the same data.
        let imported = unsafe { from_ffi(array, &schema) }.ok()?;
        Some(make_array(imported))
    });
    // What comes in is checked once more: the border does so for every library.
    imported.filter(|array| array.to_data().validate_full().is_ok())
}

/// Arrow panics on some arrays that contradict themselves; at the border such panics are caught.
fn caught<T>(import: impl FnOnce() -> Option<T>) -> Option<T> {
    CAUGHT.set(true);
    let outcome = catch_unwind(AssertUnwindSafe(import));
    CAUGHT.set(false);
    outcome.ok().flatten()
}

thread_local! {
    static CAUGHT: Cell<bool> = const { Cell::new(false) };
}

/// Whether a panic of this thread breaks no promise now.
pub fn is_panic_caught() -> bool {
    CAUGHT.get()
}

fn data_type(input: &mut Input<'_>, depth: usize) -> DataType {
    use DataType as D;
    let zone = |input: &mut Input<'_>| {
        input
            .pick(&[None, Some("UTC"), Some("Europe/Berlin"), Some("+05:30"), Some("nowhere")])
            .map(Arc::from)
    };
    let unit = |input: &mut Input<'_>| {
        *input.pick(&[
            TimeUnit::Second,
            TimeUnit::Millisecond,
            TimeUnit::Microsecond,
            TimeUnit::Nanosecond,
        ])
    };
    let plain = [
        D::Null,
        D::Boolean,
        D::Int8,
        D::Int16,
        D::Int32,
        D::Int64,
        D::UInt8,
        D::UInt16,
        D::UInt32,
        D::UInt64,
        D::Float16,
        D::Float32,
        D::Float64,
        D::Utf8,
        D::LargeUtf8,
        D::Utf8View,
        D::Binary,
        D::LargeBinary,
        D::BinaryView,
        D::Date32,
        D::Date64,
    ];
    let choice = usize::from(input.byte());
    match choice {
        0..128 => plain[choice % plain.len()].clone(),
        128..150 => {
            let unit = unit(input);
            D::Timestamp(unit, zone(input))
        }
        150..155 => D::Duration(unit(input)),
        155..160 => D::Decimal128(input.byte(), input.byte() as i8),
        160..165 => D::Decimal256(input.byte(), input.byte() as i8),
        165..170 => D::FixedSizeBinary(i32::from(input.byte())),
        170..173 => D::Interval(IntervalUnit::MonthDayNano),
        173..200 => {
            let keys = input.pick(&[D::Int8, D::UInt8, D::Int16, D::Int32, D::UInt32, D::UInt64]);
            D::Dictionary(Box::new(keys.clone()), Box::new(child(input, depth)))
        }
        200..215 => D::List(item(input, depth)),
        215..225 => D::LargeList(item(input, depth)),
        225..235 => D::FixedSizeList(item(input, depth), i32::from(input.byte() % 16)),
        235..245 => {
            let count = usize::from(input.byte() % 3);
            D::Struct((0..count).map(|_| item(input, depth)).collect::<Fields>())
        }
        _ => {
            let ends = input.pick(&[D::Int16, D::Int32, D::Int64]).clone();
            let values = item(input, depth);
            D::RunEndEncoded(Arc::new(Field::new("run_ends", ends, false)), values)
        }
    }
}

fn child(input: &mut Input<'_>, depth: usize) -> DataType {
    if depth == 0 { DataType::Int32 } else { data_type(input, depth - 1) }
}

fn item(input: &mut Input<'_>, depth: usize) -> Arc<Field> {
    Arc::new(Field::new("item", child(input, depth), input.byte() & 1 == 0))
}

/// Whatever `input` says: nothing about it need be true.
fn crafted(
    input: &mut Input<'_>,
    data_type: &DataType,
    len: usize,
    depth: usize,
) -> Option<ArrayData> {
    let choice = input.byte();
    let offset = if choice & 1 == 0 { 0 } else { usize::from(input.byte()) };
    let rows = len.checked_add(offset)?;
    let nulls = (choice & 2 != 0).then(|| {
        let bits: Vec<u8> = (0..rows.div_ceil(8)).map(|_| !input.byte()).collect();
        NullBuffer::new(BooleanBuffer::new(Buffer::from_vec(bits), offset, len))
    });
    let spec = layout(data_type);
    let mut buffers: Vec<Buffer> =
        spec.buffers.iter().map(|spec| buffer(input, spec, data_type, rows)).collect();
    if spec.variadic {
        for _ in 0..input.byte() % 3 {
            let mut bytes = b"a text that is longer than a view holds inline".to_vec();
            edit(input, &mut bytes);
            buffers.push(Buffer::from_vec(bytes));
        }
    }
    let children = children(data_type)
        .into_iter()
        .map(|(child, per_row)| {
            let len = match choice & 0x0c {
                0x0c => usize::from(input.byte()),
                _ => rows.checked_mul(per_row)?,
            };
            crafted(input, &child, len.min(1 << 16), depth.checked_sub(1)?)
        })
        .collect::<Option<Vec<_>>>()?;
    let builder = ArrayData::builder(data_type.clone())
        .len(len)
        .offset(offset)
        .nulls(nulls)
        .buffers(buffers)
        .child_data(children);
    // SAFETY: not valid yet, and used for nothing but `validate_full`, which reads through
    // lengths that the buffers themselves carry.
    Some(unsafe { builder.align_buffers(true).build_unchecked() })
}

/// Types of the children and how many of their rows one row has.
fn children(data_type: &DataType) -> Vec<(DataType, usize)> {
    match data_type {
        DataType::Dictionary(_, values) => vec![((**values).clone(), 1)],
        DataType::List(item) | DataType::LargeList(item) => vec![(item.data_type().clone(), 2)],
        DataType::FixedSizeList(item, size) => {
            vec![(item.data_type().clone(), usize::try_from(*size).unwrap_or(1))]
        }
        DataType::Struct(fields) => fields.iter().map(|f| (f.data_type().clone(), 1)).collect(),
        DataType::RunEndEncoded(ends, values) => {
            vec![(ends.data_type().clone(), 1), (values.data_type().clone(), 1)]
        }
        _ => Vec::new(),
    }
}

/// A buffer that could be right, with up to two changes.
fn buffer(input: &mut Input<'_>, spec: &BufferSpec, data_type: &DataType, rows: usize) -> Buffer {
    use DataType as D;
    let mut bytes: Vec<u8> = match (spec, data_type) {
        (BufferSpec::FixedWidth { .. }, D::Utf8 | D::Binary | D::List(_)) => {
            (0..=rows as i32).flat_map(|row| (row * 2).to_le_bytes()).collect()
        }
        (BufferSpec::FixedWidth { .. }, D::LargeUtf8 | D::LargeBinary | D::LargeList(_)) => {
            (0..=rows as i64).flat_map(|row| (row * 2).to_le_bytes()).collect()
        }
        (BufferSpec::FixedWidth { .. }, D::Utf8View | D::BinaryView) => (0..rows)
            .flat_map(|row| {
                let mut view = [0; 16];
                view[0] = 2;
                view[4..6].copy_from_slice(format!("t{}", row % 10).as_bytes());
                view
            })
            .collect(),
        (BufferSpec::FixedWidth { byte_width, .. }, _) => {
            (0..rows).flat_map(|row| number(row, *byte_width)).collect()
        }
        (BufferSpec::VariableWidth, _) => {
            (0..rows).flat_map(|row| format!("t{}", row % 10).into_bytes()).collect()
        }
        (BufferSpec::BitMap, _) => vec![0x55; rows.div_ceil(8)],
        (BufferSpec::AlwaysNull, _) => Vec::new(),
    };
    for _ in 0..input.byte() % 3 {
        edit(input, &mut bytes);
    }
    if has_offsets(data_type) && bytes.len() < 8 {
        // Even no rows have one offset behind the C interface: it is read without a look.
        bytes.resize(8, 0);
    }
    Buffer::from_vec(bytes)
}

fn has_offsets(data_type: &DataType) -> bool {
    use DataType as D;
    matches!(
        data_type,
        D::Utf8 | D::LargeUtf8 | D::Binary | D::LargeBinary | D::List(_) | D::LargeList(_)
    )
}

/// `row` as a number of `width` bytes.
fn number(row: usize, width: usize) -> impl Iterator<Item = u8> {
    let bytes = (row as u64).to_le_bytes();
    (0..width).map(move |i| bytes.get(i).copied().unwrap_or(0))
}
