//! Derived files written anew in their place: `metadata.arrow`, `index.bin`, `digests.bin`. Only
//! bytes with the digest that the manifest names take a file's place; shards, dictionary and
//! manifest are never touched.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::examine::{Examination, FileFinding, FileState, examine};
use super::proven::{PIECE_BYTES, read_at};
use super::region::{Attend, Found, Loss};
use super::remains::{Remains, Trust};
use super::walk::columns_of;
use crate::format::digest::{Digest, FileDigest, FileHasher, encode_digests_header, from_hex};
use crate::format::limits::MANIFEST_BYTES_MAX;
use crate::format::manifest::{DIGESTS_FILE, FileEntry, INDEX_FILE, MANIFEST_FILE, METADATA_FILE};
use crate::store::{DirLock, EntryKind, IoMode, ReadFile, Store, is_marked_read_only, read_file};
use crate::write::{HashedFile, MetadataFile};
use crate::{Error, Kind, Result};

/// A file that the other ones determine, bit for bit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Derived {
    Metadata,
    Index,
    Digests,
}

impl Derived {
    const ALL: [Self; 3] = [Self::Metadata, Self::Index, Self::Digests];

    fn name(self) -> &'static str {
        match self {
            Self::Metadata => METADATA_FILE,
            Self::Index => INDEX_FILE,
            Self::Digests => DIGESTS_FILE,
        }
    }

    /// Where the new one is written: beside the old one, so that a rename puts it in its place.
    fn aside(self, directory: &Path) -> PathBuf {
        directory.join(format!(".{}.repair", self.name()))
    }

    fn entry(self, remains: &Remains) -> &FileEntry {
        match self {
            Self::Metadata => &remains.manifest.metadata,
            Self::Index => &remains.manifest.index,
            Self::Digests => &remains.manifest.digests,
        }
    }
}

/// Restores the derived files of the cache at `path` that are damaged and can be; see
/// [`Examination::files`]. A crash at any moment leaves each file old or new. Open readers keep
/// what they have mapped.
///
/// # Errors
/// As [`examine`]; `Conflict` while another repair works there; as the file system fails.
pub fn restore(
    store: &Arc<dyn Store>,
    path: &Path,
    attend: &mut dyn FnMut() -> Result<()>,
) -> Result<Examination> {
    let mut found = examine(path, Trust::Manifest, false, attend)?;
    let is_due = |finding: &FileFinding| finding.state == FileState::Restorable;
    if !found.files.iter().any(is_due) {
        remove_leftovers_if_possible(store.as_ref(), path);
        return Ok(found);
    }
    if is_marked_read_only(path) {
        return Err(Error::new(
            Kind::Unavailable,
            format!(
                "{} is marked read-only, and nothing was written; make it writable to repair it in \
                 place, or write what is right elsewhere with salvage_cache(always=True) (dataset-rt \
                 repair --into DIR --always)",
                path.display()
            ),
        ));
    }
    let manifest = read_file(&path.join(MANIFEST_FILE), MANIFEST_BYTES_MAX)?;
    let Some(lock) = store.lock_dir(path)? else {
        return Err(Error::conflict(format!(
            "{} is being repaired or replaced by another process; try again when it has finished",
            path.display()
        )));
    };
    for derived in Derived::ALL {
        remove_leftover(store.as_ref(), &derived.aside(path))?;
    }
    for finding in found.files.iter_mut().filter(|finding| is_due(finding)) {
        let Some(derived) = Derived::of(&finding.file) else { continue };
        let place = InPlace { store, path, manifest: &manifest, lock: &lock };
        // Each time anew: the file restored before helps with the next one.
        let mut remains = Remains::open(path, Trust::Manifest, attend)?;
        match place.restore(&mut remains, derived, attend)? {
            Ok(()) => finding.state = FileState::Restored,
            Err(loss) => {
                finding.state = FileState::Lost;
                finding.obstacle = Some(format!("{}: {}", loss.file, loss.reason));
            }
        }
    }
    drop(lock);
    Ok(found)
}

/// What a dead repair left of a cache that is whole: no reason to fail, on read-only media or beside
/// another repair.
fn remove_leftovers_if_possible(store: &dyn Store, path: &Path) {
    let is_there = |aside: &PathBuf| matches!(store.kind(aside), Ok(Some(_)));
    let leftovers: Vec<_> = Derived::ALL.map(|derived| derived.aside(path)).into_iter().collect();
    if leftovers.iter().any(is_there)
        && let Ok(Some(_lock)) = store.lock_dir(path)
    {
        leftovers.iter().for_each(|aside| drop(remove_leftover(store, aside)));
    }
}

/// A dead repair left it; nobody else has a use for it.
fn remove_leftover(store: &dyn Store, path: &Path) -> Result<()> {
    match store.kind(path)? {
        None => Ok(()),
        Some(EntryKind::Directory) => Err(Error::conflict(format!(
            "{} is a directory, where a repair writes a file; move it away",
            path.display()
        ))),
        Some(_) => store.remove_tree(path),
    }
}

/// The cache that is worked on.
struct InPlace<'a> {
    store: &'a Arc<dyn Store>,
    path: &'a Path,
    manifest: &'a [u8],
    lock: &'a DirLock,
}

