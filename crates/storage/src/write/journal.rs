//! The finished shards of an unfinished write, so that the next run need not write them again.
//! Decides nothing about rows.
//!
//! ```text
//! .<name>.partial/shards/000000.arrow     durable before its record is
//! .<name>.partial/journal/head.json       what the shards were written with
//! .<name>.partial/journal/dictionary.bin  the compression dictionary, where there is one
//! .<name>.partial/journal/000000.json     one record a finished shard
//! ```
//! Every record ends with the BLAKE3 of its text, so a torn one counts as not written.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::format::codec::Compression;
use crate::format::digest::to_hex;
use crate::format::limits::{DICTIONARY_BYTES_MAX, FORMAT_VERSION, MANIFEST_BYTES_MAX};
use crate::format::manifest::{ColumnEntry, DICTIONARY_FILE, SHARDS_DIR, ShardEntry, shard_path};
use crate::format::schema::StoredSchema;
use crate::store::{EntryKind, Store, read_file};
use crate::{Error, Kind, Result};

const JOURNAL_DIR: &str = "journal";
const HEAD_FILE: &str = "head.json";

/// What the finished shards were written with. Shards written with anything else would not be
/// those of an uninterrupted write.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct JournalHead {
    /// Release of this library: compressors change between releases.
    release: String,
    format_version: u64,
    max_shard_bytes: u64,
    compression: Compression,
    columns: Vec<ColumnEntry>,
    dictionary_blake3: Option<String>,
    /// The source's version of its preprocessing; `None` when only comparing can tell.
    pub(super) fingerprint: Option<String>,
}

impl JournalHead {
    pub(super) fn new(
        schema: &StoredSchema,
        max_shard_bytes: u64,
        compression: Compression,
        dictionary: Option<&[u8]>,
        fingerprint: Option<String>,
    ) -> Self {
        Self {
            release: env!("CARGO_PKG_VERSION").to_owned(),
            format_version: FORMAT_VERSION,
            max_shard_bytes,
            compression,
            columns: ColumnEntry::of(schema),
            dictionary_blake3: dictionary.map(|bytes| to_hex(blake3::hash(bytes).as_bytes())),
            fingerprint,
        }
    }

    /// What keeps shards of `self` from being those of `other`.
    pub(super) fn difference(&self, other: &Self) -> Option<&'static str> {
        let is_different = [
            (self.release != other.release, "another release of dataset_rt"),
            (self.format_version != other.format_version, "another format version"),
            (self.max_shard_bytes != other.max_shard_bytes, "another max_shard_bytes"),
            (self.compression != other.compression, "another shard_compression"),
            (self.columns != other.columns, "other metadata columns"),
            (self.dictionary_blake3 != other.dictionary_blake3, "another dictionary"),
        ];
        is_different.into_iter().find_map(|(differs, what)| differs.then_some(what))
    }

    /// The stored columns.
    pub(super) fn schema(&self) -> Result<StoredSchema> {
        ColumnEntry::to_schema(&self.columns)
    }
}

/// What an interrupted write left.
#[derive(Clone, Debug)]
pub(super) struct Found {
    pub(super) head: JournalHead,
    pub(super) dictionary: Option<Vec<u8>>,
    pub(super) shards: Vec<ShardEntry>,
}

impl Found {
    /// Samples in the finished shards.
    pub(super) fn rows(&self) -> u64 {
        self.shards.iter().fold(0, |rows, shard| rows.saturating_add(shard.rows))
    }
}

/// Reads what is below the unpublished directory `partial`. Damaged or torn records end the list.
///
/// # Errors
/// As the file system fails: what cannot be read now is not lost.
pub(super) fn find(store: &dyn Store, partial: &Path) -> Result<Option<Found>> {
    let journal = partial.join(JOURNAL_DIR);
    // Nothing is read, and later removed, through links.
    for directory in [&journal, &partial.join(SHARDS_DIR)] {
        if store.kind(directory)? != Some(EntryKind::Directory) {
            return Ok(None);
        }
    }
    let Some(head) = read_record::<JournalHead>(&journal.join(HEAD_FILE))? else { return Ok(None) };
    let dictionary = match &head.dictionary_blake3 {
        None => None,
        Some(expected) => {
            let bytes = if_whole(read_file(&journal.join(DICTIONARY_FILE), DICTIONARY_BYTES_MAX))?;
            let is_right = |bytes: &Vec<u8>| to_hex(blake3::hash(bytes).as_bytes()) == *expected;
            let Some(bytes) = bytes.filter(is_right) else { return Ok(None) };
            Some(bytes)
        }
    };
    if head.schema().is_err() {
        return Ok(None);
    }
    let mut shards = Vec::new();
    while let Some(shard) = read_record::<ShardEntry>(&record_path(partial, shards.len()))? {
        let place = partial.join(shard_path(shards.len()));
        let is_there =
            store.kind(&place)? == Some(EntryKind::File { size_bytes: shard.size_bytes });
        if !is_there || shard.path != shard_path(shards.len()) || shard.rows == 0 {
            break;
        }
        shards.push(shard);
    }
    Ok((!shards.is_empty()).then_some(Found { head, dictionary, shards }))
}

/// Removes everything below `partial` but the first `shards` finished shards and their records.
pub(super) fn clear(store: &dyn Store, partial: &Path, shards: usize) -> Result<()> {
    let names = store.list_dir(partial)?;
    if names.is_empty() {
        return Ok(());
    }
    for name in names {
        let is_kept = [JOURNAL_DIR, SHARDS_DIR].iter().any(|kept| name == Path::new(kept));
        if shards == 0 || !is_kept {
            store.remove_tree(&partial.join(name))?;
        }
    }
    if shards == 0 { store.sync_dir(partial) } else { truncate(store, partial, shards) }
}

