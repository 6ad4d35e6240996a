//! Caches whose digests are right and whose contents lie: typed errors, never foreign bytes.

use std::fs;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{ArrayRef, LargeBinaryArray, LargeStringArray, RecordBatch};

use super::support::{
    COPIED, MAPPED, Plan, Written, compression, forge, forge_file, overwrite, write,
};
use crate::format::codec::{Algo, Scope};
use crate::format::index::{IndexKind, IndexRecord};
use crate::format::ipc::{BodyCompression, encode_batch, file_head, file_tail};
use crate::format::manifest::{INDEX_FILE, METADATA_FILE};
use crate::read::{Cache, Fetcher, PayloadPlace};
use crate::{Error, Kind, Result};

fn read_row(written: &Written, row: u64) -> Vec<Result<usize>> {
    let read = |options| {
        let cache = Cache::open(written.path(), options)?;
        let payload = cache.payload(&cache.locate(row)?, &mut Fetcher::new())?;
        Ok(payload.as_view().len())
    };
    [&MAPPED, &COPIED].map(read).into()
}

fn set_record(written: &Written, row: usize, record: IndexRecord) {
    forge_file(&written.path(), INDEX_FILE, |bytes| {
        bytes[64 + 16 * row..][..16].copy_from_slice(&record.encode());
    });
}

fn assert_corrupt(found: &Error, word: &str) {
    assert_eq!(found.kind(), Kind::Corrupt, "{found}");
    assert!(found.message().contains(word), "{found}; expected {word:?}");
}

#[test]
fn forging_alone_changes_nothing() {
    let written = write(&Plan { rows: 9, payload_bytes: 90_000, ..Plan::default() });
    forge(&written.path(), |_| {});
    written.check(&written.open(&MAPPED)).unwrap();
}

#[test]
fn index_records_that_lie_are_refused() {
    let written = write(&Plan::default());
    let shard_bytes = fs::metadata(written.path().join("shards/000000.arrow")).unwrap().len();
    let direct =
        |offset, stored_len, raw_len| IndexRecord::FileRange { offset, stored_len, raw_len };
    let lies = [
        (direct(shard_bytes - 1, 2, 2), "index names"),
        (direct(shard_bytes + 1, 0, 0), "index names"),
        (direct(u64::MAX, 2, 2), "index names"),
        (direct(u64::MAX - 1, u32::MAX, 9), "index names"),
        (direct(0, 9, 10), "equal numbers"),
        (direct(0, 10, 9), "equal numbers"),
        (direct(0, 1 << 30, 1 << 30), "index names a payload"),
        (direct(0, 0, u32::MAX), "index record names"),
    ];
    for (record, word) in lies {
        set_record(&written, 3, record);
        for found in read_row(&written, 3) {
            assert_corrupt(&found.unwrap_err(), word);
        }
        for found in read_row(&written, 4) {
            assert_eq!(found.unwrap(), written.payloads[4].len());
        }
    }
}

#[test]
fn raw_lengths_that_lie_are_refused_in_every_compression() {
    for algo in [Algo::Lz4, Algo::Zstd] {
        let compression = compression(algo, Scope::Payload);
        let written = write(&Plan { payload_bytes: 300, compression, ..Plan::default() });
        let cache = written.open(&MAPPED);
        let IndexRecord::FileRange { offset, stored_len, raw_len } =
            cache.locate(3).unwrap().record
        else {
            panic!("payload scope has file ranges");
        };
        drop(cache);
        let lies = [
            (offset, stored_len, raw_len + 1),
            (offset, stored_len, raw_len - 1),
            (offset, stored_len, 0),
            (offset, stored_len - 1, raw_len),
            (offset, stored_len + 1, raw_len),
            (offset + 1, stored_len, raw_len),
            (offset, 0, raw_len),
            (offset, 1, raw_len),
        ];
        for (offset, stored_len, raw_len) in lies {
            set_record(&written, 3, IndexRecord::FileRange { offset, stored_len, raw_len });
            for found in read_row(&written, 3) {
                assert_eq!(found.unwrap_err().kind(), Kind::Corrupt);
            }
        }
    }
}

