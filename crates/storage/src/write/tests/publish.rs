//! One name, many writers: who holds it, who replaces it, and what the dead left.

use std::sync::atomic::{AtomicBool, Ordering};

use super::*;
use crate::format::name::partial_path;
use crate::store::{DirLock, EntryKind, StoreFile};

const REPLACE: Plan = Plan { mode: WriteMode::Replace, ..PLAN };

#[test]
fn what_a_dead_writer_left_is_removed() {
    let parent = TempDir::new().unwrap();
    let partial = partial_path(parent.path(), "train");
    fs::create_dir_all(partial.join("shards/odd")).unwrap();
    fs::write(partial.join("shards/000000.arrow"), b"half").unwrap();
    fs::write(partial.join(MANIFEST_FILE), b"{").unwrap();
    let cache = write(parent.path(), &rows(10), PLAN).unwrap();
    let fresh = TempDir::new().unwrap();
    let expected = write(fresh.path(), &rows(10), PLAN).unwrap();
    assert_eq!(files(&cache.path), files(&expected.path));
    assert!(!cache.path.join("shards/odd").exists());
}

#[test]
fn a_replaced_cache_stays_readable_through_open_files() {
    let parent = TempDir::new().unwrap();
    let cache = write(parent.path(), &rows(20), PLAN).unwrap();
    let open = fs::File::open(cache.path.join("shards/000000.arrow")).unwrap();
    write(parent.path(), &rows(50), REPLACE).unwrap();
    let old = FileReader::try_new(open, None).unwrap().map(|b| b.unwrap().num_rows());
    assert_eq!(old.sum::<usize>(), 20);
    assert_holds(&cache.path, &rows(50));
    assert_eq!(fs::read_dir(parent.path()).unwrap().count(), 1);
}

#[test]
fn a_crash_between_the_renames_of_a_replacement_gives_the_old_cache_back() {
    let parent = TempDir::new().unwrap();
    let cache = write(parent.path(), &rows(20), PLAN).unwrap();
    let stale = parent.path().join(".train.stale");
    fs::rename(&cache.path, &stale).unwrap();
    drop(begin(Arc::new(LocalStore), parent.path(), REPLACE).unwrap());
    assert_holds(&cache.path, &rows(20));
    // After the second rename the old one is waste.
    fs::create_dir_all(stale.join("shards")).unwrap();
    drop(begin(Arc::new(LocalStore), parent.path(), REPLACE).unwrap());
    assert_holds(&cache.path, &rows(20));
    assert_eq!(fs::read_dir(parent.path()).unwrap().count(), 1);
}

#[test]
fn a_link_in_place_of_the_unpublished_directory_is_refused_and_not_followed() {
    let (parent, other) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    fs::write(other.path().join("precious"), b"kept").unwrap();
    std::os::unix::fs::symlink(other.path(), partial_path(parent.path(), "train")).unwrap();
    let error = write(parent.path(), &rows(3), PLAN).unwrap_err();
    assert_eq!(error.kind(), Kind::Conflict);
    assert_eq!(fs::read(other.path().join("precious")).unwrap(), b"kept");
    assert!(partial_path(parent.path(), "train").is_symlink());
}

#[test]
fn the_replaced_cache_is_locked_until_it_is_removed() {
    let parent = TempDir::new().unwrap();
    write(parent.path(), &rows(5), PLAN).unwrap();
    let store = Steps::new(true, parent.path());
    let cache = fill(begin(store.clone(), parent.path(), REPLACE).unwrap(), &rows(9), REPLACE);
    let cache = cache.unwrap();
    assert_holds(&cache.path, &rows(9));
    assert!(!store.was_free.load(Ordering::SeqCst), "another writer could work there");
    assert_eq!(fs::read_dir(parent.path()).unwrap().count(), 1);
}

