//! Files as bytes: sizes, digests, block digests, the index header. Decodes nothing.

use std::path::Path;

use dataset_rt_storage::Result;
use dataset_rt_storage::format::digest::{Digest, FileHasher, to_hex};
use dataset_rt_storage::format::index::{INDEX_HEADER_BYTES, encode_header};
use dataset_rt_storage::format::manifest::{
    DIGESTS_FILE, INDEX_FILE, Manifest, SHARDS_DIR, VerifiedFile,
};
use dataset_rt_storage::store::{EntryKind, IoMode, LocalStore, ReadFile, Store};

use super::report::Report;

/// Bytes read at once: large enough to amortise the call, small enough to stay in the cache.
const READ_BYTES: usize = 1024 * 1024;

/// Every file that the manifest names, in its order, `digests.bin` last.
fn all_files(manifest: &Manifest) -> Vec<VerifiedFile<'_>> {
    manifest.verified_files().chain([manifest.digests.as_verified()]).collect()
}

/// Whether each file is there with its size.
pub(super) fn check_sizes(
    path: &Path,
    manifest: &Manifest,
    report: &mut Report,
) -> Result<Vec<bool>> {
    match LocalStore.kind(&path.join(SHARDS_DIR))? {
        Some(EntryKind::Directory) => {}
        Some(_) => report.broken("F01", SHARDS_DIR, "", "a directory", "a file or link"),
        None => report.broken("F01", SHARDS_DIR, "", "a directory", "nothing"),
    }
    let mut is_whole = Vec::new();
    for file in all_files(manifest) {
        report.files_checked += 1;
        let found = match LocalStore.kind(&path.join(file.path))? {
            Some(EntryKind::File { size_bytes }) if size_bytes == file.size_bytes => None,
            Some(EntryKind::File { size_bytes }) => Some(("F02", format!("{size_bytes} bytes"))),
            Some(EntryKind::Directory) => Some(("F01", "a directory".to_owned())),
            Some(EntryKind::Other) => Some(("F01", "a link or special file".to_owned())),
            None => Some(("F01", "nothing".to_owned())),
        };
        is_whole.push(found.is_none());
        if let Some((rule, found)) = found {
            let expected = format!("a regular file of {} bytes", file.size_bytes);
            report.broken(rule, file.path, "", expected, found);
        }
    }
    Ok(is_whole)
}

/// Recomputes every BLAKE3, and the block digests that come with them.
pub(super) fn check_digests(
    path: &Path,
    manifest: &Manifest,
    is_whole: &[bool],
    report: &mut Report,
    attend: &mut dyn FnMut() -> Result<()>,
) -> Result<()> {
    let mut leaves: Vec<Option<Vec<Digest>>> = Vec::new();
    for (file, whole) in all_files(manifest).into_iter().zip(is_whole) {
        if !whole {
            leaves.push(None);
            continue;
        }
        let opened = ReadFile::open(&path.join(file.path), IoMode::Pread)?;
        let mut hasher = FileHasher::default();
        let mut bytes = vec![0; READ_BYTES];
        let mut offset = 0;
        while offset < file.size_bytes {
            attend()?;
            let len = (file.size_bytes - offset).min(READ_BYTES as u64) as usize;
            let piece = bytes.get_mut(..len).unwrap_or_default();
            opened.read_at(offset, piece)?;
            hasher.update(piece);
            offset += len as u64;
        }
        report.bytes_checked += file.size_bytes;
        let digest = hasher.finish();
        let found = to_hex(&digest.root);
        let matches = found == file.blake3;
        if !matches {
            report.broken("F03", file.path, "", file.blake3, found);
        }
        leaves.push(matches.then_some(digest.leaves));
    }
    check_leaves(path, manifest, &leaves, report, attend)
}

fn check_leaves(
    path: &Path,
    manifest: &Manifest,
    leaves: &[Option<Vec<Digest>>],
    report: &mut Report,
    attend: &mut dyn FnMut() -> Result<()>,
) -> Result<()> {
    // The last entry is digests.bin itself: without it, or with a wrong one, F01 to F03 said so.
    let Some(Some(_)) = leaves.last() else { return Ok(()) };
    let layout = manifest.digest_layout()?;
    let file = ReadFile::open(&path.join(DIGESTS_FILE), IoMode::Pread)?;
    let mut header = layout.header();
    file.read_at(0, &mut header)?;
    if header != layout.header() {
        report.broken("F04", DIGESTS_FILE, "header", "the header of this version", "another");
    }
    let names: Vec<&str> = manifest.verified_files().map(|file| file.path).collect();
    for (number, (expected, name)) in leaves.iter().zip(names).enumerate() {
        let (Some(expected), Some(start)) = (expected, layout.start(number)) else { continue };
        attend()?;
        let mut found = vec![0; expected.len() * 32];
        file.read_at(start, &mut found)?;
        for (block, (expected, found)) in expected.iter().zip(found.as_chunks().0).enumerate() {
            if expected != found {
                let place = format!("{name}, block {block}");
                report.broken("F04", DIGESTS_FILE, place, to_hex(expected), to_hex(found));
            }
        }
    }
    Ok(())
}

/// The first bytes of `index.bin`.
pub(super) fn check_index_header(
    path: &Path,
    manifest: &Manifest,
    report: &mut Report,
) -> Result<()> {
    let file = ReadFile::open(&path.join(INDEX_FILE), IoMode::Pread)?;
    let mut header = [0; INDEX_HEADER_BYTES as usize];
    file.read_at(0, &mut header)?;
    if header != encode_header(manifest.index_kind()) {
        let expected = format!("the header for {:?}", manifest.index_kind());
        report.broken("I01", INDEX_FILE, "header", expected, "another");
    }
    Ok(())
}
