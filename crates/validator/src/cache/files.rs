//! Files as bytes: sizes, digests, block digests, the index header. Decodes nothing.

use std::path::Path;

use dataset_rt_storage::Result;
use dataset_rt_storage::format::digest::{Digest, DigestLayout, FileDigest, FileHasher, to_hex};
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
    match LocalStore.kind(&path.join(SHARDS_DIR)) {
        Ok(Some(EntryKind::Directory)) => {}
        Ok(Some(_)) => report.broken("F01", SHARDS_DIR, "", "a directory", "a file or link"),
        Ok(None) => report.broken("F01", SHARDS_DIR, "", "a directory", "nothing"),
        Err(error) => report.unreadable(SHARDS_DIR, error)?,
    }
    let mut is_whole = Vec::new();
    for file in all_files(manifest) {
        let entry = match LocalStore.kind(&path.join(file.path)) {
            Ok(entry) => entry,
            Err(error) => {
                report.unreadable(file.path, error)?;
                is_whole.push(false);
                continue;
            }
        };
        let found = match entry {
            Some(EntryKind::File { size_bytes }) if size_bytes == file.size_bytes => None,
            Some(EntryKind::File { size_bytes }) => Some(("F02", format!("{size_bytes} bytes"))),
            Some(EntryKind::Directory) => Some(("F01", "a directory".to_owned())),
            Some(EntryKind::Other) => Some(("F01", "a link or special file".to_owned())),
            None => Some(("F01", "nothing".to_owned())),
        };
        is_whole.push(found.is_none());
        report.files_checked += u64::from(matches!(entry, Some(EntryKind::File { .. })));
        if let Some((rule, found)) = found {
            let expected = format!("a regular file of {} bytes", file.size_bytes);
            report.broken(rule, file.path, "", expected, found);
        }
    }
    Ok(is_whole)
}

/// Recomputes every BLAKE3, and the block digests that come with them. Holds the block digests of
/// one file at a time.
pub(super) fn check_digests(
    path: &Path,
    manifest: &Manifest,
    is_whole: &[bool],
    report: &mut Report,
    attend: &mut dyn FnMut() -> Result<()>,
) -> Result<()> {
    // digests.bin is the last of all files. Leaves are compared where it is right itself; else F01
    // to F03 say so.
    let mut known = None;
    if is_whole.last() == Some(&true)
        && check_root(path, manifest.digests.as_verified(), report, attend)?.is_some()
    {
        known = KnownLeaves::open(path, manifest, report)?;
    }
    for (number, (file, whole)) in manifest.verified_files().zip(is_whole).enumerate() {
        let found = if *whole { check_root(path, file, report, attend)? } else { None };
        if let (Some(known), Some(leaves)) = (&known, found) {
            known.compare(number, file.path, &leaves, report)?;
        }
    }
    Ok(())
}

/// The leaves of a file whose digest is the one in the manifest.
fn check_root(
    path: &Path,
    file: VerifiedFile<'_>,
    report: &mut Report,
    attend: &mut dyn FnMut() -> Result<()>,
) -> Result<Option<Vec<Digest>>> {
    let mut ended = None;
    let mut attend = || attend().inspect_err(|error| ended = Some(error.clone()));
    let digest = match digest_file(path, file, &mut attend) {
        Ok(digest) => digest,
        Err(_) if ended.is_some() => return ended.map_or(Ok(None), Err),
        Err(error) => return report.unreadable(file.path, error).map(|()| None),
    };
    report.bytes_checked += file.size_bytes;
    let found = to_hex(&digest.root);
    if found == file.blake3 {
        return Ok(Some(digest.leaves));
    }
    report.broken("F03", file.path, "", file.blake3, found);
    Ok(None)
}

fn digest_file(
    path: &Path,
    file: VerifiedFile<'_>,
    attend: &mut dyn FnMut() -> Result<()>,
) -> Result<FileDigest> {
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
    Ok(hasher.finish())
}

/// `digests.bin`, whose own digest is right.
struct KnownLeaves {
    file: ReadFile,
    layout: DigestLayout,
}

impl KnownLeaves {
    fn open(path: &Path, manifest: &Manifest, report: &mut Report) -> Result<Option<Self>> {
        let layout = manifest.digest_layout()?;
        let mut header = layout.header();
        let opened = ReadFile::open(&path.join(DIGESTS_FILE), IoMode::Pread)
            .and_then(|file| file.read_at(0, &mut header).map(|()| file));
        let file = match opened {
            Ok(file) => file,
            Err(error) => return report.unreadable(DIGESTS_FILE, error).map(|()| None),
        };
        if header != layout.header() {
            report.broken("F04", DIGESTS_FILE, "header", "the header of this version", "another");
        }
        Ok(Some(Self { file, layout }))
    }

    fn compare(
        &self,
        number: usize,
        name: &str,
        expected: &[Digest],
        report: &mut Report,
    ) -> Result<()> {
        let Some(start) = self.layout.start(number) else { return Ok(()) };
        let mut found = vec![0; expected.len() * 32];
        if let Err(error) = self.file.read_at(start, &mut found) {
            return report.unreadable(DIGESTS_FILE, error);
        }
        for (block, (expected, found)) in expected.iter().zip(found.as_chunks().0).enumerate() {
            if expected != found {
                let place = format!("{name}, block {block}");
                report.broken("F04", DIGESTS_FILE, place, to_hex(expected), to_hex(found));
            }
        }
        Ok(())
    }
}

/// The first bytes of `index.bin`.
pub(super) fn check_index_header(
    path: &Path,
    manifest: &Manifest,
    report: &mut Report,
) -> Result<()> {
    let mut header = [0; INDEX_HEADER_BYTES as usize];
    let opened = ReadFile::open(&path.join(INDEX_FILE), IoMode::Pread);
    if let Err(error) = opened.and_then(|file| file.read_at(0, &mut header)) {
        return report.unreadable(INDEX_FILE, error);
    }
    if header != encode_header(manifest.index_kind()) {
        let expected = format!("the header for {:?}", manifest.index_kind());
        report.broken("I01", INDEX_FILE, "header", expected, "another");
    }
    Ok(())
}
