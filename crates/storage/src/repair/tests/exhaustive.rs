//! Every byte of small caches flipped, every file cut short, missing or exchanged.

use super::*;

fn small(compression: Compression, dictionary: bool) -> Plan {
    Plan {
        rows: if dictionary { 60 } else { 7 },
        payload_bytes: 60,
        batch_rows: if dictionary { 30 } else { 2 },
        shard_bytes: if dictionary { 5_000 } else { 2_000 },
        compression,
        dictionary,
        narrow: true,
    }
}

/// Rows whose payload is not empty, of shard `number`, or of all.
fn rows_with_payload(written: &Written, shard: Option<usize>) -> Vec<u64> {
    let manifest = manifest(&written.path());
    let mut first = 0;
    let mut rows = Vec::new();
    for (number, entry) in manifest.shards.iter().enumerate() {
        let of_shard = first..first + entry.rows;
        first = of_shard.end;
        if shard.is_none_or(|shard| shard == number) {
            rows.extend(of_shard.filter(|row| !written.payloads[*row as usize].is_empty()));
        }
    }
    rows
}

/// What the damage of a file of one block must cost.
fn expected(written: &Written, name: &str) -> (Vec<u64>, FileState) {
    match name.strip_prefix("shards/").and_then(|name| name.strip_suffix(".arrow")) {
        Some(number) => (rows_with_payload(written, number.parse().ok()), FileState::Lost),
        None if name == "dictionary.bin" => (rows_with_payload(written, None), FileState::Lost),
        None => (Vec::new(), FileState::Restorable),
    }
}

fn check_damaged(written: &Written, name: &str, at: usize) {
    let check = if at.is_multiple_of(29) { check_all } else { check };
    let found = check(written, Trust::Manifest);
    let (lost, state) = expected(written, name);
    assert_eq!(states(&found), [(name, state)], "{name}");
    assert_eq!(lost_rows(&found), lost, "{name}");
}

#[test]
fn every_flipped_byte_costs_what_it_must_and_no_more() {
    for (compression, dictionary) in compressions() {
        let written = write(&small(compression, dictionary));
        let path = written.path();
        let originals = files(&path);
        assert!(originals.iter().filter(|(name, _)| name.starts_with("shards/")).count() > 1);
        assert!(states(&check(&written, Trust::Manifest)).is_empty());
        for (name, bytes) in &originals {
            // The long ones are a long series of the same, and lz4 differs from zstd in frames only.
            let step = match (dictionary, compression.algo) {
                (true, _) => 17,
                (_, Algo::Lz4) => 5,
                _ => 1,
            };
            for at in (0..bytes.len()).step_by(step) {
                let mut damaged = bytes.clone();
                damaged[at] ^= 1 << (at % 8);
                overwrite(&path.join(name), &damaged);
                if name == "manifest.json" {
                    let refused = examine(&path, Trust::Manifest, true, &mut never).unwrap_err();
                    assert_eq!(refused.kind(), crate::Kind::Corrupt, "byte {at}: {refused}");
                    if at % 40 == 0 {
                        assert!(check(&written, Trust::Structure).lost.is_empty());
                    }
                } else {
                    check_damaged(&written, name, at);
                }
            }
            overwrite(&path.join(name), bytes);
        }
    }
}

#[test]
fn files_cut_short_extended_missing_and_exchanged() {
    for (compression, dictionary) in compressions() {
        let written = write(&small(compression, dictionary));
        let path = written.path();
        let originals = files(&path);
        for (name, bytes) in originals.iter().filter(|(name, _)| name != "manifest.json") {
            for len in (0..bytes.len()).step_by(41) {
                overwrite(&path.join(name), &bytes[..len]);
                check_damaged(&written, name, len);
            }
            // Nothing of an extended file is gone.
            let mut longer = bytes.clone();
            longer.extend_from_slice(b"more");
            overwrite(&path.join(name), &longer);
            let found = check(&written, Trust::Manifest);
            assert_eq!(states(&found).len(), 1);
            assert!(found.lost.is_empty(), "{name}");
            fs::remove_file(path.join(name)).unwrap();
            check_damaged(&written, name, 0);
            std::os::unix::fs::symlink(path.join("manifest.json"), path.join(name)).unwrap();
            check_damaged(&written, name, 0);
            put_back(&path, &originals);
        }
        let shards: Vec<_> =
            originals.iter().filter(|(name, _)| name.starts_with("shards/")).collect();
        overwrite(&path.join(&shards[0].0), &shards[1].1);
        overwrite(&path.join(&shards[1].0), &shards[0].1);
        let mut lost = rows_with_payload(&written, Some(0));
        lost.extend(rows_with_payload(&written, Some(1)));
        let found = check(&written, Trust::Manifest);
        assert_eq!(lost_rows(&found), lost);
        assert!(found.files[0].reason.contains("shards/000001.arrow must hold"), "{found:?}");
        put_back(&path, &originals);
        // All that can be derived, at once.
        for name in ["index.bin", "metadata.arrow", "digests.bin"] {
            fs::remove_file(path.join(name)).unwrap();
        }
        let found = check(&written, Trust::Manifest);
        assert!(found.files.iter().all(|finding| finding.state == FileState::Restorable));
        assert!(found.lost.is_empty());
        // Then the columns of a shard's rows are lost with it.
        fs::remove_file(path.join("shards/000000.arrow")).unwrap();
        let rows = manifest(&path).shards[0].rows;
        let found = check(&written, Trust::Manifest);
        assert_eq!(lost_rows(&found), (0..rows).collect::<Vec<_>>());
        assert!(
            found.files.iter().all(|finding| {
                finding.state == FileState::Lost || finding.file == "digests.bin"
            })
        );
    }
}

#[test]
fn a_cache_without_manifest_is_salvaged_unproven_when_asked() {
    for (compression, dictionary) in compressions() {
        let written = write(&small(compression, dictionary));
        let path = written.path();
        let originals = files(&path);
        fs::remove_file(path.join("manifest.json")).unwrap();
        let refused = examine(&path, Trust::Manifest, true, &mut never).unwrap_err();
        assert!(refused.message().contains("--unproven"), "{refused}");
        for missing in ["", "index.bin", "metadata.arrow", "digests.bin"] {
            let _ = fs::remove_file(path.join(missing));
            let found = check(&written, Trust::Structure);
            assert!(found.lost.is_empty() && !found.is_proven);
        }
        put_back(&path, &originals);
        let entries = manifest(&path).shards;
        fs::remove_file(path.join("manifest.json")).unwrap();
        let mut first = 0;
        for entry in &entries {
            fs::remove_file(path.join(&entry.path)).unwrap();
            let lost: Vec<u64> = (first..first + entry.rows).collect();
            assert_eq!(lost_rows(&check(&written, Trust::Structure)), lost, "{}", entry.path);
            put_back(&path, &originals);
            fs::remove_file(path.join("manifest.json")).unwrap();
            first += entry.rows;
        }
    }
}
