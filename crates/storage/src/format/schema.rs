//! Stored columns: their names, types and order, and the Arrow schemas made of them.
//! Knows nothing of values.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use arrow_schema::{DataType, Field, Schema, SchemaRef, TimeUnit};

use super::limits::COLUMNS_MAX;
use crate::{Error, Result};

/// Column names that belong to the library and cannot be stored.
pub const RESERVED_COLUMNS: [&str; 4] = ["cache_id", "sample_id", "weight", "payload"];

/// Type of one stored column. String, large_string and string_view are one type here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ColumnType {
    /// Every value is null; no buffers.
    Null,
    /// Booleans, one bit a value.
    Bool,
    /// Signed integers.
    Int8,
    /// Signed integers.
    Int16,
    /// Signed integers.
    Int32,
    /// Signed integers; what Python `int` is inferred as.
    Int64,
    /// Unsigned integers.
    UInt8,
    /// Unsigned integers.
    UInt16,
    /// Unsigned integers.
    UInt32,
    /// Unsigned integers.
    UInt64,
    /// IEEE 754 single precision.
    Float32,
    /// IEEE 754 double precision; what Python `float` is inferred as.
    Float64,
    /// UTF-8 text with 64-bit offsets; what Python `str` is inferred as.
    Utf8,
    /// Bytes with 64-bit offsets.
    Binary,
    /// Days since 1970-01-01; what Python `date` is inferred as.
    Date32,
    /// Instants, or wall clock times without a zone; Python `datetime` is microseconds.
    Timestamp(TimeUnit, Option<Arc<str>>),
}

impl ColumnType {
    /// The stored type that holds values of `data_type` without loss.
    ///
    /// # Errors
    /// `Unsupported` for types caches do not store (nested, decimal, duration, time, ...).
    pub fn from_arrow(data_type: &DataType) -> Result<Self> {
        Ok(match data_type {
            DataType::Null => Self::Null,
            DataType::Boolean => Self::Bool,
            DataType::Int8 => Self::Int8,
            DataType::Int16 => Self::Int16,
            DataType::Int32 => Self::Int32,
            DataType::Int64 => Self::Int64,
            DataType::UInt8 => Self::UInt8,
            DataType::UInt16 => Self::UInt16,
            DataType::UInt32 => Self::UInt32,
            DataType::UInt64 => Self::UInt64,
            DataType::Float16 | DataType::Float32 => Self::Float32,
            DataType::Float64 => Self::Float64,
            DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => Self::Utf8,
            DataType::Binary
            | DataType::LargeBinary
            | DataType::BinaryView
            | DataType::FixedSizeBinary(_) => Self::Binary,
            DataType::Date32 => Self::Date32,
            DataType::Timestamp(unit, zone) => {
                zone.as_deref().map_or(Ok(()), check_zone)?;
                Self::Timestamp(*unit, zone.clone())
            }
            // One level: dictionaries of dictionaries and the like are nobody's column.
            DataType::Dictionary(_, values) if is_plain(values) => Self::from_arrow(values)?,
            DataType::RunEndEncoded(_, values) if is_plain(values.data_type()) => {
                Self::from_arrow(values.data_type())?
            }
            other => {
                return Err(Error::unsupported(format!(
                    "type {other} cannot be stored as a metadata column; {}",
                    advice(other)
                )));
            }
        })
    }

    /// The Arrow type of the column in every file.
    pub fn to_arrow(&self) -> DataType {
        match self {
            Self::Null => DataType::Null,
            Self::Bool => DataType::Boolean,
            Self::Int8 => DataType::Int8,
            Self::Int16 => DataType::Int16,
            Self::Int32 => DataType::Int32,
            Self::Int64 => DataType::Int64,
            Self::UInt8 => DataType::UInt8,
            Self::UInt16 => DataType::UInt16,
            Self::UInt32 => DataType::UInt32,
            Self::UInt64 => DataType::UInt64,
            Self::Float32 => DataType::Float32,
            Self::Float64 => DataType::Float64,
            Self::Utf8 => DataType::LargeUtf8,
            Self::Binary => DataType::LargeBinary,
            Self::Date32 => DataType::Date32,
            Self::Timestamp(unit, zone) => DataType::Timestamp(*unit, zone.clone()),
        }
    }

