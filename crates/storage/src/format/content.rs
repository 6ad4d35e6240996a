//! Digest of a cache's logical contents, from which `cache_id` comes.
//! Independent of name, path, compression, and batch and shard sizes.
//!
//! Rows form groups of 4,096. In each group every column is one canonical byte stream (see
//! `docs/format`), so that large slices reach the hash function and no row is assembled:
//!
//! ```text
//! contents = H("contents", schema, group digest ..., rows)
//! group    = H("group", rows, payload lengths, payload bytes, per column: validity, lengths, values)
//! ```

use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, GenericByteArray, LargeBinaryArray, types::ByteArrayType};
use blake3::Hasher;

use super::digest::Digest;
use super::limits::CONTENT_GROUP_ROWS;
use super::schema::{ColumnType, StoredSchema};
use crate::{Error, Result};

const CONTENTS_CONTEXT: &str = "dataset_rt format 0 contents";
const GROUP_CONTEXT: &str = "dataset_rt format 0 content group";

/// Hashes rows as they come, in pieces of any size.
pub struct ContentHasher {
    types: Vec<ColumnType>,
    contents: Hasher,
    rows: u64,
    group_rows: u64,
    payload: StreamHasher,
    columns: Vec<StreamHasher>,
    scratch: Vec<u8>,
}

/// The canonical streams of one column within one group.
#[derive(Default)]
struct StreamHasher {
    validity: Hasher,
    lengths: Hasher,
    values: Hasher,
}

impl StreamHasher {
    fn close_into(&mut self, group: &mut Hasher) {
        for stream in [&mut self.validity, &mut self.lengths, &mut self.values] {
            group.update(stream.finalize().as_bytes());
            stream.reset();
        }
    }
}

impl ContentHasher {
    /// Starts an empty content digest for rows of `schema`.
    pub fn new(schema: &StoredSchema) -> Self {
        let mut contents = Hasher::new_derive_key(CONTENTS_CONTEXT);
        contents.update(&(schema.columns().len() as u64).to_le_bytes());
        for column in schema.columns() {
            for text in [column.name.as_str(), &column.column_type.to_text()] {
                contents.update(&(text.len() as u64).to_le_bytes());
                contents.update(text.as_bytes());
            }
        }
        let types: Vec<_> = schema.columns().iter().map(|c| c.column_type.clone()).collect();
        Self {
            columns: types.iter().map(|_| StreamHasher::default()).collect(),
            types,
            contents,
            rows: 0,
            group_rows: 0,
            payload: StreamHasher::default(),
            scratch: Vec::new(),
        }
    }

    /// Takes the next rows: stored columns in schema order and raw payloads.
    ///
    /// # Errors
    /// `Internal` when the arrays do not have the schema's types or one length.
    pub fn update(&mut self, columns: &[ArrayRef], payload: &LargeBinaryArray) -> Result<()> {
        let fits = columns.len() == self.types.len()
            && columns.iter().all(|c| c.len() == payload.len())
            && columns.iter().zip(&self.types).all(|(c, t)| *c.data_type() == t.to_arrow());
        if !fits {
            return Err(Error::internal("rows to digest do not have the schema's shape"));
        }
        let mut start = 0;
        while start < payload.len() {
            let room = (CONTENT_GROUP_ROWS - self.group_rows) as usize;
            let len = room.min(payload.len() - start);
            hash_bytes(&payload.slice(start, len), &mut self.payload, &mut self.scratch);
            for ((column, column_type), stream) in
                columns.iter().zip(&self.types).zip(&mut self.columns)
            {
                let piece = column.slice(start, len);
                hash_column(&piece, column_type, stream, &mut self.scratch);
            }
            self.group_rows += len as u64;
            self.rows += len as u64;
            start += len;
            if self.group_rows == CONTENT_GROUP_ROWS {
                self.close_group();
            }
        }
        Ok(())
    }

    fn close_group(&mut self) {
        let mut group = Hasher::new_derive_key(GROUP_CONTEXT);
        group.update(&self.group_rows.to_le_bytes());
        self.payload.close_into(&mut group);
        self.columns.iter_mut().for_each(|column| column.close_into(&mut group));
        self.contents.update(group.finalize().as_bytes());
        self.group_rows = 0;
    }

    /// The content digest of all rows taken.
    pub fn finish(mut self) -> Digest {
        if self.group_rows > 0 {
            self.close_group();
        }
        self.contents.update(&self.rows.to_le_bytes());
        *self.contents.finalize().as_bytes()
    }
}

