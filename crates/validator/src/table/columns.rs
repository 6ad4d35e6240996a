//! Which column of the user's table plays which part. Looks at names and types, never at values.

use std::collections::HashMap;

use arrow_schema::{DataType, Field, Schema};
use dataset_rt_storage::format::schema::{StoredSchema, check_zone};
use dataset_rt_storage::{Error, Result};

use super::stored::Conversion;

/// Positions of the columns in the user's table, and what becomes of each.
pub(super) struct Columns {
    pub(super) cache_id: usize,
    pub(super) sample_id: usize,
    pub(super) weight: usize,
    /// Per stored column, in schema order.
    pub(super) stored: Vec<StoredPart>,
    /// Every other column, in the user's order.
    pub(super) extras: Vec<usize>,
}

/// One stored column as the user's table has it.
pub(super) struct StoredPart {
    pub(super) position: usize,
    pub(super) conversion: Conversion,
    pub(super) is_edited: bool,
}

impl Columns {
    /// Finds every column the table must have.
    ///
    /// # Errors
    /// `InvalidInput` for repeated, missing, reserved or wrongly typed columns, and for `edited`
    /// names that are no stored columns.
    pub(super) fn find(table: &Schema, stored: &StoredSchema, edited: &[String]) -> Result<Self> {
        let mut positions = HashMap::with_capacity(table.fields().len());
        for (position, field) in table.fields().iter().enumerate() {
            if positions.insert(field.name().as_str(), position).is_some() {
                return Err(Error::invalid(format!(
                    "column {:?} appears twice in the table; expected each name once; drop or \
                     rename one of the two",
                    field.name()
                )));
            }
        }
        if positions.contains_key("payload") {
            return Err(Error::invalid(
                "the table has a column \"payload\"; payloads are immutable and never travel in \
                 a metadata table; drop the column, or rename it if it is your own",
            ));
        }
        table.fields().iter().try_for_each(|field| check_shown(field))?;
        check_edited(stored, edited)?;
        check_missing(&positions, stored)?;
        let at = |name: &str| positions.get(name).copied().ok_or_else(|| lost(name));
        let parts = stored.columns().iter().map(|column| {
            let position = at(&column.name)?;
            Ok(StoredPart {
                position,
                conversion: Conversion::find(column, table.field(position).data_type())?,
                is_edited: edited.contains(&column.name),
            })
        });
        Ok(Self {
            cache_id: at("cache_id")?,
            sample_id: at("sample_id")?,
            weight: at("weight")?,
            stored: parts.collect::<Result<_>>()?,
            extras: extras(table, stored),
        })
    }

    /// Schema of the checked table. User metadata of the table as a whole is dropped: it
    /// describes columns that may have moved.
    pub(super) fn output_schema(&self, table: &Schema, stored: &StoredSchema) -> Schema {
        let mut fields = identity_fields();
        fields.extend(stored.columns().iter().zip(&self.stored).map(|(column, part)| {
            let found = table.field(part.position).data_type();
            Field::new(&column.name, part.conversion.output(column, found), column.nullable)
        }));
        fields.push(weight_field());
        fields.extend(self.extras.iter().map(|&position| table.field(position).clone()));
        Schema::new(fields)
    }
}

/// The identity columns that open every table.
pub(super) fn identity_fields() -> Vec<Field> {
    ["cache_id", "sample_id"].map(|name| Field::new(name, DataType::UInt64, false)).to_vec()
}

/// The weight column that follows the stored ones.
pub(super) fn weight_field() -> Field {
    Field::new("weight", DataType::Float64, false)
}

/// Refuses types that Polars cannot show: a table that went in must come out again.
fn check_shown(field: &Field) -> Result<()> {
    if field.name().contains('\0') {
        return Err(Error::invalid(format!(
            "column {:?} has a NUL in its name, which Arrow cannot carry; rename it",
            field.name()
        )));
    }
    if field.name().is_empty() {
        return Err(Error::invalid("a column has an empty name; give it a name, or drop it"));
    }
    if let Some(found) = without_width(field.data_type()) {
        return Err(Error::unsupported(format!(
            "column {:?} has type {}, and rows of {found} cannot be picked, since Arrow counts them \
             by their bytes; cast the column to binary or a list, or drop it",
            field.name(),
            field.data_type()
        )));
    }
    match unshown(field.data_type()) {
        None => Ok(()),
        Some(found) => Err(Error::unsupported(format!(
            "column {:?} has type {}, and Polars has nothing for {found}; cast the column to \
             another type, or drop it",
            field.name(),
            field.data_type()
        ))),
    }
}

