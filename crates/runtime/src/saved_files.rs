//! A small JSON document and, beside it, the table it speaks of, saved so that a crash leaves the
//! old pair or the new one. Knows nothing of what the document says.
//!
//! ```text
//! directory/state.json                  names its table and the BLAKE3 of it
//! directory/state-table-<BLAKE3>.arrows  Arrow IPC stream
//! ```
//! The table is complete and durable under its own name before the document that names it takes
//! the place of the old one, in one rename. Tables that no document names are removed last.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use dataset_rt_storage::store::{EntryKind, IoMode, ReadFile, Store, StoreFile};
use dataset_rt_storage::{Error, Kind, Result};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::handover::write_table;

/// More is no document of ours.
const DOCUMENT_BYTES_MAX: u64 = 64 << 20;
/// Bytes between two looks for signals.
const PIECE_BYTES: usize = 8 << 20;
/// The table's place in a document.
const TABLE: &str = "table";

/// What a document says of its table.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct TableEntry {
    file: String,
    blake3: String,
    size_bytes: u64,
    rows: u64,
    edited: Vec<String>,
}

/// A table that a user handed in.
pub struct SavedTable<'a> {
    /// Of every batch.
    pub schema: &'a SchemaRef,
    /// Its rows.
    pub batches: &'a [RecordBatch],
    /// Stored columns whose values differ from those of the caches.
    pub edited: &'a [String],
}

/// A document and its table as they were read.
#[derive(Debug)]
pub struct LoadedFiles {
    /// The document, its entry about the table taken out.
    pub document: String,
    /// The table as an Arrow IPC stream, and its edited columns.
    pub table: Option<(Vec<u8>, Vec<String>)>,
}

/// Saves `document`, a JSON object, as `<stem>.json` in `directory`, which is made when it is
/// missing, with the table it speaks of, if any.
///
/// # Errors
/// `Unavailable` while another process saves there, else as the file system fails, or what
/// `attend` returned. What was saved before is there then as it was.
pub fn save_files(
    store: &dyn Store,
    directory: &Path,
    stem: &str,
    document: &str,
    table: Option<&SavedTable<'_>>,
    attend: &mut dyn FnMut() -> Result<()>,
) -> Result<()> {
    make_directories(store, directory)?;
    let Some(_lock) = store.lock_dir(directory)? else {
        let text = format!("another process is saving in {}; try again", directory.display());
        return Err(Error::new(Kind::Unavailable, text));
    };
    let files = Files { store, directory, stem };
    let mut document: Map<String, Value> = serde_json::from_str(document)
        .map_err(|e| Error::invalid(format!("a document that is no JSON object: {e}")))?;
    let before = store.list_dir(directory)?;
    let entry = table.map(|table| files.save_table(table, attend)).transpose()?;
    let name = entry.as_ref().map(|entry| entry.file.clone());
    let entry = serde_json::to_value(entry).map_err(|e| Error::internal(e.to_string()))?;
    document.insert(TABLE.to_owned(), entry);
    if let Err(error) = files.save_document(document) {
        if let Some(name) = name.filter(|name| !before.contains(&PathBuf::from(name))) {
            // It may be that only the answer was lost: then the document names it.
            if !files.names(&name) {
                let _ = store.remove_tree(&directory.join(name));
            }
        }
        return Err(error);
    }
    files.remove_others(name.as_deref());
    Ok(())
}

fn make_directories(store: &dyn Store, directory: &Path) -> Result<()> {
    match store.kind(directory)? {
        Some(EntryKind::Directory) => return Ok(()),
        Some(_) => {
            let text = format!("{} is not a directory; name one", directory.display());
            return Err(Error::invalid(text));
        }
        None => {}
    }
    let parent = directory.parent().filter(|parent| !parent.as_os_str().is_empty());
    let parent = parent.unwrap_or(Path::new("."));
    if parent != directory {
        make_directories(store, parent)?;
    }
    match store.create_dir(directory) {
        Err(error) if error.kind() != Kind::Conflict => return Err(error),
        _ => {}
    }
    store.sync_dir(parent)
}

struct Files<'a> {
    store: &'a dyn Store,
    directory: &'a Path,
    stem: &'a str,
}

