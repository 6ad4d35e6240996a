//! Which columns of a table go into a batch, and in what form. Reads nothing.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, RecordBatch, RecordBatchOptions};
use arrow_cast::cast;
use arrow_schema::{ArrowError, DataType, Field, FieldRef, Schema, SchemaRef};
use dataset_rt_storage::{Error, Result};

use crate::active::ActiveTable;

/// Columns of the batches of one table, in the order they are wanted.
#[derive(Clone, Debug)]
pub struct Projection {
    schema: SchemaRef,
    /// Positions in [`face_schema`].
    columns: Vec<usize>,
    /// Position of the payload there.
    payload: usize,
}

/// All columns of a batch: those of the table, and `payload` behind them.
pub fn face_schema(table: &ActiveTable) -> Schema {
    let mut fields: Vec<FieldRef> = table.frame_schema().fields().iter().cloned().collect();
    fields.push(Arc::new(Field::new("payload", DataType::BinaryView, false)));
    Schema::new(fields)
}

impl Projection {
    /// The columns called `names`, or all.
    ///
    /// # Errors
    /// `InvalidInput` for a name that no column has, or that comes twice.
    pub fn new(table: &ActiveTable, names: Option<&[String]>) -> Result<Self> {
        let all = face_schema(table);
        let payload = all.fields().len() - 1;
        let Some(names) = names else {
            return Ok(Self { columns: (0..=payload).collect(), schema: Arc::new(all), payload });
        };
        let had: Vec<String> = all.fields().iter().map(|field| field.name().clone()).collect();
        let mut columns = Vec::with_capacity(names.len());
        for name in names {
            let at = position_of(name, &had)?;
            if columns.contains(&at) {
                return Err(Error::invalid(format!(
                    "column {name:?} is asked for twice; expected each name once"
                )));
            }
            columns.push(at);
        }
        let fields: Vec<FieldRef> =
            columns.iter().map(|&at| Arc::clone(&all.fields()[at])).collect();
        Ok(Self { schema: Arc::new(Schema::new(fields)), columns, payload })
    }

    /// The columns of `wanted`, by name and in its order, text and bytes in its forms.
    ///
    /// # Errors
    /// As [`Projection::new`], and `InvalidInput` for any other difference of types.
    pub fn like(table: &ActiveTable, allowed: Option<&[String]>, wanted: &Schema) -> Result<Self> {
        let names: Vec<String> = wanted.fields().iter().map(|field| field.name().clone()).collect();
        if let Some(allowed) = allowed {
            check_names(&names, allowed)?;
        }
        let mut found = Self::new(table, Some(&names))?;
        let fields = found.schema.fields().iter().zip(wanted.fields());
        let fields: Vec<Field> =
            fields.map(|(ours, wanted)| in_form(ours, wanted)).collect::<Result<_>>()?;
        found.schema = Arc::new(Schema::new(fields));
        Ok(found)
    }

    /// Whether no column is in another form than the table has it.
    pub fn is_unchanged(&self, table: &ActiveTable) -> bool {
        let all = face_schema(table);
        let ours = self.columns.iter().map(|&at| all.field(at).data_type());
        ours.eq(self.schema.fields().iter().map(|field| field.data_type()))
    }

    /// The columns of a batch of the whole table, which has no payload.
    ///
    /// # Errors
    /// `Internal` when the payload is among the columns.
    pub fn of_frame(&self, batch: &RecordBatch) -> Result<RecordBatch> {
        let projected = batch.project(&self.columns).map_err(|e| unfit(&e))?;
        let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
        let columns = projected.columns().to_vec();
        RecordBatch::try_new_with_options(Arc::clone(&self.schema), columns, &options)
            .map_err(|e| unfit(&e))
    }

    /// Schema of the batches.
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// Positions of the columns in [`face_schema`], in the order of the schema.
    pub fn columns(&self) -> &[usize] {
        &self.columns
    }

    /// Position of the payload there.
    pub fn payload(&self) -> usize {
        self.payload
    }

    /// Whether payloads are among the columns.
    pub fn has_payload(&self) -> bool {
        self.columns.contains(&self.payload)
    }
}

/// Refuses names that are not among those `had`.
///
/// # Errors
/// `InvalidInput` for the first such name.
pub fn check_names(names: &[String], had: &[String]) -> Result<()> {
    names.iter().try_for_each(|name| position_of(name, had).map(drop))
}

fn position_of(name: &str, had: &[String]) -> Result<usize> {
    had.iter().position(|had| had == name).ok_or_else(|| {
        Error::invalid(format!("there is no column {name:?}; expected some of {had:?}"))
    })
}

/// `ours` as `wanted` has it, if that is another form of the same values.
fn in_form(ours: &Field, wanted: &Field) -> Result<Field> {
    use DataType::{Binary, BinaryView, LargeBinary, LargeUtf8, Utf8, Utf8View};
    let (had, wanted) = (ours.data_type(), wanted.data_type());
    let forms: &[DataType] = match had {
        Utf8 | LargeUtf8 | Utf8View => &[Utf8, LargeUtf8, Utf8View],
        Binary | LargeBinary | BinaryView => &[Binary, LargeBinary, BinaryView],
        other => std::slice::from_ref(other),
    };
    if forms.contains(wanted) {
        return Ok(ours.clone().with_data_type(wanted.clone()));
    }
    Err(Error::invalid(format!(
        "column {:?} was asked for as {wanted}; it can be had as one of {forms:?}; cast it afterwards",
        ours.name()
    )))
}

/// Brings a column into another form of its type.
///
/// # Errors
/// `InvalidInput` for more bytes than the form can count.
pub fn converted(name: &str, column: ArrayRef, wanted: &DataType) -> Result<ArrayRef> {
    if column.data_type() == wanted {
        return Ok(column);
    }
    if matches!(wanted, DataType::Binary | DataType::Utf8) {
        let bytes = value_bytes(&column);
        if bytes > i32::MAX as u64 {
            return Err(Error::invalid(format!(
                "the {bytes} bytes of column {name:?} in {} rows are too many for {wanted}, which \
                 counts to 2^31 - 1; ask for a large or view form",
                column.len()
            )));
        }
    }
    cast(&column, wanted).map_err(|e| unfit(&e))
}

/// Bytes of all values of a column of text or bytes.
fn value_bytes(column: &ArrayRef) -> u64 {
    match column.data_type() {
        DataType::Utf8View => column.as_string_view().lengths().map(u64::from).sum(),
        DataType::BinaryView => column.as_binary_view().lengths().map(u64::from).sum(),
        _ => column.to_data().buffers().last().map_or(0, |values| values.len() as u64),
    }
}

/// What Arrow says about columns of ours.
pub fn unfit(error: &ArrowError) -> Error {
    Error::internal(format!("cannot make a record batch: {error}"))
}
