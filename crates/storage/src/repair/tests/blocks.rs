//! Files of many blocks: damage costs the samples of its blocks, and nothing that is held twice.

use std::ops::Range;

use proptest::prelude::*;

use super::*;
use crate::format::index::{INDEX_RECORD_BYTES, IndexRecord, record_offset};
use crate::format::limits::BLOCK_BYTES;

fn large(compression: Compression, dictionary: bool) -> Plan {
    Plan {
        rows: 150,
        payload_bytes: 9_000,
        batch_rows: 8,
        shard_bytes: 180_000,
        compression,
        dictionary,
        narrow: false,
    }
}

/// Many rows, so that metadata and index have several blocks.
fn long() -> Plan {
    Plan { rows: 9_000, batch_rows: 1_000, shard_bytes: 500_000, ..Plan::default() }
}

/// Where each payload lies in its file; `None` for those of whole compressed buffers.
fn places(written: &Written) -> Option<Vec<(usize, Range<u64>)>> {
    let manifest = manifest(&written.path());
    let index = fs::read(written.path().join("index.bin")).unwrap();
    let mut places = Vec::new();
    for (shard, entry) in manifest.shards.iter().enumerate() {
        for _ in 0..entry.rows {
            let start = record_offset(places.len() as u64) as usize;
            let bytes = index[start..start + INDEX_RECORD_BYTES as usize].try_into().unwrap();
            match IndexRecord::decode(manifest.index_kind(), bytes).unwrap() {
                IndexRecord::FileRange { offset, stored_len, .. } => {
                    places.push((shard, offset..offset + u64::from(stored_len)));
                }
                IndexRecord::BatchRange { .. } => return None,
            }
        }
    }
    Some(places)
}

/// Rows whose payload touches bytes `damaged` of shard `number`.
fn touched(places: &[(usize, Range<u64>)], number: usize, damaged: &Range<u64>) -> Vec<u64> {
    let is_touched = |(shard, range): &(usize, Range<u64>)| {
        *shard == number
            && !range.is_empty()
            && range.start < damaged.end
            && damaged.start < range.end
    };
    (0..places.len()).filter(|row| is_touched(&places[*row])).map(|row| row as u64).collect()
}

fn flip(path: &Path, name: &str, at: u64) {
    let mut bytes = fs::read(path.join(name)).unwrap();
    bytes[at as usize] ^= 0x10;
    overwrite(&path.join(name), &bytes);
}

#[test]
fn a_damaged_block_costs_the_payloads_in_it() {
    for (compression, dictionary) in compressions() {
        let written = write(&large(compression, dictionary));
        let (path, places) = (written.path(), places(&written));
        let originals = files(&path);
        let shards = manifest(&path).shards;
        for (number, shard) in shards.iter().enumerate().take(2) {
            assert!(shard.size_bytes > BLOCK_BYTES, "{shard:?}");
            for block in 0..shard.size_bytes.div_ceil(BLOCK_BYTES) {
                let damaged =
                    block * BLOCK_BYTES..((block + 1) * BLOCK_BYTES).min(shard.size_bytes);
                flip(&path, &shard.path, damaged.start + block * 97);
                let lost = lost_rows(&check_all(&written, Trust::Manifest));
                match &places {
                    Some(places) => assert_eq!(lost, touched(places, number, &damaged), "{block}"),
                    None => assert!(lost.len() < shard.rows as usize, "{block}"),
                }
                put_back(&path, &originals);
            }
        }
        // Cut short: what lies in whole blocks before the cut is still there.
        let shard = &shards[0];
        for size in [0, 1, BLOCK_BYTES - 1, BLOCK_BYTES, BLOCK_BYTES + 1, shard.size_bytes - 1] {
            let bytes = fs::read(path.join(&shard.path)).unwrap();
            overwrite(&path.join(&shard.path), &bytes[..size as usize]);
            let lost = lost_rows(&check_all(&written, Trust::Manifest));
            if let Some(places) = &places {
                let damaged = size - size % BLOCK_BYTES..u64::MAX;
                assert_eq!(lost, touched(places, 0, &damaged), "{size}");
            }
            put_back(&path, &originals);
        }
        // Neither footer nor index: batches are found by walking from the start.
        let bytes = fs::read(path.join(&shard.path)).unwrap();
        overwrite(&path.join(&shard.path), &bytes[..bytes.len() - 1]);
        fs::remove_file(path.join("index.bin")).unwrap();
        let lost = lost_rows(&check_all(&written, Trust::Manifest));
        assert!(lost.len() < shard.rows as usize, "{lost:?}");
    }
}

