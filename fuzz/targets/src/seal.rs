//! Digests made right around wrong bytes, so that inputs reach what lies behind the digests.

use std::collections::BTreeMap;

use dataset_rt_storage::format::digest::{FileHasher, encode_digests_header, to_hex};
use dataset_rt_storage::format::manifest::{DIGESTS_FILE, Manifest};

const KEY: &[u8] = b"\n  \"manifest_blake3\": \"";
const END: &[u8] = b"\"\n}\n";

/// The bytes of a cache's files by path, without the manifest.
pub type Files = BTreeMap<String, Vec<u8>>;

/// Size, root and leaves of `bytes`, each in the form that files have.
fn digest_of(bytes: &[u8]) -> (u64, String, Vec<u8>) {
    let mut hasher = FileHasher::default();
    hasher.update(bytes);
    let digest = hasher.finish();
    (digest.size_bytes, to_hex(&digest.root), digest.leaves.concat())
}

/// `digests.bin` of these files.
pub fn block_digests(manifest: &Manifest, files: &Files) -> Vec<u8> {
    let mut digests = encode_digests_header().to_vec();
    for file in manifest.verified_files() {
        digests.extend(digest_of(&files[file.path]).2);
    }
    digests
}

/// Writes the sizes and digests of `files` into the manifest.
pub fn seal(manifest: &mut Manifest, files: &Files) {
    for shard in &mut manifest.shards {
        (shard.size_bytes, shard.blake3, _) = digest_of(&files[&shard.path]);
    }
    let others = [&mut manifest.metadata, &mut manifest.index];
    for file in others.into_iter().chain(manifest.dictionary.as_mut()) {
        (file.size_bytes, file.blake3, _) = digest_of(&files[&file.path]);
    }
    (manifest.digests.size_bytes, manifest.digests.blake3, _) = digest_of(&files[DIGESTS_FILE]);
}

/// Puts the manifest's own digest where it belongs; appends it where there is no place for it.
pub fn seal_text(text: &mut Vec<u8>) {
    let end = text.len().saturating_sub(64 + END.len());
    if !(text.ends_with(END) && text[..end].ends_with(KEY)) {
        text.truncate(text.iter().rposition(|byte| *byte == b'}').unwrap_or(text.len()));
        text.push(b',');
        text.extend([KEY, &[b'0'; 64], END].concat());
    }
    let start = text.len() - END.len() - 64;
    text[start..start + 64].fill(b'0');
    let digest = blake3::hash(text).to_hex();
    text[start..start + 64].copy_from_slice(digest.as_bytes());
}