/// The identity of a cache: the low 53 bits of its content digest, so that it survives JSON and
/// float64.
pub fn cache_id_of(content: &Digest) -> u64 {
    let mut low = [0; 8];
    low.copy_from_slice(&content[..8]);
    u64::from_le_bytes(low) & ((1 << 53) - 1)
}

fn hash_column(
    array: &ArrayRef,
    column_type: &ColumnType,
    stream: &mut StreamHasher,
    scratch: &mut Vec<u8>,
) {
    hash_validity(array, stream, scratch);
    match column_type {
        ColumnType::Null => {}
        ColumnType::Bool => {
            let values = array.as_boolean();
            scratch.clear();
            scratch
                .extend((0..values.len()).map(|i| u8::from(values.is_valid(i) && values.value(i))));
            stream.values.update(scratch);
        }
        ColumnType::Utf8 => hash_bytes(array.as_string::<i64>(), stream, scratch),
        ColumnType::Binary => hash_bytes(array.as_binary::<i64>(), stream, scratch),
        ColumnType::Float32 => hash_floats::<4>(array, stream, scratch),
        ColumnType::Float64 => hash_floats::<8>(array, stream, scratch),
        fixed => hash_fixed(array, fixed.width_bytes().unwrap_or(0), stream, scratch),
    }
}

fn hash_validity(array: &ArrayRef, stream: &mut StreamHasher, scratch: &mut Vec<u8>) {
    const ALL_VALID: [u8; CONTENT_GROUP_ROWS as usize] = [1; CONTENT_GROUP_ROWS as usize];
    match array.logical_nulls() {
        None => {
            stream.validity.update(&ALL_VALID[..array.len()]);
        }
        Some(nulls) => {
            scratch.clear();
            scratch.extend(nulls.iter().map(u8::from));
            stream.validity.update(scratch);
        }
    }
}

fn fixed_bytes(array: &ArrayRef, width: usize) -> Vec<u8> {
    let data = array.to_data();
    let bytes = data.buffers().first().map(|b| b.as_slice()).unwrap_or_default();
    let start = data.offset() * width;
    bytes.get(start..start + data.len() * width).unwrap_or_default().to_vec()
}

fn hash_fixed(array: &ArrayRef, width: usize, stream: &mut StreamHasher, scratch: &mut Vec<u8>) {
    *scratch = fixed_bytes(array, width);
    zero_nulls(array, width, scratch);
    stream.values.update(scratch);
}

fn zero_nulls(array: &ArrayRef, width: usize, bytes: &mut [u8]) {
    if let Some(nulls) = array.nulls() {
        for (i, cell) in bytes.chunks_exact_mut(width).enumerate() {
            if nulls.is_null(i) {
                cell.fill(0);
            }
        }
    }
}

/// All NaNs are one value; -0.0 and 0.0 are two, as their bits are.
fn hash_floats<const WIDTH: usize>(
    array: &ArrayRef,
    stream: &mut StreamHasher,
    scratch: &mut Vec<u8>,
) {
    *scratch = fixed_bytes(array, WIDTH);
    zero_nulls(array, WIDTH, scratch);
    for cell in scratch.chunks_exact_mut(WIDTH) {
        let mut wide = [0; 8];
        wide[..WIDTH].copy_from_slice(cell);
        let bits = u64::from_le_bytes(wide);
        if WIDTH == 8 && f64::from_bits(bits).is_nan() {
            cell.copy_from_slice(&0x7ff8_0000_0000_0000_u64.to_le_bytes()[..WIDTH]);
        } else if WIDTH == 4 && f32::from_bits(bits as u32).is_nan() {
            cell.copy_from_slice(&0x7fc0_0000_u32.to_le_bytes()[..WIDTH]);
        }
    }
    stream.values.update(scratch);
}