/// Forgets the shards from number `shards` on, durably before anything takes their place.
fn truncate(store: &dyn Store, partial: &Path, shards: usize) -> Result<()> {
    let journal = partial.join(JOURNAL_DIR);
    if shards == 0 {
        store.remove_tree(&journal)?;
        store.sync_dir(partial)?;
    } else {
        for name in store.list_dir(&journal)? {
            let is_head = [HEAD_FILE, DICTIONARY_FILE].iter().any(|kept| name == Path::new(kept));
            let number = number_of(&name, |number| record_path(partial, number));
            if !is_head && number.is_none_or(|number| number >= shards) {
                store.remove_tree(&journal.join(name))?;
            }
        }
        store.sync_dir(&journal)?;
    }
    let directory = partial.join(SHARDS_DIR);
    for name in store.list_dir(&directory)? {
        let number = number_of(&name, |number| PathBuf::from(shard_path(number)));
        if number.is_none_or(|number| number >= shards) {
            store.remove_tree(&directory.join(name))?;
        }
    }
    Ok(())
}

/// The shard that the file `name` belongs to, if it has just the name that `path` gives it.
fn number_of(name: &Path, path: impl Fn(usize) -> PathBuf) -> Option<usize> {
    let number = name.file_stem()?.to_str()?.parse().ok()?;
    (path(number).file_name() == Some(name.as_os_str())).then_some(number)
}

fn record_path(partial: &Path, shard: usize) -> PathBuf {
    partial.join(JOURNAL_DIR).join(format!("{shard:06}.json"))
}

/// The text of a record, if the digest behind it is right.
fn read_record<T: DeserializeOwned>(path: &Path) -> Result<Option<T>> {
    let bytes = if_whole(read_file(path, MANIFEST_BYTES_MAX))?;
    Ok(bytes.and_then(|bytes| {
        let text = std::str::from_utf8(&bytes).ok()?.strip_suffix('\n')?;
        let (record, digest) = text.rsplit_once('\n')?;
        let is_whole = to_hex(blake3::hash(record.as_bytes()).as_bytes()) == digest;
        is_whole.then(|| serde_json::from_str(record).ok()).flatten()
    }))
}

/// What is missing or damaged counts as not written; other failures may pass.
fn if_whole<T>(read: Result<T>) -> Result<Option<T>> {
    match read {
        Err(error) if matches!(error.kind(), Kind::NotFound | Kind::Corrupt) => Ok(None),
        outcome => outcome.map(Some),
    }
}

/// Keeps the journal of the write under way.
pub(super) struct Journal {
    store: Arc<dyn Store>,
    partial: PathBuf,
    head: JournalHead,
    dictionary: Option<Vec<u8>>,
    /// Records on disk.
    len: usize,
}

impl Journal {
    /// Goes on after the first `len` records, which were written with an equal head.
    pub(super) fn new(
        store: Arc<dyn Store>,
        partial: PathBuf,
        head: JournalHead,
        dictionary: Option<Vec<u8>>,
        len: usize,
    ) -> Self {
        Self { store, partial, head, dictionary, len }
    }

    /// Shards that the next run would find.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Records the next finished shard, whose file is durable.
    pub(super) fn append(&mut self, shard: &ShardEntry) -> Result<()> {
        self.store.sync_dir(&self.partial.join(SHARDS_DIR))?;
        let journal = self.partial.join(JOURNAL_DIR);
        if self.len == 0 {
            self.begin(&journal)?;
        }
        self.write_record(&record_path(&self.partial, self.len), shard)?;
        self.store.sync_dir(&journal)?;
        self.len += 1;
        Ok(())
    }

    fn begin(&self, journal: &Path) -> Result<()> {
        self.store.remove_tree(journal)?;
        self.store.create_dir(journal)?;
        if let Some(dictionary) = &self.dictionary {
            self.write_file(&journal.join(DICTIONARY_FILE), dictionary)?;
        }
        self.write_record(&journal.join(HEAD_FILE), &self.head)?;
        self.store.sync_dir(&self.partial)
    }

    /// Notes that the records on disk are those of another version of the preprocessing: until
    /// their rows are proven equal, nobody may go on behind them without comparing.
    pub(super) fn distrust(&mut self) -> Result<()> {
        let journal = self.partial.join(JOURNAL_DIR);
        let path = journal.join(HEAD_FILE);
        self.store.remove_tree(&path)?;
        self.write_record(&path, &JournalHead { fingerprint: None, ..self.head.clone() })?;
        self.store.sync_dir(&journal)
    }

    /// Forgets the shards from number `shards` on and removes them.
    pub(super) fn truncate(&mut self, shards: usize) -> Result<()> {
        self.len = self.len.min(shards);
        truncate(self.store.as_ref(), &self.partial, shards)
    }

    /// Ends the journal: the shards belong to a complete cache now.
    pub(super) fn remove(&mut self) -> Result<()> {
        self.len = 0;
        self.store.remove_tree(&self.partial.join(JOURNAL_DIR))
    }

    fn write_record<T: Serialize>(&self, path: &Path, record: &T) -> Result<()> {
        let mut text = serde_json::to_string(record)
            .map_err(|e| Error::internal(format!("cannot serialise a journal record: {e}")))?;
        let digest = to_hex(blake3::hash(text.as_bytes()).as_bytes());
        text = format!("{text}\n{digest}\n");
        self.write_file(path, text.as_bytes())
    }

    fn write_file(&self, path: &Path, bytes: &[u8]) -> Result<()> {
        let mut file = self.store.create_file(path)?;
        file.write_all(bytes)?;
        file.sync()?;
        file.close()
    }
}