#[test]
fn a_length_that_no_frame_can_hold_is_refused_before_anything_is_sized_by_it() {
    for algo in [Algo::Lz4, Algo::Zstd] {
        let compression = compression(algo, Scope::Payload);
        let written = write(&Plan { payload_bytes: 300, compression, ..Plan::default() });
        let record = written.open(&MAPPED).locate(3).unwrap().record;
        let IndexRecord::FileRange { offset, stored_len, .. } = record else {
            panic!("payload scope has file ranges");
        };
        set_record(
            &written,
            3,
            IndexRecord::FileRange { offset, stored_len, raw_len: i32::MAX as u32 },
        );
        forge(&written.path(), |manifest| manifest.payload_bytes_total = u64::MAX);
        let cache = written.open(&MAPPED);
        assert_corrupt(&cache.locate(3).unwrap_err(), "more than they can hold");
        assert!(cache.locate(2).is_ok());
    }
}

#[test]
fn batch_records_that_lie_are_refused() {
    for algo in [Algo::Lz4, Algo::Zstd] {
        let compression = compression(algo, Scope::Buffer);
        let written = write(&Plan { payload_bytes: 300, compression, ..Plan::default() });
        let batch = |offset, batch, raw_len| IndexRecord::BatchRange { offset, batch, raw_len };
        let lies = [
            batch(u64::MAX, 0, 1),
            batch(0, u32::MAX, 1),
            batch(0, 6, 1),
            batch(4000, 0, 1),
            batch(0, 0, 5000),
        ];
        for record in lies {
            set_record(&written, 3, record);
            for found in read_row(&written, 3) {
                assert_corrupt(&found.unwrap_err(), "index names");
            }
        }
    }
}

#[test]
fn a_place_of_another_cache_is_no_way_out_of_a_file() {
    let direct = write(&Plan { rows: 90, payload_bytes: 4000, ..Plan::default() });
    let small = write(&Plan { rows: 3, ..Plan::default() });
    let scoped = compression(Algo::Lz4, Scope::Buffer);
    let scoped = write(&Plan { compression: scoped, ..Plan::default() });
    let foreign = direct.open(&MAPPED).locate(80).unwrap();
    let mut fetcher = Fetcher::new();
    for written in [&small, &scoped] {
        let cache = written.open(&MAPPED);
        assert!(cache.payload(&foreign, &mut fetcher).is_err());
        let beyond = PayloadPlace { shard: 7, ..foreign };
        assert!(cache.payload(&beyond, &mut fetcher).is_err());
    }
}

/// Replaces `metadata.arrow` by one batch of these columns.
fn forge_metadata(written: &Written, columns: &RecordBatch) {
    let schema = written.open(&MAPPED).schema().metadata_schema();
    let batch = encode_batch(&schema, columns.columns(), BodyCompression::None).unwrap();
    let mut file = file_head(&schema).unwrap();
    let place = batch.place_at(file.len() as u64);
    batch.pieces().for_each(|piece| file.extend_from_slice(piece));
    file.extend_from_slice(&file_tail(&schema, &[place]).unwrap());
    fs::write(written.path().join(METADATA_FILE), file).unwrap();
    forge(&written.path(), |_| {});
}

fn text_cache(texts: &[&str]) -> Written {
    let mut written = write(&Plan { rows: texts.len(), ..Plan::default() });
    let split = written.columns.schema().index_of("split").unwrap();
    let mut arrays = written.columns.columns().to_vec();
    arrays[split] = Arc::new(LargeStringArray::from(texts.to_vec()));
    written.columns = RecordBatch::try_new(written.columns.schema(), arrays).unwrap();
    forge_metadata(&written, &written.columns);
    written
}

/// Changes every place in `metadata.arrow` where `from` stands.
fn replace_bytes(written: &Written, from: &[u8], to: &[u8]) {
    forge_file(&written.path(), METADATA_FILE, |bytes| {
        let at: Vec<_> =
            (0..=bytes.len() - from.len()).filter(|&i| bytes[i..].starts_with(from)).collect();
        assert_eq!(at.len(), 1, "the pattern must be unique");
        bytes[at[0]..at[0] + to.len()].copy_from_slice(to);
    });
}

