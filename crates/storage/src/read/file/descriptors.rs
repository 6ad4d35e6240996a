//! Few open descriptors for many files: the oldest are closed and reopened when needed again.
//! Knows nothing of caches.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, Weak};

use super::origin::conflict;
use crate::Result;
use crate::store::{Baseline, IoMode, ReadFile};

/// Descriptors kept open by all caches of this process: a quarter of the usual limit of 1,024,
/// so that 10,000 shards or 1,000 caches never exhaust it.
const OPEN_MAX: usize = 256;

type Slot = Mutex<Option<Arc<ReadFile>>>;

/// Files open now, the oldest in front.
static OPEN: Mutex<VecDeque<Weak<Slot>>> = Mutex::new(VecDeque::new());

/// A file that is read by copying and may be closed between two reads.
///
/// Locks are only tried, never waited for: another thread may hold one while this process forks,
/// and the child would wait for ever. Whoever fails to get one opens the file for itself.
pub(in crate::read) struct Descriptor {
    path: PathBuf,
    baseline: Baseline,
    slot: Arc<Slot>,
}

impl Descriptor {
    /// Takes over `file`, just opened at `path`.
    pub fn new(path: PathBuf, file: ReadFile) -> Self {
        let baseline = Baseline::new(file.identity());
        let descriptor = Self { path, baseline, slot: Arc::default() };
        descriptor.keep(Arc::new(file));
        descriptor
    }

    /// Uses the open file.
    ///
    /// # Errors
    /// `Conflict` when the file at this path is no longer the one first opened, and whatever
    /// `use_file` fails with.
    pub fn with<T>(&self, use_file: impl FnOnce(&ReadFile) -> Result<T>) -> Result<T> {
        if let Some(file) = self.kept() {
            return use_file(&file);
        }
        let file = Arc::new(ReadFile::open(&self.path, IoMode::Pread)?);
        if !self.baseline.holds(file.identity()) {
            return Err(conflict(&self.path));
        }
        self.keep(Arc::clone(&file));
        use_file(&file)
    }

    /// The file, if it is open now.
    pub fn kept(&self) -> Option<Arc<ReadFile>> {
        self.slot.try_lock().ok().and_then(|slot| slot.clone())
    }

    fn keep(&self, file: Arc<ReadFile>) {
        let Ok(mut open) = OPEN.try_lock() else { return };
        let Ok(mut slot) = self.slot.try_lock() else { return };
        if slot.replace(file).is_none() {
            open.push_back(Arc::downgrade(&self.slot));
        }
        drop(slot);
        while open.len() > OPEN_MAX {
            let oldest = open.pop_front().and_then(|slot| slot.upgrade());
            let Some(oldest) = oldest else { continue };
            match oldest.try_lock() {
                Ok(mut slot) => drop(slot.take()),
                // In use this moment: it counts as young again.
                Err(_) => {
                    open.push_back(Arc::downgrade(&oldest));
                    break;
                }
            }
        }
    }
}