#[test]
fn without_an_exchange_two_renames_replace_a_cache() {
    let parent = TempDir::new().unwrap();
    write(parent.path(), &rows(5), PLAN).unwrap();
    let store = Steps::new(false, parent.path());
    let cache = fill(begin(store.clone(), parent.path(), REPLACE).unwrap(), &rows(9), REPLACE);
    let cache = cache.unwrap();
    assert_holds(&cache.path, &rows(9));
    assert!(!store.was_free.load(Ordering::SeqCst), "another writer could work there");
    assert_eq!(fs::read_dir(parent.path()).unwrap().count(), 1);
}

#[test]
fn two_writers_of_one_name_exclude_each_other() {
    let parent = TempDir::new().unwrap();
    let first = begin(Arc::new(LocalStore), parent.path(), PLAN).unwrap();
    let error = begin(Arc::new(LocalStore), parent.path(), PLAN).err().unwrap();
    assert!(error.message().contains("is held"), "{error}");
    // The second waits; the first publishes meanwhile; the name is taken then.
    let mut first = Some(first);
    let options = WriteOptions { max_shard_bytes: 1 << 20, compression: PLAN.compression };
    let waited = CacheWriter::begin(
        Arc::new(LocalStore),
        parent.path(),
        "train",
        options,
        WriteMode::New,
        &mut |_| fill(first.take().unwrap(), &rows(5), PLAN).map(drop),
    );
    assert_eq!(waited.err().unwrap().kind(), Kind::Conflict);
    assert_holds(&parent.path().join("train"), &rows(5));
    assert!(!partial_path(parent.path(), "train").exists());
}

#[test]
fn a_taken_name_is_a_conflict_and_stays_as_it_is() {
    let parent = TempDir::new().unwrap();
    let cache = write(parent.path(), &rows(20), PLAN).unwrap();
    let before = files(&cache.path);
    let error = write(parent.path(), &rows(30), PLAN).unwrap_err();
    assert_eq!(error.kind(), Kind::Conflict);
    assert_eq!(files(&cache.path), before);
}

#[test]
fn missing_parents_are_made_and_an_abandoned_write_leaves_nothing() {
    let parent = TempDir::new().unwrap();
    let deep = parent.path().join("a/b");
    drop(begin(Arc::new(LocalStore), &deep, PLAN).unwrap());
    assert_eq!(fs::read_dir(&deep).unwrap().count(), 0);
    assert!(write(&deep, &rows(3), PLAN).is_ok());
}

/// The real file system, where exchanges may be missing, and where nobody else may get hold of
/// the unpublished name while its old contents are removed.
struct Steps {
    exchanges: bool,
    parent: PathBuf,
    was_free: AtomicBool,
}

impl Steps {
    fn new(exchanges: bool, parent: &Path) -> Arc<Self> {
        Arc::new(Self { exchanges, parent: parent.into(), was_free: AtomicBool::new(false) })
    }
}

impl Store for Steps {
    fn create_dir(&self, path: &Path) -> Result<()> {
        LocalStore.create_dir(path)
    }
    fn create_file(&self, path: &Path) -> Result<Box<dyn StoreFile>> {
        LocalStore.create_file(path)
    }
    fn sync_dir(&self, path: &Path) -> Result<()> {
        LocalStore.sync_dir(path)
    }
    fn rename_no_replace(&self, from: &Path, to: &Path) -> Result<()> {
        LocalStore.rename_no_replace(from, to)
    }
    fn replace_file(&self, from: &Path, to: &Path) -> Result<()> {
        LocalStore.replace_file(from, to)
    }
    fn exchange(&self, a: &Path, b: &Path) -> Result<()> {
        if self.exchanges { LocalStore.exchange(a, b) } else { Err(Error::unsupported("no")) }
    }
    fn remove_tree(&self, path: &Path) -> Result<()> {
        if path == partial_path(&self.parent, "train") {
            let is_free = LocalStore.lock_dir(path)?.is_some();
            self.was_free.fetch_or(is_free, Ordering::SeqCst);
        }
        LocalStore.remove_tree(path)
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