    /// The name of the type in manifests and messages, for instance `timestamp[us, UTC]`.
    pub fn to_text(&self) -> String {
        let fixed = match self {
            Self::Null => "null",
            Self::Bool => "bool",
            Self::Int8 => "int8",
            Self::Int16 => "int16",
            Self::Int32 => "int32",
            Self::Int64 => "int64",
            Self::UInt8 => "uint8",
            Self::UInt16 => "uint16",
            Self::UInt32 => "uint32",
            Self::UInt64 => "uint64",
            Self::Float32 => "float32",
            Self::Float64 => "float64",
            Self::Utf8 => "large_utf8",
            Self::Binary => "large_binary",
            Self::Date32 => "date32",
            Self::Timestamp(unit, zone) => {
                let unit = unit_text(*unit);
                return match zone {
                    None => format!("timestamp[{unit}]"),
                    Some(zone) => format!("timestamp[{unit}, {zone}]"),
                };
            }
        };
        fixed.to_owned()
    }

    /// Reads what [`ColumnType::to_text`] wrote; `None` for anything else.
    pub fn from_text(text: &str) -> Option<Self> {
        Some(match text {
            "null" => Self::Null,
            "bool" => Self::Bool,
            "int8" => Self::Int8,
            "int16" => Self::Int16,
            "int32" => Self::Int32,
            "int64" => Self::Int64,
            "uint8" => Self::UInt8,
            "uint16" => Self::UInt16,
            "uint32" => Self::UInt32,
            "uint64" => Self::UInt64,
            "float32" => Self::Float32,
            "float64" => Self::Float64,
            "large_utf8" => Self::Utf8,
            "large_binary" => Self::Binary,
            "date32" => Self::Date32,
            _ => {
                let inner = text.strip_prefix("timestamp[")?.strip_suffix(']')?;
                let (unit, zone) = match inner.split_once(", ") {
                    None => (inner, None),
                    Some((_, zone)) if zone.is_empty() || zone.contains('\0') => return None,
                    Some((unit, zone)) => (unit, Some(Arc::from(zone))),
                };
                Self::Timestamp(unit_from_text(unit)?, zone)
            }
        })
    }

    /// Bytes per value of a fixed-width column; `None` for null, bool and variable width.
    pub fn width_bytes(&self) -> Option<usize> {
        match self {
            Self::Null | Self::Bool | Self::Utf8 | Self::Binary => None,
            Self::Int8 | Self::UInt8 => Some(1),
            Self::Int16 | Self::UInt16 => Some(2),
            Self::Int32 | Self::UInt32 | Self::Float32 | Self::Date32 => Some(4),
            Self::Int64 | Self::UInt64 | Self::Float64 | Self::Timestamp(..) => Some(8),
        }
    }

    /// Whether values have a length of their own.
    pub fn is_variable_width(&self) -> bool {
        matches!(self, Self::Utf8 | Self::Binary)
    }
}

fn is_plain(values: &DataType) -> bool {
    !matches!(values, DataType::Dictionary(..) | DataType::RunEndEncoded(..))
}

/// What to do about a column that caches do not store.
fn advice(found: &DataType) -> &'static str {
    match found {
        DataType::Date64 => "cast it to date32, or to timestamp[ms]",
        DataType::Time32(_) | DataType::Time64(_) | DataType::Duration(_) => {
            "cast it to int64 and name the unit in the column's name"
        }
        DataType::Interval(_) => "store its months, days and nanoseconds as integer columns",
        DataType::Decimal32(..)
        | DataType::Decimal64(..)
        | DataType::Decimal128(..)
        | DataType::Decimal256(..) => "cast it to float64, or to string to keep every digit",
        DataType::Struct(_) => "make each of its fields a column of its own",
        DataType::Dictionary(..) | DataType::RunEndEncoded(..) => "decode it to plain values first",
        _ => "encode it as binary or string, or put it into the payload",
    }
}