impl InPlace<'_> {
    fn restore(
        &self,
        remains: &mut Remains,
        derived: Derived,
        attend: Attend<'_>,
    ) -> Result<Found<()>> {
        let (aside, name) = (derived.aside(self.path), derived.name());
        let outcome = self.write(remains, derived, &aside, attend);
        // In a forked child both lock and file are its parent's.
        if !matches!(outcome, Ok(Ok(()))) && self.lock.is_held() {
            // The next repair removes what cannot be removed now.
            let _ = self.store.remove_tree(&aside);
        }
        outcome.map_err(|error| error.within(format!("cannot restore {name}")))
    }

    fn write(
        &self,
        remains: &mut Remains,
        derived: Derived,
        aside: &Path,
        attend: Attend<'_>,
    ) -> Result<Found<()>> {
        let place = self.path.join(derived.name());
        let file = HashedFile::create(self.store.as_ref(), aside)?;
        if let Err(loss) = rebuilt(remains, derived, Some(file), attend)? {
            return Ok(Err(loss));
        }
        // A writer waits for the lock before it exchanges a cache; others may have moved it.
        let now = read_file(&self.path.join(MANIFEST_FILE), MANIFEST_BYTES_MAX)?;
        if now != self.manifest || !self.lock.is_held() {
            return Err(Error::conflict(format!(
                "{} was replaced while it was repaired; look at it again",
                self.path.display()
            )));
        }
        self.store.replace_file(aside, &place)?;
        self.store.sync_dir(self.path)?;
        Ok(Ok(()))
    }
}

/// Derives a file anew, into `file` or to nowhere. Found when the bytes have the digest that the
/// manifest names.
pub(super) fn rebuilt(
    remains: &mut Remains,
    derived: Derived,
    file: Option<HashedFile>,
    attend: Attend<'_>,
) -> Result<Found<FileDigest>> {
    let file = file.unwrap_or_else(HashedFile::nowhere);
    let digest = match derived {
        Derived::Metadata => metadata(remains, file, attend)?,
        Derived::Index => index(remains, file, attend)?,
        Derived::Digests => digests(remains, file, attend)?,
    };
    let expected = from_hex(&derived.entry(remains).blake3);
    Ok(digest.and_then(|digest| match Some(digest.root) == expected {
        true => Ok(digest),
        false => Err(Loss {
            file: derived.name().to_owned(),
            reason: "what the other files give is not what the manifest names".to_owned(),
        }),
    }))
}

fn metadata(
    remains: &mut Remains,
    file: HashedFile,
    attend: Attend<'_>,
) -> Result<Found<FileDigest>> {
    let mut file = MetadataFile::over(file, remains.schema())?;
    let mut row = 0;
    while let Some((number, rows)) = remains.piece_from(row) {
        attend()?;
        let columns = remains.columns(number, rows.clone(), attend)?;
        match columns_of(remains, &columns, rows.clone(), false)? {
            Ok(arrays) => file.push(&arrays)?,
            Err(loss) => return Ok(Err(loss)),
        }
        row = rows.end;
    }
    remains.finish()?;
    file.finish().map(Ok)
}

fn index(
    remains: &mut Remains,
    mut file: HashedFile,
    attend: Attend<'_>,
) -> Result<Found<FileDigest>> {
    file.write(&remains.index_header())?;
    let mut row = 0;
    while let Some((number, rows)) = remains.piece_from(row) {
        attend()?;
        for record in remains.records(number, rows.clone(), attend)? {
            match record {
                Ok(record) => file.write(&record.encode())?,
                Err(loss) => return Ok(Err(loss)),
            }
        }
        row = rows.end;
    }
    remains.finish()?;
    file.finish().map(Ok)
}

/// Leaves of every file: those that `digests.bin` still has, or those of the bytes themselves.
fn digests(
    remains: &mut Remains,
    mut file: HashedFile,
    attend: Attend<'_>,
) -> Result<Found<FileDigest>> {
    file.write(&encode_digests_header())?;
    for number in 0..remains.manifest.verified_files().count() {
        attend()?;
        let opened = remains.file(number, attend)?;
        if let Some(leaves) = opened.leaves() {
            leaves.iter().try_for_each(|leaf| file.write(leaf))?;
            continue;
        }
        let derived = Derived::of(opened.name());
        let rebuilt = derived.map(|derived| rebuilt(remains, derived, None, attend)).transpose()?;
        let Some(Ok(digest)) = rebuilt else {
            let reason = "it is damaged as well, so that its block digests are not known";
            return Ok(Err(opened.loss(reason)));
        };
        digest.leaves.iter().try_for_each(|leaf| file.write(leaf))?;
    }
    file.finish().map(Ok)
}

/// BLAKE3 of a file; `None` where the disk does not give it.
pub(super) fn digest_of(path: &Path, attend: Attend<'_>) -> Result<Option<Digest>> {
    let file = ReadFile::open(path, IoMode::Pread)?;
    let mut hasher = FileHasher::default();
    let mut piece = Vec::new();
    while hasher.size_bytes() < file.size_bytes() {
        attend()?;
        let offset = hasher.size_bytes();
        piece.resize((file.size_bytes() - offset).min(PIECE_BYTES) as usize, 0);
        if read_at(&file, offset, &mut piece)?.is_err() {
            return Ok(None);
        }
        hasher.update(&piece);
    }
    Ok(Some(hasher.finish().root))
}
