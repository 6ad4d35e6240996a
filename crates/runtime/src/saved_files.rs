//! A small JSON document and, beside it, the table it speaks of, saved so that a crash leaves the
//! old pair or the new one. Knows nothing of what the document says beyond that.
//!
//! ```text
//! directory/state.json                   names its table, the BLAKE3 of it, and its own
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

use crate::handover::write_table;
use crate::saved_document::{Form, TableEntry, decode, encode};

/// More is no document of ours.
const DOCUMENT_BYTES_MAX: u64 = 64 << 20;
/// Bytes between two looks for signals.
const PIECE_BYTES: usize = 8 << 20;
/// How often a table that is gone is looked for: whoever saves meanwhile removes the old one.
const ATTEMPTS: usize = 16;

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
    /// What the document says, a JSON object.
    pub contents: String,
    /// The table, if there is one.
    pub table: Option<LoadedTable>,
}

/// A table as it was read.
#[derive(Debug)]
pub struct LoadedTable {
    /// Where it was.
    pub path: PathBuf,
    /// An Arrow IPC stream.
    pub bytes: Vec<u8>,
    /// Rows that it must have.
    pub rows: u64,
    /// Stored columns whose values differ from those of the caches.
    pub edited: Vec<String>,
}

/// Saves `contents`, a JSON object, as `<stem>.json` in `directory`, which is made when it is
/// missing, with the table it speaks of, if any.
///
/// # Errors
/// `Unavailable` while another save goes on there, else as the file system fails, or what
/// `attend` returned. What was saved before is there then as it was.
pub fn save_files(
    store: &dyn Store,
    directory: &Path,
    form: Form,
    contents: &str,
    table: Option<&SavedTable<'_>>,
    attend: &mut dyn FnMut() -> Result<()>,
) -> Result<()> {
    check_named(directory)?;
    make_directories(store, directory)?;
    let Some(_lock) = store.lock_dir(directory)? else {
        return Err(Error::new(
            Kind::Unavailable,
            format!(
                "another process, or another thread of this one, is saving in {}; try again",
                directory.display()
            ),
        ));
    };
    let files = Files { store, directory, form };
    let before = store.list_dir(directory)?;
    let entry = table.map(|table| files.save_table(table, attend)).transpose()?;
    let document = encode(form, contents, entry.as_ref());
    let name = entry.map(|entry| entry.file);
    if let Err(error) = document.and_then(|document| files.save_document(&document)) {
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

fn check_named(directory: &Path) -> Result<()> {
    if directory.as_os_str().is_empty() {
        return Err(Error::invalid("the path is empty; name a directory, \".\" for this one"));
    }
    Ok(())
}

fn make_directories(store: &dyn Store, directory: &Path) -> Result<()> {
    match store.kind(directory)? {
        Some(EntryKind::Directory) => return Ok(()),
        // Whoever names a link means what it leads to, wherever that is today.
        Some(EntryKind::Other) if std::fs::metadata(directory).is_ok_and(|at| at.is_dir()) => {
            return Ok(());
        }
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
    form: Form,
}

impl Files<'_> {
    fn save_table(
        &self,
        table: &SavedTable<'_>,
        attend: &mut dyn FnMut() -> Result<()>,
    ) -> Result<TableEntry> {
        let partial = self.directory.join(format!(".{}-table.partial", self.form.stem));
        let (hash, size_bytes) = self.write(&partial, |out| {
            write_table(table.schema, table.batches, out, &unexplained, attend)
        })?;
        let file = self.form.table_name(&hash.to_hex());
        self.store.replace_file(&partial, &self.directory.join(&file))?;
        self.store.sync_dir(self.directory)?;
        let rows = table.batches.iter().map(|batch| batch.num_rows() as u64).sum();
        let edited = table.edited.to_vec();
        Ok(TableEntry { file, blake3: hash.to_hex().to_string(), size_bytes, rows, edited })
    }

    fn save_document(&self, document: &[u8]) -> Result<()> {
        let partial = self.directory.join(format!(".{}.partial", self.form.stem));
        self.write(&partial, |out| out.write_all(document).map_err(|e| unexplained(&e)))?;
        self.store.replace_file(&partial, &self.document_path())?;
        self.store.sync_dir(self.directory)
    }

    fn document_path(&self) -> PathBuf {
        document_path(self.directory, self.form)
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
            if name.starts_with(&self.form.table_prefix()) && Some(name) != kept {
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

/// Where a document is.
pub fn document_path(directory: &Path, form: Form) -> PathBuf {
    directory.join(format!("{}.json", form.stem))
}

/// Reads what [`save_files`] saved, all digests checked. Whoever saves meanwhile is no error: the
/// old pair is read, or the new one.
///
/// # Errors
/// `NotFound` when nothing is saved there, `Corrupt` for what is not what was saved, `Unsupported`
/// for what another version saved, `Unavailable` when others save there all the time.
pub fn load_files(
    directory: &Path,
    form: Form,
    attend: &mut dyn FnMut() -> Result<()>,
) -> Result<LoadedFiles> {
    check_named(directory)?;
    let path = document_path(directory, form);
    let mut before = None;
    for _ in 0..ATTEMPTS {
        let bytes = read(&path, DOCUMENT_BYTES_MAX, attend)?;
        let (contents, entry) = decode(form, &bytes).map_err(|e| e.within(path.display()))?;
        let Some(entry) = entry else { return Ok(LoadedFiles { contents, table: None }) };
        match load_table(directory, entry, attend) {
            Err(error) if error.kind() == Kind::NotFound => {
                let is_same = before.as_ref() == Some(&bytes);
                before = Some(bytes);
                if is_same {
                    return Err(error.within(path.display()));
                }
            }
            table => return Ok(LoadedFiles { contents, table: Some(table?) }),
        }
    }
    Err(Error::new(
        Kind::Unavailable,
        format!("others save in {} all the time; try again", directory.display()),
    ))
}

fn load_table(
    directory: &Path,
    entry: TableEntry,
    attend: &mut dyn FnMut() -> Result<()>,
) -> Result<LoadedTable> {
    let TableEntry { file, blake3, size_bytes, rows, edited } = entry;
    let path = directory.join(file);
    let bytes = read(&path, size_bytes, attend)?;
    let differs = |field: &str, found: &str, expected: &str| {
        Err(Error::corrupt(format!(
            "{}: found {field} {found}; expected {expected}; save it again",
            path.display()
        )))
    };
    let size = bytes.len() as u64;
    if size != size_bytes {
        return differs("size_bytes", &size.to_string(), &size_bytes.to_string());
    }
    let mut hasher = blake3::Hasher::new();
    for piece in bytes.chunks(PIECE_BYTES) {
        attend()?;
        hasher.update(piece);
    }
    let found = hasher.finalize().to_hex();
    if *found != *blake3 {
        return differs("blake3", &found, &blake3);
    }
    Ok(LoadedTable { path, bytes, rows, edited })
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
mod tests;