/// Refuses time zones that could be written but never shown: Polars knows named zones only.
/// Stored caches are not held to it: zone databases grow.
///
/// # Errors
/// `Unsupported` for offsets like `+05:30` and names that no database knows.
pub fn check_zone(zone: &str) -> Result<()> {
    let is_offset = zone.starts_with(['+', '-']);
    if !is_offset && zone.parse::<arrow_array::timezone::Tz>().is_ok() {
        return Ok(());
    }
    Err(Error::unsupported(format!(
        "time zone {zone:?} is an offset or unknown, which Polars cannot show; convert the times \
         to UTC or another named zone"
    )))
}

fn unit_text(unit: TimeUnit) -> &'static str {
    match unit {
        TimeUnit::Second => "s",
        TimeUnit::Millisecond => "ms",
        TimeUnit::Microsecond => "us",
        TimeUnit::Nanosecond => "ns",
    }
}

fn unit_from_text(text: &str) -> Option<TimeUnit> {
    Some(match text {
        "s" => TimeUnit::Second,
        "ms" => TimeUnit::Millisecond,
        "us" => TimeUnit::Microsecond,
        "ns" => TimeUnit::Nanosecond,
        _ => return None,
    })
}

/// One stored column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredColumn {
    /// Exact name, never normalised.
    pub name: String,
    /// Type of every value.
    pub column_type: ColumnType,
    /// Whether values may be null.
    pub nullable: bool,
}

/// The stored columns of a cache, in source order.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct StoredSchema {
    columns: Vec<StoredColumn>,
}

impl StoredSchema {
    /// Checks names and order once; every later stage relies on it.
    ///
    /// # Errors
    /// `InvalidInput` for an empty, reserved or repeated name, or too many columns.
    pub fn new(columns: Vec<StoredColumn>) -> Result<Self> {
        if columns.len() > COLUMNS_MAX {
            return Err(Error::invalid(format!(
                "{} metadata columns; expected at most {COLUMNS_MAX}",
                columns.len()
            )));
        }
        let mut seen = HashSet::with_capacity(columns.len());
        for column in &columns {
            check_column_name(&column.name)?;
            if !seen.insert(column.name.as_str()) {
                return Err(Error::invalid(format!(
                    "metadata column {:?} appears twice; give each column its own name",
                    column.name
                )));
            }
        }
        Ok(Self { columns })
    }

    /// A declared Arrow schema as stored columns.
    ///
    /// # Errors
    /// `InvalidInput` for bad names, `Unsupported` for types caches do not store.
    pub fn from_arrow(schema: &Schema) -> Result<Self> {
        let columns = schema
            .fields()
            .iter()
            .map(|field| {
                Ok(StoredColumn {
                    name: field.name().clone(),
                    column_type: ColumnType::from_arrow(field.data_type())
                        .map_err(|e| e.within(format!("column {:?}", field.name())))?,
                    nullable: field.is_nullable(),
                })
            })
            .collect::<Result<_>>()?;
        Self::new(columns)
    }

    /// The columns in source order.
    pub fn columns(&self) -> &[StoredColumn] {
        &self.columns
    }

    /// Position of the column called `name`.
    pub fn position(&self, name: &str) -> Option<usize> {
        self.columns.iter().position(|column| column.name == name)
    }

    /// The stored columns as Arrow fields.
    pub fn to_fields(&self) -> Vec<Field> {
        self.columns
            .iter()
            .map(|c| Field::new(c.name.as_str(), c.column_type.to_arrow(), c.nullable))
            .collect()
    }

    /// Schema of `metadata.arrow`.
    pub fn metadata_schema(&self) -> SchemaRef {
        let marks = HashMap::from([
            ("dataset_rt.format_version".to_owned(), super::limits::FORMAT_VERSION.to_string()),
            ("dataset_rt.kind".to_owned(), "metadata".to_owned()),
        ]);
        Arc::new(Schema::new_with_metadata(self.to_fields(), marks))
    }

    /// Schema of every shard; `codec_marks` name the payload compression.
    pub fn shard_schema(&self, codec_marks: &[(String, String)]) -> SchemaRef {
        let mut fields = vec![Field::new("sample_id", DataType::UInt64, false)];
        fields.extend(self.to_fields());
        fields.push(Field::new("payload", DataType::LargeBinary, false));
        let mut marks = HashMap::from([
            ("dataset_rt.format_version".to_owned(), super::limits::FORMAT_VERSION.to_string()),
            ("dataset_rt.kind".to_owned(), "shard".to_owned()),
        ]);
        marks.extend(codec_marks.iter().cloned());
        Arc::new(Schema::new_with_metadata(fields, marks))
    }

