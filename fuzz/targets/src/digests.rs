//! Block digests and index records.

use dataset_rt_storage::format::digest::{
    DigestLayout, FileHasher, block_digest, from_hex, leaf_count, leaves_match, to_hex,
};
use dataset_rt_storage::format::index::{
    INDEX_RECORD_BYTES, IndexKind, IndexRecord, index_size_bytes,
};
use dataset_rt_storage::format::limits::{BLOCK_BYTES, PAYLOAD_BYTES_MAX};

use crate::edits::{Input, edit_all};

/// The first byte says what the others are.
pub fn run(input: &[u8]) {
    let mut input = Input::new(input);
    match input.byte() % 4 {
        0 => check_layout(&mut input),
        1 => check_leaves(&mut input),
        2 => check_records(input.rest()),
        _ => {
            let text = String::from_utf8_lossy(input.rest());
            if let Some(digest) = from_hex(&text) {
                assert_eq!(to_hex(&digest), text);
            }
        }
    }
}

fn check_layout(input: &mut Input<'_>) {
    let mut sizes = Vec::new();
    while !input.is_empty() {
        sizes.push(input.number());
    }
    let Ok(layout) = DigestLayout::new(sizes.iter().copied()) else { return };
    let leaves: u64 = sizes.iter().map(|size| leaf_count(*size)).sum();
    assert_eq!(layout.size_bytes(), 64 + 32 * leaves);
    let mut expected = 64;
    for (file, size) in sizes.iter().enumerate() {
        assert_eq!(layout.start(file), Some(expected));
        expected += 32 * leaf_count(*size);
    }
    assert_eq!(layout.start(sizes.len()), None);
}

/// Only the true leaves lead to the root, and only the true block to its leaf.
fn check_leaves(input: &mut Input<'_>) {
    let len = usize::from(input.short()) * 8;
    let data: Vec<u8> = (0..len).map(|i| (i / 251) as u8).collect();
    let mut hasher = FileHasher::default();
    hasher.update(&data);
    let digest = hasher.finish();
    let mut leaves = digest.leaves.concat();
    edit_all(input, &mut leaves, 4);
    let (whole, rest) = leaves.as_chunks::<32>();
    let is_true = rest.is_empty() && whole == digest.leaves && digest.leaves.len() >= 2;
    let size = digest.size_bytes;
    assert_eq!(rest.is_empty() && leaves_match(whole, size, &digest.root), is_true);
    let blocks = data.chunks(BLOCK_BYTES as usize).zip(&digest.leaves).zip(whole);
    for (index, ((block, true_leaf), leaf)) in blocks.enumerate() {
        assert_eq!(block_digest(index as u64, block, size) == *leaf, true_leaf == leaf);
    }
}

fn check_records(bytes: &[u8]) {
    for record in bytes.as_chunks::<{ INDEX_RECORD_BYTES as usize }>().0 {
        for kind in [IndexKind::FileRange, IndexKind::BatchRange] {
            match IndexRecord::decode(kind, *record) {
                Ok(decoded) => {
                    assert!(u64::from(decoded.raw_len()) <= PAYLOAD_BYTES_MAX);
                    assert_eq!(decoded.encode(), *record);
                }
                Err(_) => assert!(record[15] >= 0x80),
            }
        }
        let rows = u64::from_le_bytes(record[..8].try_into().expect("8 of 16 bytes"));
        if let Some(size) = index_size_bytes(rows) {
            assert_eq!((size - 64) / INDEX_RECORD_BYTES, rows);
        }
    }
}

pub fn seeds() -> Vec<Vec<u8>> {
    let record = IndexRecord::FileRange { offset: 0x0102, stored_len: 7, raw_len: 9 };
    vec![
        vec![0, 16, 16, 17, 18, 2, 4, 5],
        vec![1, 0xff, 0xff],
        vec![1, 0, 0x20],
        vec![1, 1, 0x20, 15, 0, 0, 3],
        [&[2], record.encode().as_slice(), &[0xff; 16]].concat(),
        [&[3], "0123456789abcdef".repeat(4).as_bytes()].concat(),
        [&[3], "0123456789ABCDEF".repeat(4).as_bytes()].concat(),
    ]
}
