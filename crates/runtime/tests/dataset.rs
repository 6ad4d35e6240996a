//! What users rely on, without Python: one order for any pool, damage passed over, nothing
//! published by a failed write.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::path::{Path, PathBuf};
use std::sync::{Arc, mpsc};
use std::thread;

use dataset_rt_runtime::{
    Dataset, Profile, QueueBound, ReadOptions, SourceClaim, WorkerPool, WritePipeline, decide,
    fork_gate,
};
use dataset_rt_runtime::{Decision, OnStale};
use dataset_rt_sampler::Mode;
use dataset_rt_storage::format::codec::Compression;
use dataset_rt_storage::read::Payload;
use dataset_rt_storage::store::{IoMode, LocalStore, Section};
use dataset_rt_storage::write::{
    CacheWriter, Cell, GroupLimits, Identity, Ingest, WriteMode, WriteOptions,
};
use dataset_rt_storage::{Error, Kind, Result};

const ROWS: u64 = 500;

fn bound() -> QueueBound {
    QueueBound { groups: 2, samples: 0, bytes: 1 << 20 }
}

fn write(parent: &Path, name: &str, workers: usize, fail_at: Option<u64>) -> Result<PathBuf> {
    let options = WriteOptions { max_shard_bytes: 4000, compression: Compression::default() };
    let writer = CacheWriter::begin(
        Arc::new(LocalStore),
        parent,
        name,
        options,
        WriteMode::New,
        &mut |_| Err(Error::conflict("nobody else writes here")),
    )?;
    let profile = Arc::new(Profile::new(false));
    let mut pipeline = WritePipeline::new(writer, options.compression, workers, bound(), profile);
    let limits = GroupLimits::new(options.max_shard_bytes, &options.compression);
    let mut ingest = Ingest::new(name, None, limits);
    for i in 0..ROWS {
        if fail_at == Some(i) {
            return Err(Error::invalid("the source failed"));
        }
        ingest.push_payload(format!("payload {i} of {name}").repeat(3).as_bytes())?;
        ingest.cell(0, "label", Cell::Int((i % 10) as i64))?;
        ingest.end_row()?;
        while let Some(group) = ingest.take_group() {
            let schema = ingest.schema().cloned().unwrap_or_default();
            pipeline.push(&schema, group, &mut || Ok(()))?;
        }
    }
    let (schema, groups) = ingest.finish()?;
    for group in groups {
        pipeline.push(&schema, group, &mut || Ok(()))?;
    }
    pipeline.publish(Identity::default(), &mut || Ok(())).map(|published| published.path)
}

fn open(paths: &[PathBuf], mode: Mode, workers: usize, ahead: u64) -> Result<Dataset> {
    let options = ReadOptions {
        seed: 7,
        mode,
        prefetch_samples: ahead,
        prefetch_bytes: Some(1000),
        validate_cache: false,
        verify: true,
        io: IoMode::Auto,
    };
    Dataset::open(paths, options, Arc::new(WorkerPool::new(workers)), &mut || Ok(()))
}

type Seen = Vec<std::result::Result<(u64, u64, Vec<u8>), Kind>>;

fn epoch(dataset: &Dataset) -> Seen {
    let (mut stream, _) = dataset.claim().unwrap();
    let mut seen = Vec::new();
    loop {
        let mut block = match stream.next_block(&mut || Ok(())) {
            Ok(Some(block)) => block,
            Ok(None) => return seen,
            Err(error) => {
                seen.push(Err(error.kind()));
                continue;
            }
        };
        let mut converted = Vec::new().into_iter();
        for i in 0..block.len() {
            if converted.len() == 0
                && i >= block.fetched()
                && let Err(error) = {
                    let fetched = block.next_fetch().run();
                    block.accept(fetched)
                }
            {
                seen.push(Err(error.kind()));
                continue;
            }
            let (cache, sample) = block.identity(i);
            if converted.len() == 0 {
                let copy = |section: Section<'_>, payload: &Payload| {
                    Ok::<_, Error>(payload.bytes(section).to_vec())
                };
                converted = block.convert_payloads(i, copy).unwrap().unwrap().into_iter();
            }
            seen.push(Ok((cache, sample, converted.next().unwrap())));
        }
    }
}

#[test]
fn one_order_for_any_pool_read_ahead_and_order_of_paths() {
    let root = tempfile::tempdir().unwrap();
    let a = write(root.path(), "a", 1, None).unwrap();
    let b = write(root.path(), "b", 3, None).unwrap();
    let expected = epoch(&open(&[a.clone(), b.clone()], Mode::Multinomial, 1, 1).unwrap());
    assert_eq!(expected.len() as u64, 2 * ROWS);
    for workers in 1..=4 {
        for ahead in [1, 2, 3, 64, 1000] {
            let dataset = open(&[b.clone(), a.clone()], Mode::Multinomial, workers, ahead).unwrap();
            assert_eq!(epoch(&dataset), expected, "{workers} workers, {ahead} ahead");
        }
    }
}

