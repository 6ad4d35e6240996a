//! What lies at a path that has no cache; readers and the verifier tell it alike.

use std::path::{Path, PathBuf};

use crate::format::manifest::MANIFEST_FILE;
use crate::format::name::partial_path;
use crate::store::{EntryKind, LocalStore, Store};
use crate::{Error, Kind};

/// Caches named in the error for a directory of caches.
const CACHES_LISTED_MAX: usize = 10;
/// Entries of such a directory looked at: the error must not cost more than opening.
const ENTRIES_SEEN_MAX: usize = 1000;

/// What to tell someone who named a path without a cache, with what lies there instead.
pub fn no_cache(path: &Path) -> Error {
    let found = |text: String| Error::new(Kind::NotFound, text);
    let name = path.display();
    if let Some(unfinished) = unfinished_beside(path) {
        return found(format!(
            "there is no cache at {name}, but an unfinished write of it in {}; run the same write \
             again to go on behind what it finished",
            unfinished.display()
        ));
    }
    let Ok(entries) = LocalStore.list_dir(path) else {
        let what = match LocalStore.kind(path) {
            Ok(Some(_)) => "it is not a directory",
            _ => "it does not exist",
        };
        return found(format!(
            "there is no cache at {name}: {what}; check the path or write the cache first"
        ));
    };
    let is_cache = |entry: &Path| {
        let manifest = path.join(entry).join(MANIFEST_FILE);
        let hidden = entry.to_string_lossy().starts_with('.');
        !hidden && matches!(LocalStore.kind(&manifest), Ok(Some(EntryKind::File { .. })))
    };
    let caches: Vec<_> = entries
        .iter()
        .take(ENTRIES_SEEN_MAX)
        .filter(|entry| is_cache(entry))
        .map(|entry| path.join(entry).display().to_string())
        .take(CACHES_LISTED_MAX)
        .collect();
    if caches.is_empty() {
        return found(format!(
            "there is no cache at {name}: it has no {MANIFEST_FILE}; check the path or write the \
             cache first"
        ));
    }
    found(format!(
        "{name} is a directory of caches, not a cache; name the caches themselves: {}",
        caches.join(", ")
    ))
}

/// Where an interrupted or running write of this very name keeps its files, if there is one.
fn unfinished_beside(path: &Path) -> Option<PathBuf> {
    let name = path.file_name()?.to_str()?;
    let unfinished = partial_path(path.parent()?, name);
    let exists = matches!(LocalStore.kind(path), Ok(Some(_)));
    let is_there = matches!(LocalStore.kind(&unfinished), Ok(Some(EntryKind::Directory)));
    (!exists && is_there).then_some(unfinished)
}
