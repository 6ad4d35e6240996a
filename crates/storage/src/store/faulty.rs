//! A store that fails at chosen operations, for tests of everything above it.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::{DirLock, EntryKind, LocalStore, Store, StoreFile};
use crate::{Error, Result};

/// How a chosen operation fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// With this `errno`.
    Errno(i32),
    /// A write stops half way with `ENOSPC`; other operations fail outright.
    ShortWrite,
    /// It is carried out, and `EIO` reported: the answer of a server was lost.
    Afterwards,
}

/// Counts the operations of another store and fails some of them; all others work.
#[derive(Clone)]
pub struct FaultyStore {
    store: Arc<dyn Store>,
    state: Arc<State>,
}

struct State {
    is_due: Box<dyn Fn(u64) -> bool + Send + Sync>,
    fault: Fault,
    done: AtomicU64,
}

const EIO: i32 = 5;
const ENOSPC: i32 = 28;

impl State {
    /// Whether the operation now beginning is one to fail.
    fn is_due(&self) -> bool {
        (self.is_due)(self.done.fetch_add(1, Ordering::SeqCst))
    }

    fn error(&self, verb: &str, path: &Path) -> Error {
        let code = match self.fault {
            Fault::Errno(code) => code,
            Fault::ShortWrite => ENOSPC,
            Fault::Afterwards => EIO,
        };
        Error::from_io(verb, path, &std::io::Error::from_raw_os_error(code))
    }
}

impl FaultyStore {
    /// The real file system, failing operation number `at`, counted from 0.
    pub fn new(at: u64, fault: Fault) -> Self {
        Self::over(Arc::new(LocalStore), fault, move |number| number == at)
    }

    /// Fails the operations of `store` whose number, counted from 0, `is_due` picks.
    pub fn over(
        store: Arc<dyn Store>,
        fault: Fault,
        is_due: impl Fn(u64) -> bool + Send + Sync + 'static,
    ) -> Self {
        let state = State { is_due: Box::new(is_due), fault, done: AtomicU64::new(0) };
        Self { store, state: Arc::new(state) }
    }

    /// Operations so far: run once without reaching `at` to learn how many there are.
    pub fn operations(&self) -> u64 {
        self.state.done.load(Ordering::SeqCst)
    }

    fn run<T>(
        &self,
        verb: &str,
        path: &Path,
        operation: impl FnOnce(&dyn Store) -> Result<T>,
    ) -> Result<T> {
        if !self.state.is_due() {
            return operation(self.store.as_ref());
        }
        if self.state.fault == Fault::Afterwards {
            operation(self.store.as_ref())?;
        }
        Err(self.state.error(verb, path))
    }
}

impl Store for FaultyStore {
    fn create_dir(&self, path: &Path) -> Result<()> {
        self.run("create the directory", path, |store| store.create_dir(path))
    }

    fn create_file(&self, path: &Path) -> Result<Box<dyn StoreFile>> {
        let file = self.run("create", path, |store| store.create_file(path))?;
        let state = Arc::clone(&self.state);
        Ok(Box::new(FaultyFile { file, path: path.to_owned(), state, failed: None }))
    }

    fn sync_dir(&self, path: &Path) -> Result<()> {
        self.run("sync the directory", path, |store| store.sync_dir(path))
    }

    fn rename_no_replace(&self, from: &Path, to: &Path) -> Result<()> {
        self.run("publish", to, |store| store.rename_no_replace(from, to))
    }

    fn replace_file(&self, from: &Path, to: &Path) -> Result<()> {
        self.run("replace", to, |store| store.replace_file(from, to))
    }

    fn exchange(&self, a: &Path, b: &Path) -> Result<()> {
        self.run("exchange", b, |store| store.exchange(a, b))
    }

    fn remove_tree(&self, path: &Path) -> Result<()> {
        self.run("remove", path, |store| store.remove_tree(path))
    }

    fn list_dir(&self, path: &Path) -> Result<Vec<PathBuf>> {
        self.run("list", path, |store| store.list_dir(path))
    }

    fn kind(&self, path: &Path) -> Result<Option<EntryKind>> {
        self.run("look at", path, |store| store.kind(path))
    }

    fn lock_dir(&self, path: &Path) -> Result<Option<DirLock>> {
        self.run("lock", path, |store| store.lock_dir(path))
    }
}

struct FaultyFile {
    file: Box<dyn StoreFile>,
    path: PathBuf,
    state: Arc<State>,
    failed: Option<Error>,
}

impl FaultyFile {
    fn fail(&mut self, verb: &str) -> Error {
        let error = self.state.error(verb, &self.path);
        self.failed.insert(error).clone()
    }
}

impl StoreFile for FaultyFile {
    fn write_all(&mut self, bytes: &[u8]) -> Result<()> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        if self.state.is_due() {
            match self.state.fault {
                Fault::ShortWrite => self.file.write_all(&bytes[..bytes.len() / 2])?,
                Fault::Afterwards => self.file.write_all(bytes)?,
                Fault::Errno(_) => {}
            }
            return Err(self.fail("write"));
        }
        self.file.write_all(bytes)
    }

    fn sync(&mut self) -> Result<()> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        if self.state.is_due() {
            if self.state.fault == Fault::Afterwards {
                self.file.sync()?;
            }
            return Err(self.fail("sync"));
        }
        self.file.sync()
    }

    fn close(mut self: Box<Self>) -> Result<()> {
        if let Some(error) = self.failed.take() {
            return Err(error);
        }
        if self.state.is_due() {
            return Err(self.fail("close"));
        }
        self.file.close()
    }
}
