//! Arrow files as text cells, read by decoders that share no code with ours. Knows no cache.

use std::error::Error;
use std::fs::File;
use std::path::Path;

/// Each column's name and cells, `None` for null.
pub type Columns = Vec<(String, Vec<Option<String>>)>;

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// One module a decoder: their array types have the same names, being of one descent.
macro_rules! decoder {
    ($name:ident, $fields:expr) => {
        #[doc = concat!("Files read by `", stringify!($name), "`.")]
        pub mod $name {
            use super::*;
            use ::$name::array::{
                Array, BinaryArray, BooleanArray, NullArray, PrimitiveArray, Utf8Array,
            };
            use ::$name::io::ipc::read::{FileReader, read_file_metadata};

            /// All cells of an Arrow file, batch after batch.
            ///
            /// # Errors
            /// When the decoder refuses the file, or a column is of no type that caches store.
            pub fn columns(path: &Path) -> Result<Columns, Box<dyn Error>> {
                let mut file = File::open(path)?;
                let metadata = read_file_metadata(&mut file)?;
                let names: Vec<String> = $fields(&metadata.schema);
                let mut columns: Columns =
                    names.into_iter().map(|name| (name, Vec::new())).collect();
                for batch in FileReader::new(file, metadata, None, None) {
                    let batch = batch?;
                    for (array, (name, cells)) in batch.arrays().iter().zip(&mut columns) {
                        cells.extend(texts(array.as_ref()).ok_or_else(|| {
                            format!("column {name} is of a type that no cache stores")
                        })?);
                    }
                }
                Ok(columns)
            }

            fn texts(array: &dyn Array) -> Option<Vec<Option<String>>> {
                macro_rules! cells_of {
                    ($kind:ty, $text:expr) => {
                        if let Some(array) = array.as_any().downcast_ref::<$kind>() {
                            return Some(array.iter().map(|cell| cell.map($text)).collect());
                        }
                    };
                }
                if array.as_any().is::<NullArray>() {
                    return Some(vec![None; array.len()]);
                }
                cells_of!(BooleanArray, |value| value.to_string());
                cells_of!(Utf8Array<i64>, str::to_owned);
                cells_of!(BinaryArray<i64>, hex);
                cells_of!(PrimitiveArray<i8>, i8::to_string);
                cells_of!(PrimitiveArray<i16>, i16::to_string);
                cells_of!(PrimitiveArray<i32>, i32::to_string);
                cells_of!(PrimitiveArray<i64>, i64::to_string);
                cells_of!(PrimitiveArray<u8>, u8::to_string);
                cells_of!(PrimitiveArray<u16>, u16::to_string);
                cells_of!(PrimitiveArray<u32>, u32::to_string);
                cells_of!(PrimitiveArray<u64>, u64::to_string);
                cells_of!(PrimitiveArray<f32>, |value: &f32| hex(&value.to_be_bytes()));
                cells_of!(PrimitiveArray<f64>, |value: &f64| hex(&value.to_be_bytes()));
                None
            }
        }
    };
}

decoder!(arrow2, |schema: &::arrow2::datatypes::Schema| {
    schema.fields.iter().map(|field| field.name.clone()).collect()
});
decoder!(polars_arrow, |schema: &::polars_arrow::datatypes::ArrowSchemaRef| {
    schema.iter_names().map(ToString::to_string).collect()
});