#[test]
fn a_run_of_payloads_is_copied_in_parts_of_any_size() {
    let root = tempfile::tempdir().unwrap();
    let path = write(root.path(), "a", 2, None).unwrap();
    let dataset = open(&[path], Mode::Sequential, 1, 64).unwrap();
    let (snapshot, positions) =
        dataset.positions_of(&(100..110).collect::<Vec<_>>(), &mut || Ok(())).unwrap();
    let mut block = dataset.samples_at(&snapshot, &positions).unwrap();
    let expected: Vec<String> = (100..110).map(|i| format!("payload {i} of a").repeat(3)).collect();
    assert_eq!(block.run(2, 100).len(), 2, "within the bytes allowed");
    assert_eq!(block.run(2, 10).len(), 1, "one larger payload");
    let run = block.run(1, 1000);
    assert_eq!((run.len(), run.size_bytes()), block.run_size(1, 1000));
    assert_eq!(run.len(), 4, "48 bytes each, 5 of them within the budget of 250");
    for size in [1, 7, 48, 49, 1000] {
        let mut copied: Vec<Vec<u8>> =
            (0..run.len()).map(|i| vec![0; run.place(i).len()]).collect();
        for start in (0..run.size_bytes()).step_by(size) {
            let end = run.size_bytes().min(start + size);
            run.copy(start..end, |i, offset, part| {
                copied[i][offset..offset + part.len()].copy_from_slice(part);
            })
            .unwrap();
        }
        let copied: Vec<&str> = copied.iter().map(|c| std::str::from_utf8(c).unwrap()).collect();
        assert_eq!(copied, expected[1..5], "in parts of {size}");
    }
    block.release(1..3);
    assert_eq!(block.run_size(1, 1000), (0, 0));
    assert_eq!(block.run(3, 1000).len(), 2, "the block kept the others");
}

#[test]
fn a_hook_of_a_fork_does_not_wait_for_an_order_that_another_thread_works_out() {
    let directory = tempfile::tempdir().unwrap();
    let path = write(directory.path(), "one", 1, None).unwrap();
    let dataset = open(&[path], Mode::Multinomial, 1, 100).unwrap();
    let (schema, batches) = dataset.table(&mut || Ok(())).unwrap();
    dataset.update_table(&schema, &batches, &[], &mut || Ok(())).unwrap();
    let (busy, is_busy) = mpsc::channel();
    let (go_on, may_go_on) = mpsc::channel::<()>();
    let dataset = &dataset;
    thread::scope(|scope| {
        let other = scope.spawn(move || {
            dataset.order_fingerprint(&mut || {
                let _ = (busy.send(()), may_go_on.recv());
                Ok(())
            })
        });
        is_busy.recv().unwrap();
        fork_gate::before_fork();
        let mut looks = 0;
        let here = dataset.order_fingerprint(&mut || {
            looks += 1;
            if looks < 100 { Ok(()) } else { Err(Error::conflict("it waits")) }
        });
        fork_gate::after_fork();
        drop(go_on);
        assert_eq!(here, other.join().unwrap());
        assert!(here.is_ok());
    });
}

#[test]
fn table_order_delivers_every_sample_once_with_its_payload() {
    let root = tempfile::tempdir().unwrap();
    let path = write(root.path(), "a", 2, None).unwrap();
    let seen = epoch(&open(&[path], Mode::Sequential, 2, 64).unwrap());
    for (i, sample) in seen.iter().enumerate() {
        let (_, sample_id, payload) = sample.as_ref().unwrap();
        assert_eq!(*sample_id, i as u64);
        assert_eq!(*payload, format!("payload {i} of a").repeat(3).into_bytes());
    }
    assert_eq!(seen.len() as u64, ROWS);
}

#[test]
fn only_samples_in_a_damaged_block_are_lost() {
    let root = tempfile::tempdir().unwrap();
    let path = write(root.path(), "a", 2, None).unwrap();
    let shard = path.join("shards/000001.arrow");
    let mut bytes = std::fs::read(&shard).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&shard, bytes).unwrap();
    let seen = epoch(&open(&[path], Mode::Sequential, 2, 64).unwrap());
    assert_eq!(seen.len() as u64, ROWS, "every position is delivered or refused");
    let lost: Vec<usize> = (0..seen.len()).filter(|&i| seen[i] == Err(Kind::Corrupt)).collect();
    assert!(!lost.is_empty() && lost.len() < 100, "{lost:?}");
    assert!(lost.windows(2).all(|pair| pair[1] == pair[0] + 1), "one shard, no other");
}

#[test]
fn a_failed_write_leaves_nothing_and_the_next_one_succeeds() {
    let root = tempfile::tempdir().unwrap();
    assert!(write(root.path(), "a", 2, Some(300)).is_err());
    assert_eq!(std::fs::read_dir(root.path()).unwrap().count(), 0);
    write(root.path(), "a", 2, None).unwrap();
}

#[test]
fn a_cache_is_reused_only_for_the_same_claim() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("a");
    let plain = SourceClaim::default();
    assert_eq!(decide(&path, &plain, OnStale::Error, false, &mut || Ok(())), Ok(Decision::Write));
    write(root.path(), "a", 1, None).unwrap();
    let reuse = Ok(Decision::Reuse { samples: ROWS });
    assert_eq!(decide(&path, &plain, OnStale::Error, true, &mut || Ok(())), reuse);
    let other = SourceClaim { fingerprint: Some("v2".into()), schema: None };
    let refused = decide(&path, &other, OnStale::Error, false, &mut || Ok(())).unwrap_err();
    assert!(refused.message().contains("v2"), "{refused}");
    assert_eq!(
        decide(&path, &other, OnStale::Rewrite, false, &mut || Ok(())),
        Ok(Decision::Replace)
    );
    assert_eq!(decide(&path, &other, OnStale::Reuse, false, &mut || Ok(())), reuse);
}
