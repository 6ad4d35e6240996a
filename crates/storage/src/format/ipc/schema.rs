//! Arrow schemas to and from their flatbuffer form, for the types caches store and no others.
//! Knows nothing of batches. `arrow-ipc`'s own conversion panics on schemas it does not expect.

use std::collections::HashMap;
use std::sync::Arc;

use arrow_ipc as fb;
use arrow_schema::{DataType, Field, Schema, TimeUnit};

use crate::format::limits::COLUMNS_MAX;
use crate::{Error, Result};

/// Columns the library adds to the stored ones: `sample_id` and `payload`.
const OWN_COLUMNS: usize = 2;

/// Refuses schemas that caches do not store.
pub(super) fn check_schema(schema: &Schema) -> Result<()> {
    if schema.fields().len() > COLUMNS_MAX + OWN_COLUMNS {
        return Err(Error::unsupported(format!(
            "{} columns in one file; expected at most {}",
            schema.fields().len(),
            COLUMNS_MAX + OWN_COLUMNS
        )));
    }
    for field in schema.fields() {
        if !is_file_type(field.data_type()) {
            return Err(Error::unsupported(format!(
                "column {:?} of type {} cannot be written; cast it to a stored type first",
                field.name(),
                field.data_type()
            )));
        }
    }
    Ok(())
}

/// Whether files may hold a column of this type.
pub(super) fn is_file_type(data_type: &DataType) -> bool {
    use DataType as D;
    matches!(
        data_type,
        D::Null
            | D::Boolean
            | D::Int8
            | D::Int16
            | D::Int32
            | D::Int64
            | D::UInt8
            | D::UInt16
            | D::UInt32
            | D::UInt64
            | D::Float32
            | D::Float64
            | D::LargeUtf8
            | D::LargeBinary
            | D::Date32
            | D::Timestamp(..)
    )
}

/// A verified flatbuffer schema as an Arrow schema.
pub(super) fn decode_schema(schema: fb::Schema<'_>) -> Result<Schema> {
    if schema.endianness() != fb::Endianness::Little {
        return Err(Error::corrupt("schema is not little-endian"));
    }
    let fields = schema.fields().ok_or_else(|| Error::corrupt("schema has no list of fields"))?;
    if fields.len() > COLUMNS_MAX + OWN_COLUMNS {
        return Err(Error::corrupt(format!(
            "schema has {} fields; expected at most {}",
            fields.len(),
            COLUMNS_MAX + OWN_COLUMNS
        )));
    }
    let fields = fields.iter().map(decode_field).collect::<Result<Vec<_>>>()?;
    Ok(Schema::new_with_metadata(fields, decode_marks(schema.custom_metadata())?))
}

type KeyValues<'a> = flatbuffers::Vector<'a, flatbuffers::ForwardsUOffset<fb::KeyValue<'a>>>;

fn decode_marks(list: Option<KeyValues<'_>>) -> Result<HashMap<String, String>> {
    let mut marks = HashMap::new();
    for pair in list.iter().flatten() {
        let (Some(key), Some(value)) = (pair.key(), pair.value()) else {
            return Err(Error::corrupt("schema metadata has a pair without key or value"));
        };
        if marks.insert(key.to_owned(), value.to_owned()).is_some() {
            return Err(Error::corrupt(format!("schema metadata key {key:?} appears twice")));
        }
    }
    Ok(marks)
}

fn decode_field(field: fb::Field<'_>) -> Result<Field> {
    let name = field.name().ok_or_else(|| Error::corrupt("a field of the schema has no name"))?;
    if field.dictionary().is_some() || field.children().is_some_and(|c| !c.is_empty()) {
        return Err(Error::corrupt(format!(
            "field {name:?} is nested or dictionary-encoded; caches store neither"
        )));
    }
    let data_type = decode_type(field).ok_or_else(|| {
        Error::corrupt(format!(
            "field {name:?} has type {:?}, which caches do not store",
            field.type_type()
        ))
    })?;
    Ok(Field::new(name, data_type, field.nullable())
        .with_metadata(decode_marks(field.custom_metadata())?))
}

/// The Arrow type of a field; `None` for types that caches do not store.
fn decode_type(field: fb::Field<'_>) -> Option<DataType> {
    Some(match field.type_type() {
        fb::Type::Null => DataType::Null,
        fb::Type::Bool => DataType::Boolean,
        fb::Type::LargeUtf8 => DataType::LargeUtf8,
        fb::Type::LargeBinary => DataType::LargeBinary,
        fb::Type::Int => {
            let int = field.type_as_int()?;
            match (int.bitWidth(), int.is_signed()) {
                (8, true) => DataType::Int8,
                (16, true) => DataType::Int16,
                (32, true) => DataType::Int32,
                (64, true) => DataType::Int64,
                (8, false) => DataType::UInt8,
                (16, false) => DataType::UInt16,
                (32, false) => DataType::UInt32,
                (64, false) => DataType::UInt64,
                _ => return None,
            }
        }
        fb::Type::FloatingPoint => match field.type_as_floating_point()?.precision() {
            fb::Precision::SINGLE => DataType::Float32,
            fb::Precision::DOUBLE => DataType::Float64,
            _ => return None,
        },
        fb::Type::Date => match field.type_as_date()?.unit() {
            fb::DateUnit::DAY => DataType::Date32,
            _ => return None,
        },
        fb::Type::Timestamp => {
            let timestamp = field.type_as_timestamp()?;
            let unit = match timestamp.unit() {
                fb::TimeUnit::SECOND => TimeUnit::Second,
                fb::TimeUnit::MILLISECOND => TimeUnit::Millisecond,
                fb::TimeUnit::MICROSECOND => TimeUnit::Microsecond,
                fb::TimeUnit::NANOSECOND => TimeUnit::Nanosecond,
                _ => return None,
            };
            DataType::Timestamp(unit, timestamp.timezone().map(Arc::from))
        }
        _ => return None,
    })
}
