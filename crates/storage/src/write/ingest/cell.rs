//! One metadata value as a source gives it, and the rules by which columns take it.
//! Knows no name, source or row: the caller adds the place to a refusal.

use std::sync::Arc;

use arrow_schema::TimeUnit;

use super::super::column::ColumnBuilder;
use crate::format::schema::ColumnType;

/// One metadata value of one sample.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Cell<'a> {
    /// No value.
    Null,
    /// A truth value.
    Bool(bool),
    /// An integer.
    Int(i64),
    /// An integer that may lie above `i64::MAX`: only declared `uint64` columns take those.
    UInt(u64),
    /// A floating point number.
    Float(f64),
    /// A text.
    Str(&'a str),
    /// A day, counted from 1970-01-01.
    Date(i32),
    /// An instant (with a zone) or a wall clock time (without).
    Timestamp {
        /// Microseconds since 1970-01-01T00:00:00.
        micros: i64,
        /// Name of the time zone.
        zone: Option<&'a str>,
    },
}

/// Why a column does not take a value.
#[derive(Debug, PartialEq)]
pub(super) struct Refusal {
    pub(super) expected: String,
    pub(super) found: String,
    pub(super) advice: &'static str,
}

const SAME_TYPE: &str = "give every sample the same type, or declare a schema that fits";
const IN_RANGE: &str = "change the value, or declare a type that holds it";

impl Cell<'_> {
    fn to_text(self) -> String {
        match self {
            Self::Null => "None".to_owned(),
            Self::Bool(_) => "bool".to_owned(),
            Self::Int(value) => format!("int {value}"),
            Self::UInt(value) => format!("int {value}"),
            Self::Float(value) => format!("float {value:?}"),
            Self::Str(_) => "str".to_owned(),
            Self::Date(_) => "date".to_owned(),
            Self::Timestamp { zone: None, .. } => "datetime without a time zone".to_owned(),
            Self::Timestamp { zone: Some(zone), .. } => {
                format!("datetime with time zone {zone:?}")
            }
        }
    }

    /// The type that a column without one gets from this value.
    fn inferred_type(self) -> Option<ColumnType> {
        Some(match self {
            Self::Null => return None,
            Self::Bool(_) => ColumnType::Bool,
            Self::Int(_) | Self::UInt(_) => ColumnType::Int64,
            Self::Float(_) => ColumnType::Float64,
            Self::Str(_) => ColumnType::Utf8,
            Self::Date(_) => ColumnType::Date32,
            Self::Timestamp { zone, .. } => {
                ColumnType::Timestamp(TimeUnit::Microsecond, zone.map(Arc::from))
            }
        })
    }
}

/// Puts `cell` at the end of `column`, whose type it fixes when that is not known yet.
/// Gives the variable length in bytes.
pub(super) fn push_cell(column: &mut ColumnBuilder, cell: Cell<'_>) -> Result<u64, Refusal> {
    let column_type = match (column.column_type(), cell) {
        (_, Cell::Null) => {
            column.push_nulls(1);
            return Ok(0);
        }
        (Some(ColumnType::Int64), Cell::Int(value)) => {
            column.push_fixed(value);
            return Ok(0);
        }
        (Some(ColumnType::Float64), Cell::Float(value)) => {
            column.push_fixed(value);
            return Ok(0);
        }
        (Some(ColumnType::Utf8), Cell::Str(value)) => {
            column.push_bytes(value.as_bytes());
            return Ok(value.len() as u64);
        }
        (Some(known), _) => known.clone(),
        (None, cell) => {
            let inferred = cell.inferred_type().unwrap_or(ColumnType::Null);
            column.set_type(inferred.clone());
            inferred
        }
    };
    match cell {
        Cell::Bool(value) if column_type == ColumnType::Bool => column.push_bool(value),
        Cell::Date(days) if column_type == ColumnType::Date32 => column.push_fixed(days),
        Cell::Int(value) => push_int(column, &column_type, value.into())?,
        Cell::UInt(value) => push_int(column, &column_type, value.into())?,
        Cell::Float(value) => push_float(column, &column_type, value)?,
        Cell::Timestamp { micros, .. } => push_timestamp(column, &column_type, cell, micros)?,
        Cell::Str(value) if column_type == ColumnType::Utf8 => {
            column.push_bytes(value.as_bytes());
            return Ok(value.len() as u64);
        }
        _ => return Err(refusal(&column_type, cell.to_text(), SAME_TYPE)),
    }
    Ok(0)
}