#[test]
fn what_is_held_twice_is_lost_twice() {
    let written = write(&long());
    let path = written.path();
    let originals = files(&path);
    let entries = manifest(&path);
    assert!(entries.metadata.size_bytes > 3 * BLOCK_BYTES);
    assert!(entries.index.size_bytes > 2 * BLOCK_BYTES);
    for name in ["metadata.arrow", "index.bin"] {
        let size = fs::metadata(path.join(name)).unwrap().len();
        for at in (0..size).step_by(BLOCK_BYTES as usize / 2) {
            flip(&path, name, at);
            let found = check_all(&written, Trust::Manifest);
            assert_eq!(states(&found), [(name, FileState::Restorable)]);
            put_back(&path, &originals);
        }
    }
    // The same columns damaged in both places: some rows are lost, most are not.
    let shard = &entries.shards[0];
    flip(&path, "metadata.arrow", BLOCK_BYTES + 5);
    flip(&path, &shard.path, BLOCK_BYTES + 5);
    let found = check_all(&written, Trust::Manifest);
    assert!(found.files.iter().all(|finding| finding.file != "digests.bin"));
    assert!((1..2_000).contains(&found.samples_lost), "{}", found.samples_lost);
    // Without an index and without block digests the shard's own structure must do.
    fs::remove_file(path.join("index.bin")).unwrap();
    assert!(check_all(&written, Trust::Manifest).samples_lost < 2_500);
    put_back(&path, &originals);
    // Damage and no leaves: nothing tells which block it is.
    flip(&path, &shard.path, BLOCK_BYTES + 5);
    flip(&path, "digests.bin", 64 + 32);
    let found = check_all(&written, Trust::Manifest);
    assert!(found.lost.iter().all(|lost| lost.file == shard.path));
    assert_eq!(found.lost.last().unwrap().stop, shard.rows);
}

#[derive(Clone, Debug)]
enum Damage {
    Flip(usize, u64),
    Cut(usize, u64),
    Remove(usize),
    Exchange(usize, usize),
}

fn damage() -> impl Strategy<Value = Damage> {
    let number = 0..16_usize;
    prop_oneof![
        6 => (number.clone(), any::<u64>()).prop_map(|(file, at)| Damage::Flip(file, at)),
        2 => (number.clone(), any::<u64>()).prop_map(|(file, at)| Damage::Cut(file, at)),
        1 => number.clone().prop_map(Damage::Remove),
        1 => (number.clone(), number).prop_map(|(a, b)| Damage::Exchange(a, b)),
    ]
}

fn inflict(path: &Path, names: &[String], damage: &Damage) {
    let name = |file: usize| &names[file % names.len()];
    let read = |file: usize| fs::read(path.join(name(file))).unwrap_or_default();
    let put = |file: usize, bytes: &[u8]| fs::write(path.join(name(file)), bytes).unwrap();
    match *damage {
        Damage::Flip(file, at) => {
            let mut bytes = read(file);
            if !bytes.is_empty() {
                let at = (at % bytes.len() as u64) as usize;
                bytes[at] ^= 1;
                put(file, &bytes);
            }
        }
        Damage::Cut(file, at) => {
            let bytes = read(file);
            let len = at % (bytes.len() as u64 + 1);
            put(file, &bytes[..len as usize]);
        }
        Damage::Remove(file) => {
            let _ = fs::remove_file(path.join(name(file)));
        }
        Damage::Exchange(a, b) => {
            let (first, second) = (read(a), read(b));
            put(a, &second);
            put(b, &first);
        }
    }
}

#[test]
fn random_damage_never_gives_a_wrong_sample() {
    let plans = [large(Compression::default(), false), long()];
    let framed = compressions().into_iter().skip(2).map(|(c, d)| large(c, d));
    for plan in plans.into_iter().chain(framed) {
        let written = write(&plan);
        let path = written.path();
        let originals = files(&path);
        let names: Vec<String> = originals
            .iter()
            .map(|(name, _)| name.clone())
            .filter(|n| n != "manifest.json")
            .collect();
        let places = places(&written);
        let config = ProptestConfig { cases: 6, failure_persistence: None, ..Default::default() };
        let damages = prop::collection::vec(damage(), 1..5);
        let mut runner = proptest::test_runner::TestRunner::new(config);
        runner
            .run(&damages, |damages| {
                damages.iter().for_each(|damage| inflict(&path, &names, damage));
                let found = check_all(&written, Trust::Manifest);
                let damaged: Vec<_> = states(&found).iter().map(|(name, _)| *name).collect();
                // Whoever lies in a sound shard is lost only where tables or dictionary are.
                let is_shard = |name: &&str| name.starts_with("shards/");
                if let (Some(places), true) = (&places, damaged.iter().all(is_shard)) {
                    for row in lost_rows(&found) {
                        let shard = &manifest(&path).shards[places[row as usize].0];
                        prop_assert!(damaged.contains(&shard.path.as_str()));
                    }
                }
                let is_same = |name: &str| {
                    let original = originals.iter().find(|(n, _)| n == name);
                    fs::read(path.join(name)).ok().as_ref() == original.map(|(_, bytes)| bytes)
                };
                for name in &names {
                    prop_assert_eq!(!damaged.contains(&name.as_str()), is_same(name), "{}", name);
                }
                put_back(&path, &originals);
                Ok(())
            })
            .unwrap();
    }
}