    /// Whether `other` stores the same columns; nullability does not decide it.
    pub fn is_same_as(&self, other: &Self) -> bool {
        self.difference(other).is_none()
    }

    /// The first difference to `other` in words, or `None`.
    pub fn difference(&self, other: &Self) -> Option<String> {
        let longest = self.columns.len().max(other.columns.len());
        (0..longest).find_map(|i| match (self.columns.get(i), other.columns.get(i)) {
            (Some(a), Some(b)) if a.name == b.name && a.column_type == b.column_type => None,
            (a, b) => Some(format!("column {i}: {} against {}", describe(a), describe(b))),
        })
    }
}

fn describe(column: Option<&StoredColumn>) -> String {
    match column {
        None => "no column".to_owned(),
        Some(c) => format!("{:?} of type {}", c.name, c.column_type.to_text()),
    }
}

/// Checks one column name.
///
/// # Errors
/// `InvalidInput` for an empty or reserved name.
pub fn check_column_name(name: &str) -> Result<()> {
    if name.is_empty() {
        return Err(Error::invalid("a metadata column has an empty name; give it a name"));
    }
    if name.contains('\0') {
        return Err(Error::invalid(format!(
            "metadata column {name:?} has a NUL in its name, which Arrow cannot carry; rename it"
        )));
    }
    if RESERVED_COLUMNS.contains(&name) {
        return Err(Error::invalid(format!(
            "metadata column {name:?} is reserved ({}); leave it out or rename it",
            RESERVED_COLUMNS.join(", ")
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn column(name: &str, column_type: ColumnType) -> StoredColumn {
        StoredColumn { name: name.into(), column_type, nullable: true }
    }

    #[test]
    fn every_type_survives_its_text() {
        let zone = Some(Arc::from("Europe/Berlin"));
        for t in [
            ColumnType::Null,
            ColumnType::Bool,
            ColumnType::Int8,
            ColumnType::UInt64,
            ColumnType::Float32,
            ColumnType::Utf8,
            ColumnType::Binary,
            ColumnType::Date32,
            ColumnType::Timestamp(TimeUnit::Microsecond, None),
            ColumnType::Timestamp(TimeUnit::Nanosecond, zone),
        ] {
            assert_eq!(ColumnType::from_text(&t.to_text()), Some(t.clone()), "{t:?}");
            assert_eq!(ColumnType::from_arrow(&t.to_arrow()).ok(), Some(t));
        }
        for bad in ["", "int", "timestamp", "timestamp[us, ]", "timestamp[min]"] {
            assert_eq!(ColumnType::from_text(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn only_named_zones_are_written() {
        for zone in ["UTC", "Europe/Berlin", "America/New_York"] {
            assert_eq!(check_zone(zone), Ok(()), "{zone}");
        }
        for zone in ["+05:30", "-00:00", "Nowhere/Land", "", "a\0b"] {
            assert!(check_zone(zone).is_err(), "{zone:?}");
        }
    }

    #[test]
    fn reserved_repeated_and_empty_names_are_refused() {
        for name in ["", "weight", "payload", "sample_id", "cache_id"] {
            assert!(StoredSchema::new(vec![column(name, ColumnType::Bool)]).is_err(), "{name}");
        }
        let twice = vec![column("a", ColumnType::Bool), column("a", ColumnType::Int64)];
        assert!(StoredSchema::new(twice).is_err());
    }

    #[test]
    fn the_difference_names_column_and_both_types() {
        let a = StoredSchema::new(vec![column("x", ColumnType::Int64)]).unwrap();
        let b = StoredSchema::new(vec![column("x", ColumnType::Utf8)]).unwrap();
        let text = a.difference(&b).unwrap();
        assert!(text.contains("int64") && text.contains("large_utf8"), "{text}");
        assert!(a.is_same_as(&a));
    }
}