/// The part of a type that Polars has no form for. Nesting is bounded: Arrow's own import refuses
/// schemas deeper than 64 levels.
fn unshown(data_type: &DataType) -> Option<&DataType> {
    use DataType as D;
    match data_type {
        // Polars shows narrow decimals, and ends the process when it exports them again.
        D::Decimal32(..) | D::Decimal64(..) => Some(data_type),
        D::Union(..)
        | D::Interval(_)
        | D::Decimal256(..)
        | D::RunEndEncoded(..)
        | D::ListView(_)
        | D::LargeListView(_) => Some(data_type),
        D::List(item) | D::LargeList(item) | D::FixedSizeList(item, _) | D::Map(item, _) => {
            unshown(item.data_type())
        }
        D::Timestamp(_, Some(zone)) if check_zone(zone).is_err() => Some(data_type),
        D::Struct(fields) => fields.iter().find_map(|field| unshown(field.data_type())),
        D::Dictionary(_, values) => unshown(values),
        _ => None,
    }
}

/// The part of a type whose values take no room: kernels that gather rows give none of them.
/// Dictionaries gather codes.
fn without_width(data_type: &DataType) -> Option<&DataType> {
    use DataType as D;
    match data_type {
        D::FixedSizeBinary(0) | D::FixedSizeList(_, 0) => Some(data_type),
        D::List(item) | D::LargeList(item) | D::FixedSizeList(item, _) | D::Map(item, _) => {
            without_width(item.data_type())
        }
        D::Struct(fields) => fields.iter().find_map(|field| without_width(field.data_type())),
        _ => None,
    }
}

fn lost(name: &str) -> Error {
    Error::internal(format!("column {name:?} was lost between two checks"))
}

fn extras(table: &Schema, stored: &StoredSchema) -> Vec<usize> {
    let known: HashMap<&str, ()> = ["cache_id", "sample_id", "weight"]
        .into_iter()
        .chain(stored.columns().iter().map(|column| column.name.as_str()))
        .map(|name| (name, ()))
        .collect();
    let fields = table.fields().iter().enumerate();
    fields.filter(|(_, f)| !known.contains_key(f.name().as_str())).map(|(i, _)| i).collect()
}

fn check_edited(stored: &StoredSchema, edited: &[String]) -> Result<()> {
    for name in edited {
        if stored.position(name).is_some() {
            continue;
        }
        let advice = match name.as_str() {
            "cache_id" | "sample_id" => "identity cannot be edited: it names the sample",
            "weight" => "weights may always change: leave the name out",
            _ => "extra columns may always change: leave the name out",
        };
        return Err(Error::invalid(format!(
            "edited names {name:?}, which is no stored column; expected one of {}; {advice}",
            listed(stored.columns().iter().map(|column| column.name.as_str()))
        )));
    }
    Ok(())
}

fn check_missing(positions: &HashMap<&str, usize>, stored: &StoredSchema) -> Result<()> {
    let required = ["cache_id", "sample_id"]
        .into_iter()
        .chain(stored.columns().iter().map(|column| column.name.as_str()))
        .chain(["weight"]);
    let missing: Vec<&str> = required.filter(|name| !positions.contains_key(name)).collect();
    if missing.is_empty() {
        return Ok(());
    }
    Err(Error::invalid(format!(
        "the table lacks {}; expected identity, weight and every stored column, in any order; \
         start from get_metadata() and keep these columns",
        listed(missing.into_iter())
    )))
}

/// Quoted names, cut after the first ten.
fn listed<'a>(names: impl Iterator<Item = &'a str>) -> String {
    let mut names: Vec<String> = names.map(|name| format!("{name:?}")).collect();
    if names.is_empty() {
        return "none (nothing but identity is stored)".to_owned();
    }
    let more = names.len().saturating_sub(10);
    names.truncate(10);
    let rest = if more == 0 { String::new() } else { format!(" and {more} more") };
    format!("{}{rest}", names.join(", "))
}
