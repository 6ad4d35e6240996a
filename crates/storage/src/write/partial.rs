//! The unpublished directory of a cache: its name, its lock, its way to the published name.
//! What may stay in it is the journal's to say.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::journal;
use crate::format::name::partial_path;
use crate::store::{DirLock, EntryKind, Store, not_a_directory};
use crate::{Error, Kind, Result};

/// Whether a published cache of the same name may be exchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteMode {
    /// The name must be free.
    New,
    /// A cache with this name is exchanged for the new one.
    Replace,
}

/// Where a replaced cache waits while two renames stand in for one exchange.
fn stale_path(parent: &Path, name: &str) -> PathBuf {
    parent.join(format!(".{name}.stale"))
}

/// A locked directory that becomes the cache. Dropping it unpublished removes it, or all but the
/// shards to keep.
pub(super) struct PartialDir {
    store: Arc<dyn Store>,
    parent: PathBuf,
    name: String,
    mode: WriteMode,
    lock: Option<DirLock>,
    /// `None` until the last renames are durable and somebody has looked: what a dead writer left
    /// may be the only copy of a cache.
    kept_shards: Option<usize>,
}

impl PartialDir {
    /// Makes and locks the directory, which may hold what a dead writer left.
    ///
    /// `wait` is called with the directory's path while another writer holds it: it sleeps, or
    /// gives up with an error.
    ///
    /// # Errors
    /// `Conflict` when the published name exists and `mode` is [`WriteMode::New`].
    pub(super) fn acquire(
        store: Arc<dyn Store>,
        parent: &Path,
        name: &str,
        mode: WriteMode,
        wait: &mut dyn FnMut(&Path) -> Result<()>,
    ) -> Result<Self> {
        // The empty path names the working directory, but cannot be opened.
        let parent = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
        create_parents(store.as_ref(), parent)?;
        let path = partial_path(parent, name);
        loop {
            refuse_taken(store.as_ref(), parent, name, mode)?;
            let is_made = match store.create_dir(&path) {
                Err(error) if error.kind() != Kind::Conflict => return Err(error),
                made => made.is_ok(),
            };
            let Some(lock) = store.lock_dir(&path)? else {
                // A link to nothing has no holder that will ever be done.
                if !matches!(store.kind(&path)?, Some(EntryKind::Directory) | None) {
                    return Err(not_a_directory(&path));
                }
                wait(&path)?;
                continue;
            };
            let mut partial = Self {
                store: Arc::clone(&store),
                parent: parent.to_owned(),
                name: name.to_owned(),
                mode,
                lock: Some(lock),
                kept_shards: is_made.then_some(0),
            };
            partial.settle()?;
            // The former holder may have published between the look above and the lock.
            recover_stale(store.as_ref(), parent, name)?;
            partial.keep_shards(0);
            refuse_taken(store.as_ref(), parent, name, mode)?;
            return Ok(partial);
        }
    }

    /// A forked child does not hold its parent's lock: the files are not its own.
    ///
    /// # Errors
    /// `Conflict` there.
    pub(super) fn check_held(&self) -> Result<()> {
        if self.lock.as_ref().is_some_and(DirLock::is_held) {
            return Ok(());
        }
        Err(begun_before_fork())
    }

    /// Nothing is removed if this is dropped.
    pub(super) fn keep_all(&mut self) {
        self.kept_shards = None;
    }

    /// How many finished shards stay with their journal if this is dropped unpublished.
    pub(super) fn keep_shards(&mut self, shards: usize) {
        self.kept_shards = Some(shards);
    }

    /// Makes the last renames of a killed writer durable: nothing that they moved may be removed
    /// before that.
    fn settle(&self) -> Result<()> {
        let path = self.path();
        if self.store.kind(&path)? != Some(EntryKind::Directory) {
            // Removing through a link would empty a directory that is not ours.
            return Err(not_a_directory(&path));
        }
        self.store.sync_dir(&self.parent)
    }

    pub(super) fn path(&self) -> PathBuf {
        partial_path(&self.parent, &self.name)
    }

    pub(super) fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    /// Gives the directory its published name: the only atomic step of a write.
    ///
    /// # Errors
    /// As the file system fails; what was published before is published again then.
    pub(super) fn publish(mut self) -> Result<PathBuf> {
        let published = self.parent.join(&self.name);
        let is_taken = self.store.kind(&published)?.is_some();
        if self.mode == WriteMode::New || !is_taken {
            self.store.rename_no_replace(&self.path(), &published)?;
            if let Err(error) = self.store.sync_dir(&self.parent) {
                let undone = self.store.rename_no_replace(&published, &self.path());
                self.keep_unless_durable(undone);
                return Err(error);
            }
        } else {
            self.replace(&published)?;
        }
        self.lock = None;
        Ok(published)
    }

