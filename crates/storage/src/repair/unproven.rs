//! A cache whose manifest is lost: what its shards say of themselves, as a manifest that nobody
//! vouches for. Reads no value but the first `sample_id` of each shard.

use std::collections::BTreeMap;
use std::path::Path;

use arrow_schema::{Schema, SchemaRef};

use super::cells::{Cells, Column, Value};
use super::proven::ProvenFile;
use super::region::Attend;
use super::structure::{Structure, footer};
use crate::format::codec::{Algo, Compression, Scope};
use crate::format::digest::from_hex;
use crate::format::index::{INDEX_HEADER_BYTES, INDEX_MAGIC, INDEX_RECORD_BYTES};
use crate::format::limits::{BLOCK_BYTES, FORMAT_VERSION};
use crate::format::manifest::{
    ColumnEntry, DICTIONARY_FILE, DIGESTS_FILE, FileEntry, INDEX_FILE, METADATA_FILE, Manifest,
    SHARDS_DIR, ShardEntry, shard_path,
};
use crate::format::schema::{ColumnType, StoredSchema};
use crate::store::{EntryKind, LocalStore, Store};
use crate::{Error, Kind, Result};

/// Shards that may be missing for each one that is there, and in any case.
const MISSING_MAX: usize = 1000;
/// Where a shard names the dictionary of its payloads.
const DICTIONARY_MARK: &str = "dataset_rt.dictionary_blake3";
/// No digest: nothing hashes to it.
const NO_DIGEST: &str = "0000000000000000000000000000000000000000000000000000000000000000";

/// One shard that is there.
struct Found {
    number: usize,
    size_bytes: u64,
    /// Its first `sample_id`, and its rows, as far as they can be told.
    first: Option<u64>,
    rows: Option<u64>,
}

/// The manifest that the shards at `directory` might have had.
///
/// # Errors
/// `Corrupt` where no shard tells its columns, or where shards contradict one another.
pub(super) fn manifest(directory: &Path, attend: Attend<'_>) -> Result<Manifest> {
    let numbers = shard_numbers(directory)?;
    let Some((schema, stored, compression)) = first_schema(directory, &numbers, attend)? else {
        return Err(Error::corrupt(format!(
            "the manifest of {} is lost, and none of its shards has an Arrow footer that tells \
             its columns; restore a shard or the manifest from a copy",
            directory.display()
        )));
    };
    let mut found = Vec::with_capacity(numbers.len());
    for number in numbers {
        attend()?;
        found.push(look_at(directory, number, &schema, attend)?);
    }
    let shards = placed(&found, index_rows(directory)?, directory)?;
    let samples_total = shards.iter().map(|shard| shard.rows).fold(0, u64::saturating_add);
    let dictionary = schema.metadata.get(DICTIONARY_MARK).map(|blake3| {
        let (path, blake3) = (DICTIONARY_FILE.to_owned(), blake3.clone());
        size_of(directory, DICTIONARY_FILE).map(|size_bytes| FileEntry { path, size_bytes, blake3 })
    });
    let entry = |path: &str| {
        size_of(directory, path).map(|size_bytes| FileEntry {
            path: path.to_owned(),
            size_bytes,
            blake3: NO_DIGEST.to_owned(),
        })
    };
    Ok(Manifest {
        format: "dataset_rt".to_owned(),
        format_version: FORMAT_VERSION,
        cache_id: 0,
        content_blake3: String::new(),
        source_name: String::new(),
        fingerprint: None,
        samples_total,
        payload_bytes_total: 0,
        columns: ColumnEntry::of(&stored),
        compression,
        block_bytes: BLOCK_BYTES,
        shards,
        metadata: entry(METADATA_FILE)?,
        index: entry(INDEX_FILE)?,
        dictionary: dictionary.transpose()?,
        digests: entry(DIGESTS_FILE)?,
        provenance: BTreeMap::new(),
        manifest_blake3: String::new(),
    })
}

/// Numbers of the shard files, ascending.
fn shard_numbers(directory: &Path) -> Result<Vec<usize>> {
    let shards = directory.join(SHARDS_DIR);
    if LocalStore.kind(&shards)? != Some(EntryKind::Directory) {
        return Err(Error::corrupt(format!(
            "{} is no directory: nothing is left of the cache; restore it from a copy",
            shards.display()
        )));
    }
    let number = |name: &Path| {
        let number = name.to_str()?.strip_suffix(".arrow")?.parse().ok()?;
        (Path::new(&shard_path(number)).file_name() == name.file_name()).then_some(number)
    };
    let mut numbers: Vec<usize> =
        LocalStore.list_dir(&shards)?.iter().filter_map(|name| number(name)).collect();
    numbers.sort_unstable();
    let most = numbers.len().saturating_mul(2).saturating_add(MISSING_MAX);
    match numbers.last() {
        Some(last) if *last > most => Err(Error::corrupt(format!(
            "{} has {} shards numbered up to {last}; expected numbers up to {most}; move away what \
             is no shard of this cache",
            shards.display(),
            numbers.len()
        ))),
        _ => Ok(numbers),
    }
}

type Columns = (SchemaRef, StoredSchema, Compression);

/// Columns and compression of the first shard that tells them.
fn first_schema(
    directory: &Path,
    numbers: &[usize],
    attend: Attend<'_>,
) -> Result<Option<Columns>> {
    for number in numbers {
        attend()?;
        let mut file = ProvenFile::unproven(directory, &shard_path(*number), None)?;
        if let Ok(layout) = footer(&mut file, attend)?
            && let Some((stored, compression)) = parse(&layout.schema)
        {
            return Ok(Some((SchemaRef::new(layout.schema), stored, compression)));
        }
    }
    Ok(None)
}

