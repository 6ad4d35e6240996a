//! BLAKE3 of a file and, from the same pass, the digests of its 64 KiB blocks.
//! Knows nothing of what the bytes mean.
//!
//! BLAKE3 is itself a tree: the chaining value of an aligned 64 KiB block is an inner node of the
//! file's own hash. Keeping those nodes ("leaves") lets a reader check one block against the
//! file's root, and a writer gets root and leaves for the price of hashing once. `b3sum FILE`
//! agrees with the root.

use blake3::Hasher;
use blake3::hazmat::{
    ChainingValue, HasherExt, Mode, merge_subtrees_non_root, merge_subtrees_root,
};

use super::limits::{BLOCK_BYTES, FORMAT_VERSION};
use crate::{Error, Result};

/// A BLAKE3 hash: of a whole file, or the chaining value of one block.
pub type Digest = [u8; 32];

/// First bytes of `digests.bin`.
pub const DIGESTS_MAGIC: [u8; 8] = *b"DRTBLOCK";
/// Bytes before the first leaf in `digests.bin`.
pub const DIGESTS_HEADER_BYTES: u64 = 64;

/// Size, root and leaves of one finished file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileDigest {
    /// Length of the file in bytes.
    pub size_bytes: u64,
    /// BLAKE3 of the whole file.
    pub root: Digest,
    /// One chaining value per block; empty when the file is a single block, whose root says all.
    pub leaves: Vec<Digest>,
}

/// Leaves that a file of `size_bytes` has.
pub fn leaf_count(size_bytes: u64) -> u64 {
    if size_bytes <= BLOCK_BYTES { 0 } else { size_bytes.div_ceil(BLOCK_BYTES) }
}

/// Blocks that a file of `size_bytes` has.
pub fn block_count(size_bytes: u64) -> u64 {
    size_bytes.div_ceil(BLOCK_BYTES)
}

/// Hashes a file as it is written, in one pass.
#[derive(Default)]
pub struct FileHasher {
    block: Hasher,
    block_filled: u64,
    size_bytes: u64,
    leaves: Vec<Digest>,
}

impl FileHasher {
    /// Takes the next bytes of the file.
    pub fn update(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            if self.block_filled == BLOCK_BYTES {
                self.close_block();
                self.open_block();
            }
            let room = (BLOCK_BYTES - self.block_filled) as usize;
            let (now, later) = bytes.split_at(room.min(bytes.len()));
            self.block.update(now);
            self.block_filled += now.len() as u64;
            self.size_bytes += now.len() as u64;
            bytes = later;
        }
    }

    /// Bytes taken so far.
    pub fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    fn close_block(&mut self) {
        self.leaves.push(self.block.finalize_non_root());
        self.block_filled = 0;
    }

    fn open_block(&mut self) {
        // Not `reset`: it would keep the old offset in its count of bytes.
        self.block = Hasher::new();
        self.block.set_input_offset(self.size_bytes);
    }

    /// Size, root and leaves of what was taken.
    pub fn finish(mut self) -> FileDigest {
        let size_bytes = self.size_bytes;
        if self.leaves.is_empty() {
            let root = *self.block.finalize().as_bytes();
            return FileDigest { size_bytes, root, leaves: Vec::new() };
        }
        self.close_block();
        FileDigest { size_bytes, root: root_of_leaves(&self.leaves), leaves: self.leaves }
    }
}

/// The root that two or more leaves lead to.
fn root_of_leaves(leaves: &[Digest]) -> Digest {
    let (left, right) = leaves.split_at(left_leaves(leaves.len()));
    *merge_subtrees_root(&subtree(left), &subtree(right), Mode::Hash).as_bytes()
}

fn subtree(leaves: &[Digest]) -> ChainingValue {
    match leaves {
        [only] => *only,
        _ => {
            // Depth is log2 of the leaf count: a recursion of at most 48 levels.
            let (left, right) = leaves.split_at(left_leaves(leaves.len()));
            merge_subtrees_non_root(&subtree(left), &subtree(right), Mode::Hash)
        }
    }
}

/// Largest power of two below `count`: how BLAKE3 splits its tree.
fn left_leaves(count: usize) -> usize {
    count.next_power_of_two() / 2
}

/// Whether `leaves` are those of a file with this size and root.
pub fn leaves_match(leaves: &[Digest], size_bytes: u64, root: &Digest) -> bool {
    leaves.len() as u64 == leaf_count(size_bytes)
        && leaves.len() >= 2
        && root_of_leaves(leaves) == *root
}

/// Digest to compare for block `index` of a file: its leaf, or the root when it is the only one.
pub fn block_digest(index: u64, bytes: &[u8], file_size_bytes: u64) -> Digest {
    let mut hasher = Hasher::new();
    if leaf_count(file_size_bytes) == 0 {
        return *hasher.update(bytes).finalize().as_bytes();
    }
    hasher.set_input_offset(index * BLOCK_BYTES);
    hasher.update(bytes).finalize_non_root()
}