    fn replace(&mut self, published: &Path) -> Result<()> {
        // The old cache will bear the unpublished name until it is removed: without its lock, a
        // waiting writer could begin where this one removes.
        let Some(old_lock) = self.store.lock_dir(published)? else {
            return Err(Error::conflict(format!(
                "{} is being repaired by another process; try again when it has finished",
                published.display()
            )));
        };
        match self.store.exchange(&self.path(), published) {
            Ok(()) => {}
            Err(error) if error.kind() == Kind::Unsupported => return self.move_aside(published),
            Err(error) => {
                // A server that lost its answer may have exchanged them all the same.
                self.keep_unless_durable(Ok(()));
                return Err(error);
            }
        }
        if let Err(error) = self.store.sync_dir(&self.parent) {
            let undone = self.store.exchange(&self.path(), published);
            self.keep_unless_durable(undone);
            return Err(error);
        }
        // The new cache is durable: what cannot be removed is left to the next writer. Readers
        // keep what they have open.
        let _ = self.store.remove_tree(&self.path());
        drop(old_lock);
        Ok(())
    }

    /// Two renames instead of one exchange; [`recover_stale`] undoes the first after a crash
    /// between them.
    fn move_aside(&mut self, published: &Path) -> Result<()> {
        let stale = stale_path(&self.parent, &self.name);
        self.store.remove_tree(&stale)?;
        self.store.rename_no_replace(published, &stale)?;
        let renamed = self
            .store
            .sync_dir(&self.parent)
            .and_then(|()| self.store.rename_no_replace(&self.path(), published));
        if let Err(error) = renamed {
            // Should this fail too, the next writer of the name finds the old cache.
            let _ = self.store.rename_no_replace(&stale, published);
            return Err(error);
        }
        if let Err(error) = self.store.sync_dir(&self.parent) {
            let undone = self
                .store
                .rename_no_replace(published, &self.path())
                .and_then(|()| self.store.rename_no_replace(&stale, published));
            self.keep_unless_durable(undone);
            return Err(error);
        }
        let _ = self.store.remove_tree(&stale);
        Ok(())
    }

    /// After a step that could not be taken back durably either directory may bear the published
    /// name after a power loss: nothing is removed then.
    fn keep_unless_durable(&mut self, undone: Result<()>) {
        if undone.and_then(|()| self.store.sync_dir(&self.parent)).is_err() {
            self.lock = None;
        }
    }
}

impl Drop for PartialDir {
    /// Best effort: what stays is removed by the next writer of the name.
    fn drop(&mut self) {
        let (Some(lock), Some(kept)) = (&self.lock, self.kept_shards) else { return };
        if !lock.is_held() {
            // A forked child: the directory is its parent's.
            return;
        }
        let _ = match kept {
            0 => self.store.remove_tree(&self.path()),
            kept => journal::clear(self.store.as_ref(), &self.path(), kept),
        };
    }
}

/// The error for a write that goes on in a forked child.
pub fn begun_before_fork() -> Error {
    Error::conflict(
        "this write was begun before the process forked; let the source end in the child, for \
         example with os._exit",
    )
}

fn refuse_taken(store: &dyn Store, parent: &Path, name: &str, mode: WriteMode) -> Result<()> {
    let published = parent.join(name);
    match (store.kind(&published)?, mode) {
        (None, _) | (Some(EntryKind::Directory), WriteMode::Replace) => Ok(()),
        (Some(_), _) => Err(Error::conflict(format!(
            "{} exists; expected a free name (a cache is never overwritten); remove it, choose \
             another source name, or use from_cache_sources to reuse it",
            published.display()
        ))),
    }
}

/// A crash between the two renames of a replacement left no published cache: the old one returns.
fn recover_stale(store: &dyn Store, parent: &Path, name: &str) -> Result<()> {
    let (stale, published) = (stale_path(parent, name), parent.join(name));
    if store.kind(&stale)?.is_none() {
        return Ok(());
    }
    if store.kind(&published)?.is_none() {
        store.rename_no_replace(&stale, &published)?;
        store.sync_dir(parent)
    } else {
        store.remove_tree(&stale)
    }
}

/// Makes missing ancestors, each made durable in its parent.
fn create_parents(store: &dyn Store, directory: &Path) -> Result<()> {
    if directory.as_os_str().is_empty() || store.kind(directory)?.is_some() {
        return Ok(());
    }
    let parent = directory.parent().unwrap_or(Path::new(""));
    create_parents(store, parent)?;
    match store.create_dir(directory) {
        // Another writer was faster.
        Err(error) if error.kind() == Kind::Conflict => Ok(()),
        Err(error) => Err(error),
        Ok(()) if parent.as_os_str().is_empty() => store.sync_dir(Path::new(".")),
        Ok(()) => store.sync_dir(parent),
    }
}
