//! Crafted caches: typed errors, bounded work, no wrong number trusted.

use super::*;
use crate::format::index::{IndexRecord, record_offset};
use crate::read::tests::support::{forge, forge_file};

fn small() -> Written {
    write(&Plan { narrow: true, rows: 20, shard_bytes: 2_500, ..Plan::default() })
}

#[test]
fn absurd_counts_are_told_at_once() {
    let written = small();
    let path = written.path();
    forge(&path, |manifest| {
        let more = 1 << 50;
        manifest.shards[1].rows += more;
        manifest.samples_total += more;
    });
    // The index must have the size of its records.
    let refused = examine(&path, Trust::Manifest, true, &mut never).unwrap_err();
    assert_eq!(refused.kind(), crate::Kind::Corrupt, "{refused}");
}

/// A manifest whose numbers agree, around files that hold next to nothing of it.
#[test]
fn rows_that_no_file_holds_are_one_loss_however_many() {
    let written = small();
    let path = written.path();
    let mut claimed = manifest(&path);
    let more = (1 << 36) - 20;
    claimed.shards[1].rows += more;
    claimed.samples_total += more;
    claimed.index.size_bytes = record_offset(claimed.samples_total);
    let layout = claimed.digest_layout().unwrap();
    claimed.digests.size_bytes = layout.size_bytes();
    overwrite(&path.join("manifest.json"), &claimed.encode().unwrap());
    let found = examine(&path, Trust::Manifest, true, &mut never).unwrap();
    assert_eq!(found.samples_total, 1 << 36);
    let [lost] = found.lost.as_slice() else { panic!("{:?}", found.lost) };
    let shards = manifest(&path).shards;
    let before_third = shards[0].rows + shards[1].rows;
    assert_eq!((lost.start, lost.stop), (shards[0].rows, before_third));
    assert_eq!(lost.file, "shards/000001.arrow");
}

/// Damage to the first `sample_id` of a shard behind one that is missing.
#[test]
fn a_gap_between_shards_is_one_loss_however_long() {
    let written = small();
    let path = written.path();
    let shards = manifest(&path).shards;
    assert!(shards.len() > 2);
    let first = shards[0].rows + shards[1].rows;
    let name = path.join(&shards[2].path);
    let mut bytes = fs::read(&name).unwrap();
    let ids = (first..first + shards[2].rows).flat_map(u64::to_le_bytes).collect::<Vec<_>>();
    let at = bytes.windows(ids.len()).position(|window| window == ids).unwrap();
    bytes[at + 7] = 0x40;
    overwrite(&name, &bytes);
    fs::remove_file(path.join(&shards[1].path)).unwrap();
    fs::remove_file(path.join("manifest.json")).unwrap();
    let found = examine(&path, Trust::Structure, true, &mut never).unwrap();
    assert_eq!(found.lost[0].start, shards[0].rows);
    assert_eq!(found.lost[0].stop, (0x40 << 56) + first);
    let kept = batches(&path, Trust::Structure, Selection::Survivors { with_ids: false }, &found);
    let kept: usize = kept.iter().map(RecordBatch::num_rows).sum();
    assert!(kept as u64 >= shards[0].rows);
}

#[test]
fn index_records_that_lie_cost_their_sample() {
    let lies = [
        IndexRecord::FileRange { offset: u64::MAX, stored_len: 8, raw_len: 8 },
        IndexRecord::FileRange { offset: 0, stored_len: u32::MAX, raw_len: 8 },
        IndexRecord::FileRange { offset: 64, stored_len: 8, raw_len: i32::MAX as u32 },
    ];
    for lie in lies {
        let written = small();
        let path = written.path();
        let start = record_offset(3) as usize;
        forge_file(&path, "index.bin", |bytes| {
            bytes[start..start + 16].copy_from_slice(&lie.encode());
        });
        let found = examine(&path, Trust::Manifest, true, &mut never).unwrap();
        assert_eq!(lost_rows(&found), [3], "{lie:?}");
    }
}

#[test]
fn every_number_of_an_arrow_file_may_lie() {
    let written = small();
    let path = written.path();
    let originals = files(&path);
    for name in ["shards/000000.arrow", "metadata.arrow"] {
        let bytes = fs::read(path.join(name)).unwrap();
        for at in (0..bytes.len()).step_by(8) {
            for value in [u64::MAX, 1 << 31] {
                forge_file(&path, name, |bytes| {
                    let end = (at + 8).min(bytes.len());
                    bytes[at..end].copy_from_slice(&value.to_le_bytes()[..end - at]);
                });
                for trust in [Trust::Manifest, Trust::Structure] {
                    if trust == Trust::Structure {
                        fs::remove_file(path.join("manifest.json")).unwrap();
                    }
                    let Ok(found) = examine(&path, trust, true, &mut never) else { continue };
                    let selection = Selection::Survivors { with_ids: false };
                    let rows: usize =
                        batches(&path, trust, selection, &found).iter().map(|b| b.num_rows()).sum();
                    assert_eq!(rows as u64, found.samples_total - found.samples_lost);
                }
                put_back(&path, &originals);
            }
        }
    }
}

#[test]
fn what_is_no_cache_is_told() {
    let directory = tempfile::TempDir::new().unwrap();
    for trust in [Trust::Manifest, Trust::Structure] {
        let error = examine(directory.path(), trust, true, &mut never).unwrap_err();
        assert_eq!(error.kind(), crate::Kind::NotFound);
    }
    fs::create_dir(directory.path().join("shards")).unwrap();
    let error = examine(directory.path(), Trust::Structure, true, &mut never).unwrap_err();
    assert_eq!(error.kind(), crate::Kind::Corrupt);
    fs::write(directory.path().join("shards/999999.arrow"), "").unwrap();
    let error = examine(directory.path(), Trust::Structure, true, &mut never).unwrap_err();
    assert!(error.message().contains("999999"), "{error}");
}

#[test]
fn an_interrupt_ends_the_work() {
    let written = small();
    let mut stop = || Err(crate::Error::conflict("stop"));
    let error = examine(&written.path(), Trust::Manifest, true, &mut stop).unwrap_err();
    assert_eq!(error.message(), "stop");
}