fn hash_bytes<T: ByteArrayType<Offset = i64>>(
    array: &GenericByteArray<T>,
    stream: &mut StreamHasher,
    scratch: &mut Vec<u8>,
) {
    scratch.clear();
    let offsets = array.value_offsets();
    for (i, pair) in offsets.windows(2).enumerate() {
        let len = if array.is_null(i) { 0 } else { pair[1] - pair[0] };
        scratch.extend_from_slice(&(len as u64).to_le_bytes());
    }
    stream.lengths.update(scratch);
    if array.null_count() == 0 {
        let (first, last) = (offsets[0] as usize, offsets[array.len()] as usize);
        stream.values.update(&array.value_data()[first..last]);
        return;
    }
    for i in (0..array.len()).filter(|&i| array.is_valid(i)) {
        let value: &[u8] = array.value(i).as_ref();
        stream.values.update(value);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::{BooleanArray, Float64Array, Int64Array, LargeStringArray};
    use proptest::prelude::*;

    use super::*;
    use crate::format::schema::StoredColumn;

    fn schema() -> StoredSchema {
        let column = |name: &str, column_type| StoredColumn {
            name: name.into(),
            column_type,
            nullable: true,
        };
        StoredSchema::new(vec![
            column("label", ColumnType::Int64),
            column("score", ColumnType::Float64),
            column("split", ColumnType::Utf8),
            column("kept", ColumnType::Bool),
        ])
        .unwrap()
    }

    type Row = (Option<i64>, Option<f64>, Option<String>, Option<bool>, Vec<u8>);

    fn arrays(rows: &[Row]) -> (Vec<ArrayRef>, LargeBinaryArray) {
        (
            vec![
                Arc::new(rows.iter().map(|r| r.0).collect::<Int64Array>()),
                Arc::new(rows.iter().map(|r| r.1).collect::<Float64Array>()),
                Arc::new(rows.iter().map(|r| r.2.clone()).collect::<LargeStringArray>()),
                Arc::new(rows.iter().map(|r| r.3).collect::<BooleanArray>()),
            ],
            rows.iter().map(|r| Some(r.4.clone())).collect(),
        )
    }

    fn digest(rows: &[Row], piece: usize) -> Digest {
        let mut hasher = ContentHasher::new(&schema());
        let (columns, payload) = arrays(rows);
        let mut start = 0;
        while start < rows.len() {
            let len = piece.min(rows.len() - start);
            let part: Vec<ArrayRef> = columns.iter().map(|c| c.slice(start, len)).collect();
            hasher.update(&part, &payload.slice(start, len)).unwrap();
            start += len;
        }
        hasher.finish()
    }

    fn rows(count: usize) -> Vec<Row> {
        (0..count)
            .map(|i| {
                let text = (i % 7 != 0).then(|| format!("s{i}"));
                (Some(i as i64), Some(i as f64), text, Some(i % 2 == 0), vec![i as u8; i % 5])
            })
            .collect()
    }

    #[test]
    fn pieces_do_not_change_the_digest_across_groups() {
        let rows = rows(9_000);
        let whole = digest(&rows, usize::MAX);
        for piece in [1, 4095, 4096, 4097, 8192] {
            assert_eq!(digest(&rows, piece), whole, "{piece}");
        }
    }

    #[test]
    fn nan_is_one_value_and_a_null_is_not_zero() {
        let with = |value: Option<f64>| vec![(Some(1), value, None, None, vec![1])];
        let nan = digest(&with(Some(f64::NAN)), 1);
        assert_eq!(digest(&with(Some(-f64::NAN)), 1), nan);
        let (zero, minus) = (digest(&with(Some(0.0)), 1), digest(&with(Some(-0.0)), 1));
        assert_ne!(zero, minus);
        assert_ne!(digest(&with(None), 1), zero);
    }

    #[test]
    fn a_shape_that_is_not_the_schemas_is_refused() {
        let (columns, payload) = arrays(&rows(3));
        let mut hasher = ContentHasher::new(&schema());
        assert!(hasher.update(&columns[..2], &payload).is_err());
        assert!(hasher.update(&columns, &payload.slice(0, 2)).is_err());
    }

    proptest! {
        #[test]
        fn any_change_of_a_row_changes_the_digest(
            at in 0_usize..50, which in 0..5_u8,
        ) {
            let before = rows(50);
            let mut after = before.clone();
            match which {
                0 => after[at].0 = after[at].0.map(|v| v + 1),
                1 => after[at].1 = None,
                2 => after[at].2 = Some("other".into()),
                3 => after[at].3 = None,
                _ => after[at].4.push(0),
            }
            prop_assert_ne!(digest(&before, 7), digest(&after, 7));
        }

        #[test]
        fn bytes_cannot_move_between_neighbours(a in ".{0,5}", b in ".{0,5}") {
            let make = |x: &str, y: &str| vec![
                (None, None, Some(x.to_owned()), None, x.as_bytes().to_vec()),
                (None, None, Some(y.to_owned()), None, y.as_bytes().to_vec()),
            ];
            let joined = format!("{a}{b}");
            prop_assume!(!b.is_empty());
            prop_assert_ne!(digest(&make(&a, &b), 2), digest(&make(&joined, ""), 2));
        }
    }
}