/// What the schema of a shard says.
fn parse(schema: &Schema) -> Option<(StoredSchema, Compression)> {
    let mark = |name: &str| schema.metadata.get(name).map(String::as_str);
    // The one number of the shards that is taken for a digest.
    if mark(DICTIONARY_MARK).is_some_and(|blake3| from_hex(blake3).is_none()) {
        return None;
    }
    let version = mark("dataset_rt.format_version")?;
    if version != FORMAT_VERSION.to_string() || mark("dataset_rt.kind")? != "shard" {
        return None;
    }
    let algo = [Algo::None, Algo::Lz4, Algo::Zstd]
        .into_iter()
        .find(|algo| Some(algo.as_str()) == mark("dataset_rt.codec"))?;
    let scope = [Scope::Payload, Scope::Buffer]
        .into_iter()
        .find(|scope| Some(scope.as_str()) == mark("dataset_rt.codec_scope"))?;
    let compression = Compression { algo, scope, level: None, dictionary_bytes: 0 };
    let [_, columns @ .., _] = schema.fields().as_ref() else { return None };
    let columns: Vec<_> = columns.iter().map(|field| field.as_ref().clone()).collect();
    let stored = StoredSchema::from_arrow(&Schema::new(columns)).ok()?;
    let marks = schema.metadata.iter().map(|(key, value)| (key.clone(), value.clone()));
    let expected = stored.shard_schema(&marks.collect::<Vec<_>>());
    (*expected == *schema && compression.validate().is_ok()).then_some((stored, compression))
}

/// What shard `number` says of its rows.
fn look_at(
    directory: &Path,
    number: usize,
    schema: &SchemaRef,
    attend: Attend<'_>,
) -> Result<Found> {
    let mut file = ProvenFile::unproven(directory, &shard_path(number), None)?;
    let size_bytes = file.size_bytes();
    let mut found = Found { number, size_bytes, first: None, rows: None };
    let mut batches = Structure::read(&mut file, schema, u64::MAX, attend)?;
    found.rows = batches.rows_listed();
    let Ok(header) = batches.header(&mut file, 0, attend)? else { return Ok(found) };
    let (header, wanted) = (header.clone(), 0..1.min(header.rows));
    let ids = Column {
        column_type: &ColumnType::UInt64,
        nullable: false,
        nulls: 0,
        buffers: header.column_buffers(schema, 0),
        values_max: 0,
    };
    let cells = Cells::load(&mut file, batches.whole(0), &header, &ids, wanted, attend)?;
    if let Ok(Value::Bytes(bytes)) = cells.value(0) {
        found.first = bytes.first_chunk().map(|bytes| u64::from_le_bytes(*bytes));
    }
    Ok(found)
}

/// Every shard with its rows; rows that no shard has belong to shards that are missing, or whose
/// end is.
fn placed(found: &[Found], total: Option<u64>, directory: &Path) -> Result<Vec<ShardEntry>> {
    let mut shards: Vec<ShardEntry> = Vec::new();
    let mut next = 0_u64;
    let mut is_open = false;
    for shard in found {
        let is_behind_gap = shard.number > shards.len();
        while shards.len() < shard.number {
            shards.push(entry(shards.len(), 0, 0));
        }
        let first = shard.first.unwrap_or(next);
        let gap = first.checked_sub(next).filter(|gap| *gap == 0 || is_behind_gap || is_open);
        let Some(gap) = gap else {
            return Err(Error::corrupt(format!(
                "{} of {} begins with sample {first}; expected {next}; put the shards in order, or \
                 restore the manifest from a copy",
                shard_path(shard.number),
                directory.display()
            )));
        };
        if let (Some(last), true) = (shards.last_mut(), gap > 0) {
            last.rows = last.rows.saturating_add(gap);
        }
        let rows = shard.rows.unwrap_or(0);
        shards.push(entry(shard.number, shard.size_bytes, rows));
        next = first.saturating_add(rows);
        is_open = shard.rows.is_none();
    }
    let gap = total.and_then(|total| total.checked_sub(next)).unwrap_or(0);
    match shards.last_mut() {
        Some(last) if is_open => last.rows = last.rows.saturating_add(gap),
        _ if gap > 0 => shards.push(entry(shards.len(), 0, gap)),
        _ => {}
    }
    Ok(shards)
}

fn entry(number: usize, size_bytes: u64, rows: u64) -> ShardEntry {
    ShardEntry { path: shard_path(number), size_bytes, blake3: NO_DIGEST.to_owned(), rows }
}

/// Rows that an index of this size has, if it begins like one.
fn index_rows(directory: &Path) -> Result<Option<u64>> {
    let mut file = ProvenFile::unproven(directory, INDEX_FILE, None)?;
    let size = file.size_bytes();
    let magic = file.read(0..(INDEX_MAGIC.len() as u64).min(size), &mut || Ok(()))?;
    let is_index = magic.is_ok_and(|magic| magic == INDEX_MAGIC);
    Ok(size.checked_sub(INDEX_HEADER_BYTES).filter(|_| is_index).map(|b| b / INDEX_RECORD_BYTES))
}

/// Bytes of a file; none where there is none.
fn size_of(directory: &Path, name: &str) -> Result<u64> {
    match LocalStore.kind(&directory.join(name)) {
        Ok(Some(EntryKind::File { size_bytes })) => Ok(size_bytes),
        Ok(_) => Ok(0),
        Err(error) if error.kind() == Kind::NotFound => Ok(0),
        Err(error) => Err(error),
    }
}