/// The header of `digests.bin`. Counts are not in it, so that leaves are written as files close.
pub fn encode_digests_header() -> [u8; DIGESTS_HEADER_BYTES as usize] {
    let mut header = [0; DIGESTS_HEADER_BYTES as usize];
    header[..8].copy_from_slice(&DIGESTS_MAGIC);
    header[8..16].copy_from_slice(&FORMAT_VERSION.to_le_bytes());
    header[16..24].copy_from_slice(&BLOCK_BYTES.to_le_bytes());
    header
}

/// Where the leaves of each file lie in `digests.bin`, in manifest order.
#[derive(Clone, Debug)]
pub struct DigestLayout {
    starts: Vec<u64>,
    size_bytes: u64,
}

impl DigestLayout {
    /// Lays out the leaves of files with these sizes.
    ///
    /// # Errors
    /// `Corrupt` when the sizes overflow.
    pub fn new(sizes_bytes: impl IntoIterator<Item = u64>) -> Result<Self> {
        let mut starts = Vec::new();
        let mut leaves = 0_u64;
        let place = |leaves: u64| {
            leaves.checked_mul(32).and_then(|bytes| bytes.checked_add(DIGESTS_HEADER_BYTES))
        };
        let overflow = || Error::corrupt("the manifest's file sizes overflow; rebuild the cache");
        for size in sizes_bytes {
            starts.push(place(leaves).ok_or_else(overflow)?);
            leaves = leaves.checked_add(leaf_count(size)).ok_or_else(overflow)?;
        }
        Ok(Self { starts, size_bytes: place(leaves).ok_or_else(overflow)? })
    }

    /// Byte offset of the first leaf of file number `file`.
    pub fn start(&self, file: usize) -> Option<u64> {
        self.starts.get(file).copied()
    }

    /// Size that `digests.bin` must have.
    pub fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    /// The header that `digests.bin` must have.
    pub fn header(&self) -> [u8; DIGESTS_HEADER_BYTES as usize] {
        encode_digests_header()
    }
}

/// Lower-case hexadecimal form of a digest.
pub fn to_hex(digest: &Digest) -> String {
    blake3::Hash::from_bytes(*digest).to_hex().to_string()
}

/// Reads 64 lower-case hexadecimal digits.
pub fn from_hex(text: &str) -> Option<Digest> {
    if text.bytes().any(|b| b.is_ascii_uppercase()) {
        return None;
    }
    blake3::Hash::from_hex(text).ok().map(|hash| *hash.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn bytes(len: usize) -> Vec<u8> {
        (0..len).map(|i| (i * 31 + i / 251) as u8).collect()
    }

    fn digest_of(data: &[u8], piece: usize) -> FileDigest {
        let mut hasher = FileHasher::default();
        data.chunks(piece.max(1)).for_each(|c| hasher.update(c));
        hasher.finish()
    }

    #[test]
    fn root_agrees_with_plain_blake3_at_every_boundary() {
        let block = BLOCK_BYTES as usize;
        for blocks in 0..=9 {
            for delta in [-1_i64, 0, 1] {
                let len = (blocks * block) as i64 + delta;
                if len < 0 {
                    continue;
                }
                let data = bytes(len as usize);
                let digest = digest_of(&data, 10_007);
                assert_eq!(&digest.root, blake3::hash(&data).as_bytes(), "{len}");
                assert_eq!(digest.leaves.len() as u64, leaf_count(len as u64), "{len}");
            }
        }
    }

    #[test]
    fn every_leaf_is_checkable_alone_and_bound_to_its_place() {
        let data = bytes(5 * BLOCK_BYTES as usize + 17);
        let digest = digest_of(&data, usize::MAX);
        assert!(leaves_match(&digest.leaves, digest.size_bytes, &digest.root));
        for (i, block) in data.chunks(BLOCK_BYTES as usize).enumerate() {
            assert_eq!(block_digest(i as u64, block, digest.size_bytes), digest.leaves[i]);
            assert_ne!(block_digest(i as u64 + 1, block, digest.size_bytes), digest.leaves[i]);
        }
        let mut swapped = digest.leaves.clone();
        swapped.swap(0, 1);
        assert!(!leaves_match(&swapped, digest.size_bytes, &digest.root));
        assert!(!leaves_match(&[], digest.size_bytes, &digest.root));
    }

    #[test]
    fn layout_refuses_overflowing_sizes() {
        assert!(DigestLayout::new([u64::MAX, u64::MAX]).is_ok());
        assert!(DigestLayout::new(vec![u64::MAX; 1 << 12]).is_err());
        let layout = DigestLayout::new([10, BLOCK_BYTES * 3, 5]).unwrap();
        assert_eq!(layout.start(2), Some(64 + 96));
        assert_eq!(layout.size_bytes(), 64 + 96);
    }

    proptest! {
        #[test]
        fn pieces_do_not_change_the_digest(len in 0_usize..300_000, piece in 1_usize..100_000) {
            let data = bytes(len);
            prop_assert_eq!(digest_of(&data, piece), digest_of(&data, usize::MAX));
        }
    }
}
