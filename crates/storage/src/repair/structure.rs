//! Where the record batches of an Arrow file lie, as far as damage leaves that known: by the
//! footer, else by walking over the messages from the start. Looks at no value.

use arrow_schema::SchemaRef;

use super::cells::Whole;
use super::proven::ProvenFile;
use super::region::{Attend, Found, Loss};
use crate::format::ipc::{
    BatchLayout, BatchPlace, FOOTER_TAIL_BYTES, FileLayout, HEAD_BYTES_MIN, decode_batch_header,
    decode_body_len, decode_footer, footer_range, message_len,
};
use crate::{Error, Kind, Result};

/// The batches of one file: 40 bytes for each.
pub(super) struct Structure {
    schema: SchemaRef,
    places: Vec<BatchPlace>,
    /// First row of each batch and the row behind it, as far as damage does not hide them: of
    /// those from the start on, each behind the other,
    front: Vec<(u64, u64)>,
    /// and of those up to the end.
    back: Vec<(u64, u64)>,
    /// Rows of all batches, where the footer lists them and every header is there.
    rows_total: Option<u64>,
    /// Whether the footer lists them all.
    is_listed: bool,
    /// Why something is hidden.
    loss: Option<Loss>,
    /// The header decoded last.
    kept: Option<(usize, BatchLayout)>,
    whole: Whole,
}

impl Structure {
    /// Reads the footer and every batch header of `file`, which must have `rows` rows.
    pub(super) fn read(
        file: &mut ProvenFile,
        schema: &SchemaRef,
        rows: u64,
        attend: Attend<'_>,
    ) -> Result<Self> {
        let mut structure = Self {
            schema: SchemaRef::clone(schema),
            places: Vec::new(),
            front: Vec::new(),
            back: Vec::new(),
            rows_total: None,
            is_listed: false,
            loss: None,
            kept: None,
            whole: Whole::default(),
        };
        match footer(file, attend)? {
            Ok(layout) if layout.schema == **schema => {
                structure.places = layout.batches;
                structure.is_listed = true;
            }
            Ok(_) => structure.loss = Some(file.loss("its schema is not the one of the cache")),
            Err(loss) => {
                structure.loss = Some(loss);
                structure.places = walk(file, rows, attend)?;
            }
        }
        // Every batch of a writer has a row.
        structure.places.truncate(usize::try_from(rows).unwrap_or(usize::MAX));
        let mut counts = Vec::with_capacity(structure.places.len());
        for number in 0..structure.places.len() {
            attend()?;
            counts.push(match structure.header(file, number, attend)? {
                Ok(layout) => Some(layout.rows),
                Err(loss) => {
                    structure.loss.get_or_insert(loss);
                    None
                }
            });
        }
        structure.place_rows(&counts, rows, file);
        Ok(structure)
    }

    /// Counts rows from the start up to the first hidden batch, and from the end back to the last.
    fn place_rows(&mut self, counts: &[Option<u64>], rows: u64, file: &ProvenFile) {
        let mut start = 0_u64;
        for count in counts {
            let Some(end) = count.and_then(|count| start.checked_add(count)) else { break };
            if end > rows {
                break;
            }
            self.front.push((start, end));
            start = end;
        }
        if !self.is_listed {
            return;
        }
        let is_whole = self.front.len() == counts.len();
        self.rows_total = is_whole.then_some(start);
        if is_whole && start != rows && rows != u64::MAX {
            self.front.clear();
            self.loss = Some(file.loss(format!("its batches have {start} rows; expected {rows}")));
            return;
        }
        let mut end = rows;
        for count in counts.iter().skip(self.front.len()).rev() {
            let begin = count.and_then(|count| end.checked_sub(count));
            let Some(begin) = begin.filter(|begin| *begin >= start) else { break };
            self.back.push((begin, end));
            end = begin;
        }
        self.back.reverse();
    }

    /// Columns of the file.
    pub(super) fn schema(&self) -> SchemaRef {
        SchemaRef::clone(&self.schema)
    }

    /// Rows of all batches, where all are known.
    pub(super) fn rows_listed(&self) -> Option<u64> {
        self.rows_total
    }

    /// Number and rows of the batch that holds `row`.
    pub(super) fn batch_of(&self, row: u64) -> Option<(usize, (u64, u64))> {
        let holding = |rows: &[(u64, u64)]| {
            let number = rows.partition_point(|(_, end)| *end <= row);
            rows.get(number).filter(|(start, _)| *start <= row).map(|rows| (number, *rows))
        };
        holding(&self.front).or_else(|| {
            let (number, rows) = holding(&self.back)?;
            Some((self.places.len() - self.back.len() + number, rows))
        })
    }