fn refusal(column_type: &ColumnType, found: String, advice: &'static str) -> Refusal {
    Refusal { expected: column_type.to_text(), found, advice }
}

/// Every integer type takes what it can hold, every float type what it can hold exactly.
fn push_int(
    column: &mut ColumnBuilder,
    column_type: &ColumnType,
    value: i128,
) -> Result<(), Refusal> {
    let found = || format!("int {value}");
    let misfit = |_| refusal(column_type, format!("{}, which it cannot hold", found()), IN_RANGE);
    match column_type {
        ColumnType::Int8 => column.push_fixed(i8::try_from(value).map_err(misfit)?),
        ColumnType::Int16 => column.push_fixed(i16::try_from(value).map_err(misfit)?),
        ColumnType::Int32 => column.push_fixed(i32::try_from(value).map_err(misfit)?),
        ColumnType::Int64 => column.push_fixed(i64::try_from(value).map_err(misfit)?),
        ColumnType::UInt8 => column.push_fixed(u8::try_from(value).map_err(misfit)?),
        ColumnType::UInt16 => column.push_fixed(u16::try_from(value).map_err(misfit)?),
        ColumnType::UInt32 => column.push_fixed(u32::try_from(value).map_err(misfit)?),
        ColumnType::UInt64 => column.push_fixed(u64::try_from(value).map_err(misfit)?),
        ColumnType::Float32 if (value as f32) as i128 == value => {
            column.push_fixed(value as f32);
        }
        ColumnType::Float64 if (value as f64) as i128 == value => {
            column.push_fixed(value as f64);
        }
        ColumnType::Float32 | ColumnType::Float64 => {
            let found = format!("{}, which it cannot hold exactly", found());
            return Err(refusal(column_type, found, "convert it to float yourself"));
        }
        _ => return Err(refusal(column_type, found(), SAME_TYPE)),
    }
    Ok(())
}

/// `float32` takes the nearest value, as NumPy and Arrow do; what would become infinite is
/// refused.
fn push_float(
    column: &mut ColumnBuilder,
    column_type: &ColumnType,
    value: f64,
) -> Result<(), Refusal> {
    match column_type {
        ColumnType::Float64 => column.push_fixed(value),
        ColumnType::Float32 => {
            let nearest = value as f32;
            if nearest.is_infinite() && value.is_finite() {
                let found = format!("float {value:?}, which it cannot hold");
                return Err(refusal(column_type, found, IN_RANGE));
            }
            column.push_fixed(nearest);
        }
        _ => return Err(refusal(column_type, Cell::Float(value).to_text(), SAME_TYPE)),
    }
    Ok(())
}

/// The zone must be the column's own; other units take what they can hold exactly.
fn push_timestamp(
    column: &mut ColumnBuilder,
    column_type: &ColumnType,
    cell: Cell<'_>,
    micros: i64,
) -> Result<(), Refusal> {
    let (ColumnType::Timestamp(unit, expected_zone), Cell::Timestamp { zone, .. }) =
        (column_type, cell)
    else {
        return Err(refusal(column_type, cell.to_text(), SAME_TYPE));
    };
    if expected_zone.as_deref() != zone {
        let advice = "convert every sample to one time zone, or to none";
        return Err(refusal(column_type, cell.to_text(), advice));
    }
    let divided = |by: i64| (micros % by == 0).then_some(micros / by);
    let value = match unit {
        TimeUnit::Second => divided(1_000_000),
        TimeUnit::Millisecond => divided(1_000),
        TimeUnit::Microsecond => Some(micros),
        TimeUnit::Nanosecond => micros.checked_mul(1_000),
    };
    let value = value.ok_or_else(|| {
        let found = format!("{} of {micros} us, which it cannot hold exactly", cell.to_text());
        refusal(column_type, found, IN_RANGE)
    })?;
    column.push_fixed(value);
    Ok(())
}

#[cfg(test)]
mod tests {
    use arrow_array::Array;
    use arrow_array::cast::AsArray;
    use arrow_array::types::{Float32Type, TimestampNanosecondType, UInt64Type};

    use super::*;

    fn push(column_type: ColumnType, cell: Cell<'_>) -> Result<ColumnBuilder, Refusal> {
        let mut column = ColumnBuilder::new(Some(column_type));
        push_cell(&mut column, cell).map(|_| column)
    }