impl Files<'_> {
    fn table_prefix(&self) -> String {
        format!("{}-table-", self.stem)
    }

    fn save_table(
        &self,
        table: &SavedTable<'_>,
        attend: &mut dyn FnMut() -> Result<()>,
    ) -> Result<TableEntry> {
        let partial = self.directory.join(format!(".{}-table.partial", self.stem));
        let (hash, size_bytes) = self.write(&partial, |out| {
            write_table(table.schema, table.batches, out, &unexplained, attend)
        })?;
        let file = format!("{}{}.arrows", self.table_prefix(), hash.to_hex());
        self.store.replace_file(&partial, &self.directory.join(&file))?;
        self.store.sync_dir(self.directory)?;
        let rows = table.batches.iter().map(|batch| batch.num_rows() as u64).sum();
        let edited = table.edited.to_vec();
        Ok(TableEntry { file, blake3: hash.to_hex().to_string(), size_bytes, rows, edited })
    }

    fn save_document(&self, document: Map<String, Value>) -> Result<()> {
        let text = serde_json::to_string_pretty(&Value::Object(document))
            .map_err(|e| Error::internal(e.to_string()))?;
        let partial = self.directory.join(format!(".{}.partial", self.stem));
        self.write(&partial, |out| out.write_all(text.as_bytes()).map_err(|e| unexplained(&e)))?;
        self.store.replace_file(&partial, &self.document_path())?;
        self.store.sync_dir(self.directory)
    }

    fn document_path(&self) -> PathBuf {
        self.directory.join(format!("{}.json", self.stem))
    }

    /// Writes a file that nobody looks for, and makes it durable; nothing is left of it on error.
    fn write(
        &self,
        path: &Path,
        fill: impl FnOnce(&mut HashedWriter) -> Result<()>,
    ) -> Result<(blake3::Hash, u64)> {
        // Of somebody who was interrupted.
        self.store.remove_tree(path)?;
        let file = self.store.create_file(path)?;
        let mut out = HashedWriter { file, hasher: blake3::Hasher::new(), failed: None };
        let written = fill(&mut out).map_err(|e| out.failed.take().unwrap_or(e));
        let HashedWriter { mut file, hasher, .. } = out;
        let outcome = written.and_then(|()| file.sync()).and_then(|()| file.close());
        if let Err(error) = outcome {
            let _ = self.store.remove_tree(path);
            return Err(error);
        }
        Ok((hasher.finalize(), hasher.count()))
    }

    /// Whether the document there names this table.
    fn names(&self, table: &str) -> bool {
        let document = read(&self.document_path(), DOCUMENT_BYTES_MAX, &mut || Ok(()));
        document.map_or(true, |bytes| String::from_utf8_lossy(&bytes).contains(table))
    }

    /// What fails here is left for the next time.
    fn remove_others(&self, kept: Option<&str>) {
        let Ok(names) = self.store.list_dir(self.directory) else { return };
        for name in names.iter().filter_map(|name| name.to_str()) {
            if name.starts_with(&self.table_prefix()) && Some(name) != kept {
                let _ = self.store.remove_tree(&self.directory.join(name));
            }
        }
    }
}

/// A file being written, and the digest of it.
struct HashedWriter {
    file: Box<dyn StoreFile>,
    hasher: blake3::Hasher,
    /// Behind the last error of `Write`, whose type has no room for it.
    failed: Option<Error>,
}

fn unexplained(error: &io::Error) -> Error {
    Error::internal(error.to_string())
}

