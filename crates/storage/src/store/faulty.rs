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

    fn gate(&self, verb: &str, path: &Path) -> Result<()> {
        if self.state.is_due() { Err(self.state.error(verb, path)) } else { Ok(()) }
    }
}

impl Store for FaultyStore {
    fn create_dir(&self, path: &Path) -> Result<()> {
        self.gate("create the directory", path)?;
        self.store.create_dir(path)
    }

    fn create_file(&self, path: &Path) -> Result<Box<dyn StoreFile>> {
        self.gate("create", path)?;
        let file = self.store.create_file(path)?;
        let state = Arc::clone(&self.state);
        Ok(Box::new(FaultyFile { file, path: path.to_owned(), state, failed: None }))
    }

    fn sync_dir(&self, path: &Path) -> Result<()> {
        self.gate("sync the directory", path)?;
        self.store.sync_dir(path)
    }

    fn rename_no_replace(&self, from: &Path, to: &Path) -> Result<()> {
        self.gate("publish", to)?;
        self.store.rename_no_replace(from, to)
    }

    fn exchange(&self, a: &Path, b: &Path) -> Result<()> {
        self.gate("exchange", b)?;
        self.store.exchange(a, b)
    }

    fn remove_tree(&self, path: &Path) -> Result<()> {
        self.gate("remove", path)?;
        self.store.remove_tree(path)
    }

    fn list_dir(&self, path: &Path) -> Result<Vec<PathBuf>> {
        self.gate("list", path)?;
        self.store.list_dir(path)
    }

    fn kind(&self, path: &Path) -> Result<Option<EntryKind>> {
        self.gate("look at", path)?;
        self.store.kind(path)
    }

    fn lock_dir(&self, path: &Path) -> Result<Option<DirLock>> {
        self.gate("lock", path)?;
        self.store.lock_dir(path)
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
            if self.state.fault == Fault::ShortWrite {
                self.file.write_all(&bytes[..bytes.len() / 2])?;
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