    #[test]
    fn integers_go_where_they_fit_and_nowhere_else() {
        for (column_type, low, high) in [
            (ColumnType::Int8, -128, 127),
            (ColumnType::Int16, -32_768, 32_767),
            (ColumnType::Int32, i64::from(i32::MIN), i64::from(i32::MAX)),
            (ColumnType::UInt8, 0, 255),
            (ColumnType::UInt16, 0, 65_535),
            (ColumnType::UInt32, 0, i64::from(u32::MAX)),
            (ColumnType::Float32, -(1 << 24), 1 << 24),
            (ColumnType::Float64, -(1 << 53), 1 << 53),
        ] {
            for (value, is_taken) in
                [(low - 1, false), (low, true), (high, true), (high + 1, false)]
            {
                let taken = push(column_type.clone(), Cell::Int(value)).is_ok();
                assert_eq!(taken, is_taken, "{value} into {column_type:?}");
            }
        }
        let mut large = push(ColumnType::UInt64, Cell::UInt(u64::MAX)).unwrap();
        assert_eq!(large.take().unwrap().as_primitive::<UInt64Type>().value(0), u64::MAX);
        assert!(push(ColumnType::Int64, Cell::UInt(1 << 63)).is_err());
        assert!(push(ColumnType::Float64, Cell::Int(i64::MAX)).is_err());
        assert!(push(ColumnType::Float64, Cell::Int(i64::MIN)).is_ok());
    }

    #[test]
    fn no_kind_of_value_passes_for_another() {
        let stamp = Cell::Timestamp { micros: 0, zone: None };
        let utc = Cell::Timestamp { micros: 0, zone: Some("UTC") };
        let cells = [
            Cell::Bool(true),
            Cell::Int(1),
            Cell::Float(1.0),
            Cell::Str("1"),
            Cell::Date(1),
            stamp,
            utc,
        ];
        for (i, cell) in cells.iter().enumerate() {
            let column_type = cell.inferred_type().unwrap();
            for (k, other) in cells.iter().enumerate() {
                let is_int_into_float = i == 2 && k == 1;
                let taken = push(column_type.clone(), *other).is_ok();
                assert_eq!(taken, i == k || is_int_into_float, "{other:?} into {cell:?}");
            }
        }
        assert!(push(ColumnType::Null, Cell::Int(1)).is_err());
        assert!(push(ColumnType::Null, Cell::Null).is_ok());
    }

    #[test]
    fn units_are_converted_exactly_or_not_at_all() {
        let at = |micros| Cell::Timestamp { micros, zone: None };
        let unit = |unit| ColumnType::Timestamp(unit, None);
        assert!(push(unit(TimeUnit::Second), at(-2_000_000)).is_ok());
        assert!(push(unit(TimeUnit::Second), at(1)).is_err());
        assert!(push(unit(TimeUnit::Millisecond), at(1_500)).is_err());
        assert!(push(unit(TimeUnit::Nanosecond), at(i64::MAX)).is_err());
        let mut nanos = push(unit(TimeUnit::Nanosecond), at(-3)).unwrap();
        let array = nanos.take().unwrap();
        assert_eq!(array.as_primitive::<TimestampNanosecondType>().value(0), -3_000);
    }

    #[test]
    fn float32_takes_the_nearest_but_never_invents_infinity() {
        let mut column = push(ColumnType::Float32, Cell::Float(0.1)).unwrap();
        assert!(push_cell(&mut column, Cell::Float(f64::INFINITY)).is_ok());
        assert!(push_cell(&mut column, Cell::Float(f64::NAN)).is_ok());
        assert!(push_cell(&mut column, Cell::Float(1e300)).is_err());
        let array = column.take().unwrap();
        assert_eq!(array.as_primitive::<Float32Type>().value(0), 0.1_f32);
        assert_eq!(array.len(), 3);
    }

    #[test]
    fn the_first_value_fixes_the_type() {
        let mut column = ColumnBuilder::new(None);
        push_cell(&mut column, Cell::Null).unwrap();
        push_cell(&mut column, Cell::Int(1)).unwrap();
        let refusal = push_cell(&mut column, Cell::Float(2.0)).unwrap_err();
        assert_eq!((refusal.expected.as_str(), refusal.found.as_str()), ("int64", "float 2.0"));
    }
}