fn offsets(values: &[i64]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

#[test]
fn offsets_that_lie_are_refused_cell_by_cell_and_as_a_whole() {
    let lies: [[i64; 4]; 5] = [
        [0, 301, 300, 1000],
        [0, 300, 300, i64::MAX],
        [-1, 300, 300, 1000],
        [0, i64::MIN, 300, 1000],
        [0, 300, 300, 1001],
    ];
    let texts = ["x".repeat(300), String::new(), "y".repeat(700)];
    let all = texts.concat();
    for lie in lies {
        let written = text_cache(&[&texts[0], &texts[1], &texts[2]]);
        written.check_gathered(&written.open(&MAPPED)).unwrap();
        replace_bytes(&written, &offsets(&[0, 300, 300, 1000]), &offsets(&lie));
        let split = written.columns.schema().index_of("split").unwrap();
        for options in [MAPPED, COPIED] {
            let cache = written.open(&options);
            let found: Vec<_> = (0..3).map(|row| cache.gather(split, &[row])).collect();
            assert!(found.iter().any(Result::is_err), "{lie:?}");
            for (row, cell) in found.into_iter().enumerate() {
                match cell {
                    Ok(cell) => {
                        let expected = &all[lie[row] as usize..lie[row + 1] as usize];
                        assert_eq!(cell.as_string::<i64>().value(0), expected);
                    }
                    Err(error) => assert_corrupt(&error, "offsets"),
                }
            }
            assert_corrupt(&cache.metadata_batches().unwrap_err(), "split");
            let label = cache.gather(0, &[0, 1, 2]).unwrap();
            assert_eq!(&label, written.columns.column(0));
        }
    }
}

#[test]
fn text_that_is_not_utf8_is_refused() {
    let written = text_cache(&["needle", "hay", "ok"]);
    replace_bytes(&written, b"needle", b"ne\xff\xfe\x80e");
    let split = written.columns.schema().index_of("split").unwrap();
    for options in [MAPPED, COPIED] {
        let cache = written.open(&options);
        assert_corrupt(&cache.gather(split, &[1, 0]).unwrap_err(), "split");
        assert_corrupt(&cache.metadata_batches().unwrap_err(), "split");
        assert_eq!(cache.gather(split, &[1, 2]).unwrap().len(), 2);
    }
}

#[test]
fn a_cell_that_cuts_a_character_is_refused() {
    let written = text_cache(&["aä", "b", "c"]);
    replace_bytes(&written, &offsets(&[0, 3, 4, 5]), &offsets(&[0, 2, 4, 5]));
    let split = written.columns.schema().index_of("split").unwrap();
    let cache = written.open(&MAPPED);
    assert_corrupt(&cache.gather(split, &[0]).unwrap_err(), "split");
    assert_corrupt(&cache.metadata_batches().unwrap_err(), "split");
}

#[test]
fn a_metadata_table_of_another_length_or_schema_is_refused() {
    let written = write(&Plan { rows: 5, ..Plan::default() });
    forge_metadata(&written, &written.columns.slice(0, 4));
    let cache = written.open(&MAPPED);
    assert_corrupt(&cache.gather(0, &[4]).unwrap_err(), "rows");
    assert_corrupt(&cache.metadata_batches().unwrap_err(), "rows");

    let written = write(&Plan { rows: 5, ..Plan::default() });
    forge(&written.path(), |manifest| manifest.columns[0].type_text = "uint64".into());
    let cache = written.open(&MAPPED);
    assert_corrupt(&cache.gather(0, &[4]).unwrap_err(), "schema");
    assert_corrupt(&cache.shard_batches(0).unwrap_err(), "schema");
}

#[test]
fn a_shard_with_other_rows_or_values_is_refused() {
    let written = write(&Plan { rows: 12, batch_rows: 3, shard_bytes: 1, ..Plan::default() });
    assert_eq!(written.open(&MAPPED).shard_count(), 12);
    let shards = written.path().join("shards");
    forge(&written.path(), |manifest| {
        manifest.shards[0].rows = 2;
        manifest.shards.pop();
    });
    let cache = written.open(&MAPPED);
    assert_corrupt(&cache.shard_batches(0).unwrap_err(), "rows");
    assert_eq!(cache.shard_batches(2).unwrap().1.len(), 1);
    fs::copy(shards.join("000002.arrow"), shards.join("000003.arrow")).unwrap();
    let error = Cache::open(written.path(), &MAPPED).and_then(|cache| cache.shard_batches(3));
    assert_corrupt(&error.unwrap_err(), "000003.arrow");
}

#[test]
fn an_index_of_the_other_kind_is_refused() {
    let written = write(&Plan::default());
    let header = crate::format::index::encode_header(IndexKind::BatchRange);
    forge_file(&written.path(), INDEX_FILE, |bytes| bytes[..header.len()].copy_from_slice(&header));
    assert_corrupt(&written.open(&MAPPED).locate(0).unwrap_err(), "header");
}

#[test]
fn any_byte_of_a_forged_file_is_safe_to_read() {
    let written = write(&Plan { rows: 4, narrow: true, ..Plan::default() });
    for name in [METADATA_FILE, INDEX_FILE, "shards/000000.arrow"] {
        let path = written.path().join(name);
        let whole = fs::read(&path).unwrap();
        for at in 0..whole.len() {
            for flip in [0x80, 0x7f] {
                let mut damaged = whole.clone();
                damaged[at] ^= flip;
                overwrite(&path, &damaged);
                forge(&written.path(), |_| {});
                let cache = written.open(&MAPPED);
                let rows: Vec<u64> = (0..4).collect();
                let mut fetcher = Fetcher::new();
                for &row in &rows {
                    let _ = cache.locate(row).and_then(|place| cache.payload(&place, &mut fetcher));
                }
                for column in 0..written.columns.num_columns() {
                    let _ = cache.gather(column, &rows);
                }
                let _ = (cache.metadata_batches(), cache.shard_batches(0));
            }
        }
        overwrite(&path, &whole);
    }
}

/// Replaces the first shard by one compressed batch whose columns `change` replaced.
fn forge_shard(written: &Written, change: impl FnOnce(&mut [ArrayRef])) {
    let cache = written.open(&MAPPED);
    let (schema, batches) = cache.shard_batches(0).unwrap();
    let mut arrays = batches[0].columns().to_vec();
    drop((cache, batches));
    change(&mut arrays);
    let batch = encode_batch(&schema, &arrays, BodyCompression::Zstd { level: 3 }).unwrap();
    let mut file = file_head(&schema).unwrap();
    let place = batch.place_at(file.len() as u64);
    batch.pieces().for_each(|piece| file.extend_from_slice(piece));
    file.extend_from_slice(&file_tail(&schema, &[place]).unwrap());
    assert!(file.len() < 20_000);
    overwrite(&written.path().join("shards/000000.arrow"), &file);
    forge(&written.path(), |_| {});
}

#[test]
fn a_bomb_in_a_shard_buffer_is_bounded_by_the_manifest() {
    let compression = compression(Algo::Zstd, Scope::Buffer);
    let written = write(&Plan { rows: 4, compression, ..Plan::default() });
    forge_shard(&written, |arrays| {
        let bomb = [vec![0_u8; 1 << 24], vec![], vec![], vec![]];
        *arrays.last_mut().unwrap() = Arc::new(LargeBinaryArray::from_iter_values(bomb));
    });
    for found in read_row(&written, 1) {
        assert_corrupt(&found.unwrap_err(), "claims");
    }
    assert_corrupt(&written.open(&MAPPED).shard_batches(0).unwrap_err(), "claims");
}

#[test]
fn the_buffers_of_a_shard_share_one_bound() {
    let compression = compression(Algo::Zstd, Scope::Buffer);
    let plan = || Plan { rows: 4, compression, ..Plan::default() };
    let written = write(&plan());
    let cache = written.open(&MAPPED);
    let recorded = cache.manifest().payload_bytes_total + cache.manifest().metadata.size_bytes;
    let split = cache.shard_batches(0).unwrap().0.index_of("split").unwrap();
    drop(cache);
    let texts = |len: u64| ["x".repeat(len as usize), String::new(), String::new(), String::new()];
    let bytes = |len: u64| Arc::new(LargeBinaryArray::from_iter_values(texts(len)));
    // Each may be as long as everything recorded, both together may not.
    for (cell, payload, is_refused) in [(recorded, 0, false), (recorded, 1000, true)] {
        let written = write(&plan());
        forge_shard(&written, |arrays| {
            arrays[split] = Arc::new(LargeStringArray::from_iter_values(texts(cell)));
            *arrays.last_mut().unwrap() = bytes(payload);
        });
        let found = written.open(&MAPPED).shard_batches(0);
        assert_eq!(found.is_err(), is_refused);
        if let Err(error) = found {
            assert_corrupt(&error, "claims");
        }
    }
}
