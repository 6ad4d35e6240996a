//! The real file system, remembering what a power loss could leave of it, for tests of everything
//! above it. [`super::disk`] says what is assumed of a disk.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::disk::{Disk, name_of, unknown};
use super::{DirLock, EntryKind, LocalStore, Store, StoreFile};
use crate::{Error, Result};

/// Works below one directory and records what it does.
#[derive(Clone)]
pub struct CrashStore {
    root: PathBuf,
    has_exchange: bool,
    recording: Arc<Mutex<Recording>>,
}

#[derive(Default)]
struct Recording {
    disk: Disk,
    moments: Vec<(String, Disk)>,
}

impl CrashStore {
    /// Takes everything below `root`, which must exist, as durable.
    ///
    /// `has_exchange` tells whether this file system can exchange two directories.
    ///
    /// # Errors
    /// As the file system fails.
    pub fn new(root: &Path, has_exchange: bool) -> Result<Self> {
        let disk = Disk::read(root)?;
        let begin = ("the beginning".to_owned(), disk.clone());
        let recording = Arc::new(Mutex::new(Recording { disk, moments: vec![begin] }));
        Ok(Self { root: root.to_owned(), has_exchange, recording })
    }

    /// The disk at the beginning and after every operation since, each with a description.
    pub fn moments(&self) -> Vec<(String, Disk)> {
        self.lock().moments.clone()
    }

    fn lock(&self) -> MutexGuard<'_, Recording> {
        self.recording.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records an operation on `path`.
    fn record(
        &self,
        verb: &str,
        path: &Path,
        change: impl FnOnce(&mut Disk, &Path) -> Result<()>,
    ) -> Result<()> {
        let relative = path.strip_prefix(&self.root).map_err(|_| {
            Error::internal(format!("{} is not below the recorded directory", path.display()))
        })?;
        let mut recording = self.lock();
        change(&mut recording.disk, relative)?;
        let moment = (format!("{verb} {}", relative.display()), recording.disk.clone());
        recording.moments.push(moment);
        Ok(())
    }

    /// Records a change of entries of the one directory that holds all `names`.
    fn record_change(
        &self,
        verb: &str,
        path: &Path,
        other: &Path,
        nodes: impl FnOnce(usize, Option<usize>) -> [Option<usize>; 2],
    ) -> Result<()> {
        if path.parent() != other.parent() {
            return Err(Error::internal("renames between directories are not modelled"));
        }
        self.record(verb, other, |disk, to| {
            let from = to.with_file_name(path.file_name().unwrap_or_default());
            let moved = disk.find(&from).ok_or_else(|| unknown(&from))?;
            let [old, new] = nodes(moved, disk.find(to));
            disk.change(to, vec![(name_of(&from), old), (name_of(to), new)])
        })
    }
}

impl Store for CrashStore {
    fn create_dir(&self, path: &Path) -> Result<()> {
        LocalStore.create_dir(path)?;
        self.record("create", path, |disk, path| disk.create_directory(path))
    }

    fn create_file(&self, path: &Path) -> Result<Box<dyn StoreFile>> {
        let file = LocalStore.create_file(path)?;
        let mut number = 0;
        self.record("create", path, |disk, path| {
            number = disk.create_file(path)?;
            Ok(())
        })?;
        Ok(Box::new(CrashFile { file, path: path.to_owned(), number, store: self.clone() }))
    }

    fn sync_dir(&self, path: &Path) -> Result<()> {
        // Not asked of the real disk: these tests lose power in thought only.
        LocalStore.list_dir(path)?;
        self.record("sync", path, Disk::sync_directory)
    }

    fn rename_no_replace(&self, from: &Path, to: &Path) -> Result<()> {
        LocalStore.rename_no_replace(from, to)?;
        self.record_change("rename to", from, to, |moved, _| [None, Some(moved)])
    }

    fn replace_file(&self, from: &Path, to: &Path) -> Result<()> {
        LocalStore.replace_file(from, to)?;
        self.record_change("replace", from, to, |moved, _| [None, Some(moved)])
    }

    fn exchange(&self, a: &Path, b: &Path) -> Result<()> {
        if !self.has_exchange {
            return Err(Error::unsupported("this file system cannot exchange two directories"));
        }
        LocalStore.exchange(a, b)?;
        self.record_change("exchange with", a, b, |a, b| [b, Some(a)])
    }

    fn remove_tree(&self, path: &Path) -> Result<()> {
        match LocalStore.kind(path)? {
            None => return Ok(()),
            Some(EntryKind::Directory) => {
                for name in LocalStore.list_dir(path)? {
                    self.remove_tree(&path.join(name))?;
                }
            }
            Some(_) => {}
        }
        LocalStore.remove_tree(path)?;
        self.record("remove", path, |disk, path| disk.change(path, vec![(name_of(path), None)]))
    }

    fn list_dir(&self, path: &Path) -> Result<Vec<PathBuf>> {
        LocalStore.list_dir(path)
    }

    fn kind(&self, path: &Path) -> Result<Option<EntryKind>> {
        LocalStore.kind(path)
    }

    fn lock_dir(&self, path: &Path) -> Result<Option<DirLock>> {
        LocalStore.lock_dir(path)
    }
}

struct CrashFile {
    file: Box<dyn StoreFile>,
    path: PathBuf,
    number: usize,
    store: CrashStore,
}

impl StoreFile for CrashFile {
    fn write_all(&mut self, bytes: &[u8]) -> Result<()> {
        self.file.write_all(bytes)?;
        self.store.record("write", &self.path, |disk, _| disk.append(self.number, bytes))
    }

    fn sync(&mut self) -> Result<()> {
        self.store.record("sync", &self.path, |disk, _| disk.sync_file(self.number))
    }

    fn close(self: Box<Self>) -> Result<()> {
        self.file.close()
    }
}