impl Write for HashedWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write_all(bytes).map_err(|error| {
            let text = error.message().to_owned();
            self.failed = Some(error);
            io::Error::other(text)
        })?;
        self.hasher.update(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Reads what [`save_files`] saved, the table's digest checked.
///
/// # Errors
/// `NotFound` when nothing is saved there, `Corrupt` for what is not what was saved.
pub fn load_files(
    directory: &Path,
    stem: &str,
    attend: &mut dyn FnMut() -> Result<()>,
) -> Result<LoadedFiles> {
    let path = directory.join(format!("{stem}.json"));
    let place = |error: Error| error.within(path.display());
    let bytes = read(&path, DOCUMENT_BYTES_MAX, attend)?;
    let mut document: Map<String, Value> = serde_json::from_slice(&bytes)
        .map_err(|e| place(Error::corrupt(format!("no JSON object: {e}; save it again"))))?;
    let entry = document.remove(TABLE).unwrap_or(Value::Null);
    let entry: Option<TableEntry> = serde_json::from_value(entry)
        .map_err(|e| place(Error::corrupt(format!("its table: {e}; save it again"))))?;
    let document = serde_json::to_string(&document).map_err(|e| Error::internal(e.to_string()))?;
    let Some(entry) = entry else { return Ok(LoadedFiles { document, table: None }) };
    let is_plain = entry.file.starts_with(&format!("{stem}-table-")) && !entry.file.contains('/');
    if !is_plain {
        let text = format!("names a table {:?}, which is not beside it", entry.file);
        return Err(place(Error::corrupt(text)));
    }
    let path = directory.join(&entry.file);
    let table = read(&path, entry.size_bytes, attend)?;
    let mut hasher = blake3::Hasher::new();
    for piece in table.chunks(PIECE_BYTES) {
        attend()?;
        hasher.update(piece);
    }
    let found = hasher.finalize().to_hex();
    if *found != *entry.blake3 {
        return Err(Error::corrupt(format!(
            "{}: found BLAKE3 {found} of {} bytes; expected {} of {} bytes; save it again",
            path.display(),
            table.len(),
            entry.blake3,
            entry.size_bytes
        )));
    }
    Ok(LoadedFiles { document, table: Some((table, entry.edited)) })
}

/// All bytes of a file that has at most `bytes_max`: copied, since files there come and go.
fn read(path: &Path, bytes_max: u64, attend: &mut dyn FnMut() -> Result<()>) -> Result<Vec<u8>> {
    let file = ReadFile::open(path, IoMode::Pread).map_err(|error| match error.kind() {
        Kind::NotFound => Error::new(
            Kind::NotFound,
            format!("there is no {}; name a directory that was saved to", path.display()),
        ),
        Kind::Corrupt => {
            Error::corrupt(format!("{} is not a regular file; save it again", path.display()))
        }
        _ => error,
    })?;
    let size = file.size_bytes();
    if size > bytes_max {
        return Err(Error::corrupt(format!(
            "{} has {size} bytes; expected at most {bytes_max}; save it again",
            path.display()
        )));
    }
    let size = usize::try_from(size).unwrap_or(usize::MAX);
    let mut bytes = Vec::new();
    if bytes.try_reserve_exact(size).is_err() {
        let text = format!("no memory for the {size} bytes of {}", path.display());
        return Err(Error::new(Kind::Exhausted, text));
    }
    bytes.resize(size, 0);
    for (i, piece) in bytes.chunks_mut(PIECE_BYTES).enumerate() {
        attend()?;
        file.read_at((i * PIECE_BYTES) as u64, piece)?;
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fs;
    use std::sync::Arc;

    use arrow_array::UInt64Array;
    use arrow_schema::{DataType, Field, Schema};
    use dataset_rt_storage::store::{CrashStore, Fault, FaultyStore, LocalStore};
    use tempfile::tempdir;

    use super::*;

    fn batch(first: u64) -> RecordBatch {
        let field = Field::new("sample_id", DataType::UInt64, false);
        let column = UInt64Array::from_iter_values(first..first + 5);
        RecordBatch::try_new(Arc::new(Schema::new(vec![field])), vec![Arc::new(column)]).unwrap()
    }

    fn save(store: &dyn Store, directory: &Path, number: u64, has_table: bool) -> Result<()> {
        let batches = [batch(number)];
        let schema = batches[0].schema();
        let edited = [format!("column {number}")];
        let table = SavedTable { schema: &schema, batches: &batches, edited: &edited };
        let document = format!("{{\"number\": {number}}}");
        let table = has_table.then_some(&table);
        save_files(store, directory, "state", &document, table, &mut || Ok(()))
    }

    /// The number that is saved, its table checked.
    fn load(directory: &Path) -> Result<u64> {
        let loaded = load_files(directory, "state", &mut || Ok(()))?;
        let document: Value = serde_json::from_str(&loaded.document).unwrap();
        let number = document["number"].as_u64().unwrap();
        if let Some((bytes, edited)) = loaded.table {
            assert_eq!(edited, [format!("column {number}")]);
            let reader = arrow_ipc::reader::StreamReader::try_new(&bytes[..], None).unwrap();
            let found: Vec<RecordBatch> = reader.map(|batch| batch.unwrap()).collect();
            assert_eq!(found, [batch(number)]);
        }
        Ok(number)
    }

    fn names(directory: &Path) -> BTreeSet<String> {
        let entries = fs::read_dir(directory).unwrap();
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    }

    #[test]
    fn what_is_saved_comes_back_and_old_tables_go() {
        let root = tempdir().unwrap();
        let directory = root.path().join("a/b");
        assert_eq!(load(&directory).unwrap_err().kind(), Kind::NotFound);
        for (number, has_table, files) in [(1, true, 2), (2, true, 2), (3, false, 1), (4, true, 2)]
        {
            save(&LocalStore, &directory, number, has_table).unwrap();
            assert_eq!(load(&directory).unwrap(), number);
            assert_eq!(names(&directory).len(), files);
        }
    }

    #[test]
    fn every_failure_keeps_the_old_pair_or_has_the_new_one() {
        for fault in [Fault::Errno(5), Fault::ShortWrite, Fault::Afterwards] {
            let mut at = 0;
            loop {
                let root = tempdir().unwrap();
                save(&LocalStore, root.path(), 1, true).unwrap();
                let store = FaultyStore::new(at, fault);
                let outcome = save(&store, root.path(), 2, true);
                if store.operations() <= at {
                    outcome.unwrap();
                    break;
                }
                let found = load(root.path()).unwrap();
                assert!(found == 2 || (outcome.is_err() && found == 1), "{fault:?} at {at}");
                // Nothing but the pair, and what the next time removes.
                save(&LocalStore, root.path(), 3, true).unwrap();
                assert_eq!(names(root.path()).len(), 2, "{fault:?} at {at}");
                at += 1;
            }
            assert!(at > 8);
        }
    }

    #[test]
    fn every_power_loss_keeps_the_old_pair_or_has_the_new_one() {
        let root = tempdir().unwrap();
        let directory = root.path().join("saved");
        save(&LocalStore, &directory, 1, true).unwrap();
        let store = CrashStore::new(root.path(), true).unwrap();
        save(&store, &directory, 2, true).unwrap();
        let moments = store.moments();
        let mut found = BTreeSet::new();
        for (i, (moment, disk)) in moments.iter().enumerate() {
            for loss in disk.losses(8, i as u64) {
                let after = tempdir().unwrap();
                for (path, bytes) in disk.after_loss(&loss) {
                    let path = after.path().join(path);
                    match bytes {
                        Some(bytes) => fs::write(path, bytes).unwrap(),
                        None => fs::create_dir_all(path).unwrap(),
                    }
                }
                let number = load(&after.path().join("saved"));
                let number = number.unwrap_or_else(|e| panic!("{moment}: {loss:?}: {e}"));
                if i + 1 == moments.len() {
                    assert_eq!(number, 2, "{moment}: {loss:?}");
                }
                found.insert(number);
                save(&LocalStore, &after.path().join("saved"), 3, true).unwrap();
            }
        }
        assert_eq!(found, BTreeSet::from([1, 2]));
    }

    #[test]
    fn damaged_missing_and_foreign_files_are_told() {
        let root = tempdir().unwrap();
        save(&LocalStore, root.path(), 1, true).unwrap();
        let names = names(root.path());
        let table = root.path().join(names.iter().find(|name| name.ends_with("arrows")).unwrap());
        let document = root.path().join("state.json");
        let (bytes, text) = (fs::read(&table).unwrap(), fs::read_to_string(&document).unwrap());
        let mut flipped = bytes.clone();
        flipped[bytes.len() / 2] ^= 1;
        for damaged in [&bytes[..bytes.len() - 1], &flipped, b"", &[&bytes[..], b"x"].concat()] {
            fs::write(&table, damaged).unwrap();
            assert_eq!(load(root.path()).unwrap_err().kind(), Kind::Corrupt);
        }
        fs::remove_file(&table).unwrap();
        assert_eq!(load(root.path()).unwrap_err().kind(), Kind::NotFound);
        fs::write(&table, &bytes).unwrap();
        let elsewhere = text.replace("state-table-", "state-table-/../state-table-");
        for foreign in ["", "[]", "{\"table\": 3}", &text[..text.len() / 2], &elsewhere] {
            fs::write(&document, foreign).unwrap();
            assert_eq!(load(root.path()).unwrap_err().kind(), Kind::Corrupt, "{foreign}");
        }
    }

    #[test]
    fn two_savers_exclude_each_other() {
        let root = tempdir().unwrap();
        let lock = LocalStore.lock_dir(root.path()).unwrap();
        assert_eq!(save(&LocalStore, root.path(), 1, true).unwrap_err().kind(), Kind::Unavailable);
        drop(lock);
        save(&LocalStore, root.path(), 1, true).unwrap();
    }
}
