//! What was written comes back, by every way of reading.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use proptest::prelude::*;

use super::support::{COPIED, MAPPED, Plan, compression, write, write_into};
use crate::format::codec::{Algo, Compression, Scope};
use crate::format::index::IndexRecord;
use crate::read::{Fetcher, OpenOptions};
use crate::write::WriteMode;

fn plans() -> Vec<Plan> {
    let mut plans = vec![Plan::default()];
    for algo in [Algo::None, Algo::Lz4, Algo::Zstd] {
        for scope in [Scope::Payload, Scope::Buffer] {
            let compression = compression(algo, scope);
            plans.push(Plan { rows: 90, shard_bytes: 12_000, compression, ..Plan::default() });
        }
    }
    let zstd = compression(Algo::Zstd, Scope::Payload);
    let trained = Compression { dictionary_bytes: 4096, ..zstd };
    plans.push(Plan {
        rows: 900,
        payload_bytes: 200,
        compression: trained,
        dictionary: true,
        batch_rows: 100,
        ..Plan::default()
    });
    // Payloads and columns of several blocks.
    plans.push(Plan { rows: 9, payload_bytes: 150_000, batch_rows: 2, ..Plan::default() });
    plans.push(Plan { rows: 20_000, payload_bytes: 3, batch_rows: 3000, ..Plan::default() });
    plans
}

#[test]
fn every_layout_comes_back_mapped_and_copied_verified_or_not() {
    for plan in plans() {
        let written = write(&plan);
        for options in [MAPPED, COPIED] {
            for verify in [true, false] {
                let cache = written.open(&OpenOptions { verify, ..options });
                assert_eq!(cache.rows() as usize, plan.rows);
                written.check(&cache).unwrap_or_else(|e| panic!("{plan:?} {options:?}: {e}"));
            }
        }
    }
}

#[test]
fn small_shards_are_several() {
    let written = write(&Plan { rows: 90, shard_bytes: 12_000, ..Plan::default() });
    assert!(written.open(&MAPPED).shard_count() > 2);
}

#[test]
fn mapped_views_share_the_mapping() {
    let written = write(&Plan::default());
    let cache = written.open(&MAPPED);
    let mut fetcher = Fetcher::new();
    let place = cache.locate(3).unwrap();
    let once = cache.payload(&place, &mut fetcher).unwrap();
    let twice = cache.payload(&place, &mut fetcher).unwrap();
    assert!(cache.is_shared().unwrap());
    assert_eq!(once.as_view().as_ptr(), twice.as_view().as_ptr());

    let (_, batches) = cache.shard_batches(0).unwrap();
    let payload = batches[0].columns().last().unwrap().as_binary::<i64>();
    assert_eq!(payload.value(3).as_ptr(), once.as_view().as_ptr());

    let start = |batches: &[arrow_array::RecordBatch]| {
        batches[0].column(0).as_primitive::<Int64Type>().values().as_ptr()
    };
    let first = cache.metadata_batches().unwrap();
    assert_eq!(start(&first), start(&cache.metadata_batches().unwrap()));
    assert_ne!(start(&first), start(&written.open(&MAPPED).metadata_batches().unwrap()));
}

#[test]
fn a_block_is_hashed_once_and_only_when_touched() {
    let plan = Plan { rows: 9, payload_bytes: 150_000, batch_rows: 2, ..Plan::default() };
    let written = write(&plan);
    for options in [MAPPED, COPIED] {
        let cache = written.open(&options);
        let place = cache.locate(4).unwrap();
        let IndexRecord::FileRange { offset, stored_len, .. } = place.record else {
            panic!("uncompressed payloads are ranges of the file");
        };
        let file = &cache.shards[0].file;
        let range = offset..offset + u64::from(stored_len);
        assert!(!file.is_verified(&range));
        cache.payload(&place, &mut Fetcher::new()).unwrap();
        assert!(file.is_verified(&range));
        assert!(!file.is_verified(&(0..1)));
        assert!(!file.is_verified(&(range.start..file.size_bytes())));
    }
}

#[test]
fn a_cache_without_metadata_columns_has_rows() {
    let mut written = write(&Plan::default());
    written.columns = written.columns.project(&[]).unwrap();
    std::fs::remove_dir_all(written.path()).unwrap();
    write_into(&written, &Plan::default(), WriteMode::New);
    for options in [MAPPED, COPIED] {
        let cache = written.open(&options);
        written.check_payloads(&cache).unwrap();
        let rows: usize = cache.metadata_batches().unwrap().iter().map(|b| b.num_rows()).sum();
        assert_eq!(rows, 40);
        let shard = cache.shard_batches(0).unwrap().1;
        assert_eq!(shard.iter().map(|b| b.num_rows()).sum::<usize>(), 40);
    }
}

#[test]
fn payloads_outlive_their_cache() {
    let written = write(&Plan::default());
    for options in [MAPPED, COPIED] {
        let cache = written.open(&options);
        let payload = cache.payload(&cache.locate(5).unwrap(), &mut Fetcher::new()).unwrap();
        drop(cache);
        assert_eq!(payload.as_view(), written.payloads[5]);
    }
}

#[test]
fn one_fetcher_serves_many_caches() {
    let plans: Vec<_> = plans().into_iter().filter(|plan| plan.rows < 1000).collect();
    let written: Vec<_> = plans.iter().map(write).collect();
    let caches: Vec<_> = written.iter().map(|written| written.open(&MAPPED)).collect();
    let mut fetcher = Fetcher::new();
    for row in [8_u64, 0, 3, 8] {
        for (written, cache) in written.iter().zip(&caches) {
            let payload = cache.payload(&cache.locate(row).unwrap(), &mut fetcher).unwrap();
            assert_eq!(payload.as_view(), written.payloads[row as usize]);
        }
    }
}

#[test]
fn threads_read_one_cache_at_once() {
    for plan in plans() {
        for options in [MAPPED, COPIED] {
            let written = write(&plan);
            let cache = Arc::new(written.open(&options));
            std::thread::scope(|scope| {
                for _ in 0..4 {
                    scope.spawn(|| written.check(&cache).unwrap());
                }
            });
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn any_shape_comes_back(
        rows in 1_usize..200,
        payload_bytes in 0_usize..400,
        batch_rows in 1_usize..50,
        shard_bytes in 1_u64..60_000,
        algo in prop::sample::select(vec![Algo::None, Algo::Lz4, Algo::Zstd]),
        scope in prop::sample::select(vec![Scope::Payload, Scope::Buffer]),
        mapped in any::<bool>(),
    ) {
        let compression = compression(algo, scope);
        let plan = Plan {
            rows, payload_bytes, batch_rows, shard_bytes, compression, ..Plan::default()
        };
        let written = write(&plan);
        let cache = written.open(if mapped { &MAPPED } else { &COPIED });
        written.check(&cache).unwrap();
    }
}