    /// The next row behind `row` that a batch may hold; `None` where one holds `row` itself.
    pub(super) fn hidden_until(&self, row: u64) -> Option<u64> {
        if self.batch_of(row).is_some() {
            return None;
        }
        let next = self.back.first().map(|(start, _)| *start).filter(|start| *start > row);
        Some(next.unwrap_or(u64::MAX))
    }

    /// Buffers of batch `number` that were read as a whole.
    pub(super) fn whole(&mut self, number: usize) -> &mut Whole {
        self.whole.of(number)
    }

    /// Why a row has no batch.
    pub(super) fn loss(&self, file: &ProvenFile) -> Loss {
        self.loss.clone().unwrap_or_else(|| file.loss("no record batch holds the row"))
    }

    /// The header of batch `number`.
    pub(super) fn header(
        &mut self,
        file: &mut ProvenFile,
        number: usize,
        attend: Attend<'_>,
    ) -> Result<Found<&BatchLayout>> {
        if self.kept.as_ref().is_none_or(|(kept, _)| *kept != number) {
            let Some(place) = self.places.get(number).copied() else {
                return Ok(Err(file.loss(format!("it has no record batch {number}"))));
            };
            let message = match file.read(place.message_range(), attend)? {
                Ok(message) => message,
                Err(loss) => return Ok(Err(loss)),
            };
            match decode_batch_header(&message, &place, &self.schema) {
                Ok(layout) => self.kept = Some((number, layout)),
                Err(error) => return crafted(file, error).map(Err),
            }
        }
        let kept = self.kept.as_ref().map(|(_, layout)| layout);
        kept.map(Ok).ok_or_else(|| Error::internal("a header just decoded is not there"))
    }
}

/// What bytes that are proven, or that nobody vouches for, are not: a loss, unless the cache is not
/// the cause.
pub(super) fn crafted(file: &ProvenFile, error: Error) -> Result<Loss> {
    match error.kind() {
        Kind::Exhausted | Kind::Internal => Err(error),
        _ => Ok(file.loss(error.message())),
    }
}

/// The footer of `file`.
pub(super) fn footer(file: &mut ProvenFile, attend: Attend<'_>) -> Result<Found<FileLayout>> {
    let size = file.size_bytes();
    let Some(tail_start) = size.checked_sub(FOOTER_TAIL_BYTES as u64) else {
        return Ok(Err(file.loss(format!("it has only {size} bytes"))));
    };
    let tail = match file.read(tail_start..size, attend)? {
        Ok(tail) => tail,
        Err(loss) => return Ok(Err(loss)),
    };
    let range = match footer_range(size, &tail) {
        Ok(range) => range,
        Err(error) => return crafted(file, error).map(Err),
    };
    match file.read(range, attend)? {
        Err(loss) => Ok(Err(loss)),
        Ok(footer) => match decode_footer(&footer, size) {
            Ok(layout) => Ok(Ok(layout)),
            Err(error) => crafted(file, error).map(Err),
        },
    }
}

/// Record batches from the start of `file` on, up to the first message that is damaged.
fn walk(file: &mut ProvenFile, rows: u64, attend: Attend<'_>) -> Result<Vec<BatchPlace>> {
    let mut places: Vec<BatchPlace> = Vec::new();
    let Ok(head) = file.read(0..HEAD_BYTES_MIN, attend)? else { return Ok(places) };
    let prefix = head.get(8..).and_then(message_len);
    let Some(mut offset) = prefix.and_then(|len| len.checked_add(8)) else { return Ok(places) };
    while (places.len() as u64) < rows {
        attend()?;
        let prefix_end = offset.saturating_add(8);
        let Ok(prefix) = file.read(offset..prefix_end, attend)? else { break };
        let Some(len) = message_len(&prefix).filter(|len| *len > 8) else { break };
        let Some(end) = offset.checked_add(len) else { break };
        let Ok(message) = file.read(offset..end, attend)? else { break };
        let (Ok(body_len), Ok(message_len)) = (decode_body_len(&message), u32::try_from(len))
        else {
            break;
        };
        let place = BatchPlace { offset, message_len, body_len };
        if end.checked_add(body_len).is_none_or(|end| end > file.size_bytes()) {
            break;
        }
        offset = place.end();
        places.push(place);
    }
    Ok(places)
}
