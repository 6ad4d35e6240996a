//! A block: consecutive samples of a reader's share of the stream, with identities, metadata and verified payloads.
//! Blocks, not samples, cross threads. Knows no queue and no Python.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use arrow_array::ArrayRef;
use dataset_rt_sampler::Share;
use dataset_rt_storage::read::{Cache, Fetcher, Payload, PayloadPlace};
use dataset_rt_storage::store::{Section, guarded};
use dataset_rt_storage::{Error, Kind, Result};

use crate::active::{SampleRef, gather_stored, name_sample};
use crate::payload_run::{PayloadRun, check_unchanged};
use crate::snapshot::Snapshot;

/// Payload bytes converted at once, one larger payload aside: a whole block of small ones.
const CONVERTED_BYTES_MAX: u64 = 1024 * 1024;

/// Scratch of the threads that fetch (decompressors, decompressed batches), reused between blocks.
/// As many exist as threads ever fetched at once.
#[derive(Default)]
pub struct FetcherShelf {
    idle: Mutex<Vec<Fetcher>>,
}

impl FetcherShelf {
    /// Lends a fetcher to `work`.
    pub fn with<R>(&self, work: impl FnOnce(&mut Fetcher) -> R) -> R {
        let lock = || self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        let mut fetcher = lock().pop().unwrap_or_default();
        let result = work(&mut fetcher);
        lock().push(fetcher);
        result
    }
}

/// Consecutive samples of a reader, ready to deliver.
pub struct Block {
    samples: Vec<SampleRef>,
    places: Vec<PayloadPlace>,
    payloads: Vec<Option<Payload>>,
    columns: Vec<ArrayRef>,
    caches: Arc<[Arc<Cache>]>,
    fetchers: Arc<FetcherShelf>,
    budget_bytes: u64,
}

impl Block {
    /// Loads numbers `range` of `share`, with payloads of up to `budget_bytes`, possibly none;
    /// [`Block::next_fetch`] brings the others when they are due. So blocks read ahead hold no
    /// more than their budgets, and one larger payload is in memory only for its delivery.
    ///
    /// # Errors
    /// `Corrupt` and the like when anything these samples touch is damaged.
    pub fn load(
        snapshot: &Snapshot,
        share: &Share,
        range: Range<u64>,
        budget_bytes: u64,
    ) -> Result<Self> {
        let len = usize::try_from(range.end - range.start).unwrap_or(0);
        let mut rows = vec![0; len];
        snapshot.plan()?.share_rows_into(share, range.start, &mut rows)?;
        guarded(|_| Self::of_rows(snapshot, &rows, budget_bytes))
    }

    /// Loads any stream positions, in the order given, as [`Block::load`] does.
    ///
    /// # Errors
    /// As [`Block::load`].
    pub fn scattered(snapshot: &Snapshot, positions: &[u64], budget_bytes: u64) -> Result<Self> {
        let mut rows = vec![0; positions.len()];
        snapshot.plan()?.rows_at(positions, &mut rows)?;
        guarded(|_| Self::of_rows(snapshot, &rows, budget_bytes))
    }

    fn of_rows(snapshot: &Snapshot, rows: &[u64], budget_bytes: u64) -> Result<Self> {
        let table = snapshot.table();
        let samples: Vec<SampleRef> =
            rows.iter().map(|&row| table.sample_at(row)).collect::<Result<_>>()?;
        let columns = table.gather(rows, &samples);
        let columns = columns.map_err(|e| name_alone(table.caches(), &samples, e))?;
        Self::of_samples(snapshot, samples, columns, budget_bytes)
    }

    /// One physical sample with its stored columns, outside any stream.
    ///
    /// # Errors
    /// As [`Block::load`].
    pub fn physical(snapshot: &Snapshot, sample: SampleRef) -> Result<Self> {
        guarded(|_| {
            let samples = vec![sample];
            let caches = snapshot.table().caches();
            let stored = caches.first().map_or(0, |cache| cache.schema().columns().len());
            let columns = gather_stored(caches, &samples, 0..stored);
            let columns = columns.map_err(|e| name_alone(caches, &samples, e))?;
            Self::of_samples(snapshot, samples, columns, 0)
        })
    }

    fn of_samples(
        snapshot: &Snapshot,
        samples: Vec<SampleRef>,
        columns: Vec<ArrayRef>,
        budget_bytes: u64,
    ) -> Result<Self> {
        let caches = Arc::clone(snapshot.table().caches());
        let places = locate(&caches, &samples).map_err(|e| name_alone(&caches, &samples, e))?;
        let mut block = Self {
            payloads: Vec::with_capacity(samples.len()),
            samples,
            places,
            columns,
            caches,
            fetchers: Arc::clone(snapshot.fetchers()),
            budget_bytes,
        };
        if !block.affordable(0).is_empty() {
            let fetched = block.next_fetch().run();
            block.accept(fetched)?;
        }
        block.check_tables()?;
        Ok(block)
    }

    /// What was read of index and metadata is only right if they are what they were.
    fn check_tables(&self) -> Result<()> {
        let mut touched: Vec<u32> = self.samples.iter().map(|sample| sample.cache).collect();
        touched.dedup();
        touched.sort_unstable();
        touched.dedup();
        touched.iter().try_for_each(|&cache| self.caches[cache as usize].check_tables_unchanged())
    }

    /// Number of samples.
    pub fn len(&self) -> usize {
        self.samples.len()
    }

    /// Whether there are no samples.
    pub fn is_empty(&self) -> bool {
        self.samples.is_empty()
    }

    /// Identity of sample `i`: cache id and row.
    pub fn identity(&self, i: usize) -> (u64, u64) {
        let sample = self.samples[i];
        (self.caches[sample.cache as usize].cache_id(), sample.sample_id)
    }

    /// The delivered columns, one array of `len` values each.
    pub fn columns(&self) -> &[ArrayRef] {
        &self.columns
    }

    /// How many samples, from the first, had their payloads fetched.
    pub fn fetched(&self) -> usize {
        self.payloads.len()
    }

    /// Makes something of fetched payloads, from that of sample `from` on: of some at once, so
    /// that they share the look whether their files are still what they were, and at least of
    /// one. When they cannot be had together only the first is made. The block lets them go,
    /// unless `make` fails, whose error is the inner one.
    ///
    /// # Errors
    /// `Conflict` when the file of that payload changed while open; it is lost.
    pub fn convert_payloads<T, E>(
        &mut self,
        from: usize,
        mut make: impl FnMut(Section<'_>, &Payload) -> std::result::Result<T, E>,
    ) -> Result<std::result::Result<Vec<T>, E>> {
        let mut convert = |range| {
            let made = self.convert_range(range, &mut make)?;
            Ok(made.into_iter().collect::<std::result::Result<Vec<T>, E>>())
        };
        let mut until = self.convertible(from);
        let mut made = convert(from..until);
        if !matches!(made, Ok(Ok(_))) && until > from + 1 {
            until = from + 1;
            made = convert(from..until);
        }
        if !matches!(made, Ok(Err(_))) {
            self.release(from..until);
        }
        made
    }

    /// Lets some payloads go.
    pub fn release(&mut self, range: Range<usize>) {
        self.payloads.iter_mut().take(range.end).skip(range.start).for_each(|held| *held = None);
    }

    /// Bytes of payload `i`, while it is here.
    pub fn payload_bytes(&self, i: usize) -> Option<usize> {
        self.payloads.get(i)?.as_ref().map(Payload::size_bytes)
    }

    /// Whether payload `i` was neither lost nor let go.
    pub fn is_pending(&self, i: usize) -> bool {
        i >= self.payloads.len() || self.payload_bytes(i).is_some()
    }

    /// The end of the payloads from `from` on that may be held twice for a moment.
    fn convertible(&self, from: usize) -> usize {
        from + self.fitting(from, CONVERTED_BYTES_MAX).count().max(1)
    }

    /// The payloads from `from` on that are here and have at most `bytes_max` within the budget.
    fn fitting(&self, from: usize, bytes_max: u64) -> impl Iterator<Item = &Payload> {
        let mut left = self.budget_bytes.min(bytes_max);
        self.payloads.iter().skip(from).map_while(move |payload| {
            let payload = payload.as_ref()?;
            left = left.checked_sub(payload.size_bytes() as u64)?;
            Some(payload)
        })
    }

    /// Payloads from `from` on, to be copied by several threads: at most `bytes_max` bytes within
    /// the budget, or one larger payload. The block keeps them.
    pub fn run(&self, from: usize, bytes_max: u64) -> PayloadRun {
        let until = from + self.run_size(from, bytes_max).0;
        let held = self.payloads.iter().take(until).skip(from);
        let payloads = held.filter_map(Clone::clone).collect();
        PayloadRun::new(Arc::clone(&self.caches), payloads, self.shards(from..until))
    }

    /// How many payloads [`Block::run`] would have, and how many bytes.
    pub fn run_size(&self, from: usize, bytes_max: u64) -> (usize, usize) {
        let sizes = self.fitting(from, bytes_max).map(Payload::size_bytes);
        match sizes.fold((0, 0), |(len, bytes), size| (len + 1, bytes + size)) {
            (0, _) => self.payload_bytes(from).map_or((0, 0), |bytes| (1, bytes)),
            run => run,
        }
    }

    /// Cache and shard of each of some samples.
    fn shards(&self, range: Range<usize>) -> Vec<(u32, u32)> {
        let samples = self.samples[range.clone()].iter().zip(&self.places[range]);
        samples.map(|(sample, place)| (sample.cache, place.shard)).collect()
    }

    fn convert_range<T>(
        &self,
        range: Range<usize>,
        make: &mut impl FnMut(Section<'_>, &Payload) -> T,
    ) -> Result<Vec<T>> {
        let gone = || Error::internal(format!("payload {} of a block is gone", range.start));
        let payloads = self.payloads.get(range.clone()).ok_or_else(gone)?;
        let made = guarded(|section| {
            let made = payloads.iter().map(|payload| Some(make(section, payload.as_ref()?)));
            made.collect::<Option<Vec<T>>>().ok_or_else(gone)
        })?;
        check_unchanged(&self.caches, &self.shards(range))?;
        Ok(made)
    }

    /// Work that fetches the next payloads, up to the byte budget and at least one, on any thread;
    /// [`Block::accept`] takes what it brings. Without that nothing has happened.
    pub fn next_fetch(&self) -> Fetch {
        let range = self.affordable(1);
        Fetch {
            caches: Arc::clone(&self.caches),
            fetchers: Arc::clone(&self.fetchers),
            samples: self.samples[range.clone()].to_vec(),
            places: self.places[range].to_vec(),
        }
    }

    /// Takes payloads that were fetched. When they could not be, the first counts as fetched, and
    /// is lost, unless only memory was missing.
    ///
    /// # Errors
    /// That of the fetch, naming the sample.
    pub fn accept(&mut self, fetched: Result<Vec<Payload>>) -> Result<()> {
        match fetched {
            Ok(payloads) => self.payloads.extend(payloads.into_iter().map(Some)),
            // Nothing is wrong with the payload: it may be had once there is room.
            Err(error) if error.kind() == Kind::Exhausted => return Err(error),
            Err(error) => {
                let lost = self.samples.get(self.payloads.len()).copied();
                self.payloads.push(None);
                return Err(match lost {
                    Some(sample) => name_sample(&self.caches, sample, error),
                    None => error,
                });
            }
        }
        Ok(())
    }

    /// The next payloads that the byte budget allows, and `at_least` so many.
    fn affordable(&self, at_least: usize) -> Range<usize> {
        let from = self.payloads.len();
        let mut bytes = 0_u64;
        let mut until = from;
        while until < self.places.len() {
            bytes += u64::from(self.places[until].record.raw_len());
            if until >= from + at_least && bytes > self.budget_bytes {
                break;
            }
            until += 1;
        }
        from..until
    }
}

/// Payloads of a block to be fetched.
pub struct Fetch {
    caches: Arc<[Arc<Cache>]>,
    fetchers: Arc<FetcherShelf>,
    samples: Vec<SampleRef>,
    places: Vec<PayloadPlace>,
}

impl Fetch {
    /// How many payload bytes it brings.
    pub fn size_bytes(&self) -> u64 {
        self.places.iter().map(|place| u64::from(place.record.raw_len())).sum()
    }

    /// The payloads; only the first of them when they cannot be fetched together.
    ///
    /// # Errors
    /// `Corrupt` and the like when the first payload is damaged.
    pub fn run(&self) -> Result<Vec<Payload>> {
        self.fetchers.with(|fetcher| match self.fetch(self.samples.len(), fetcher) {
            Err(_) if self.samples.len() > 1 => self.fetch(1, fetcher),
            outcome => outcome,
        })
    }

    fn fetch(&self, count: usize, fetcher: &mut Fetcher) -> Result<Vec<Payload>> {
        let (samples, places) = (&self.samples[..count], &self.places[..count]);
        let mut payloads = Vec::with_capacity(samples.len());
        let Some(first) = samples.first() else { return Ok(payloads) };
        if samples.iter().all(|sample| sample.cache == first.cache) {
            self.caches[first.cache as usize].fetch(places, fetcher, &mut payloads)?;
            return Ok(payloads);
        }
        let mut by_cache: HashMap<u32, Vec<usize>> = HashMap::new();
        for (i, sample) in samples.iter().enumerate() {
            by_cache.entry(sample.cache).or_default().push(i);
        }
        let mut placed: Vec<Option<Payload>> = samples.iter().map(|_| None).collect();
        for (cache, members) in by_cache {
            let wanted: Vec<PayloadPlace> = members.iter().map(|&i| places[i]).collect();
            let mut fetched = Vec::with_capacity(wanted.len());
            self.caches[cache as usize].fetch(&wanted, fetcher, &mut fetched)?;
            for (i, payload) in members.into_iter().zip(fetched) {
                placed[i] = Some(payload);
            }
        }
        payloads.extend(placed.into_iter().flatten());
        Ok(payloads)
    }
}

/// The error of reading `samples`, naming the sample if it is one alone.
fn name_alone(caches: &[Arc<Cache>], samples: &[SampleRef], error: Error) -> Error {
    match samples {
        [only] => name_sample(caches, *only, error),
        _ => error,
    }
}

/// Where the payloads of samples lie.
///
/// # Errors
/// `Corrupt` for a damaged index.
pub fn locate(caches: &[Arc<Cache>], samples: &[SampleRef]) -> Result<Vec<PayloadPlace>> {
    let mut places = Vec::with_capacity(samples.len());
    // Runs of one cache share a call; most datasets are one run.
    for run in samples.chunk_by(|a, b| a.cache == b.cache) {
        let rows: Vec<u64> = run.iter().map(|sample| sample.sample_id).collect();
        caches[run[0].cache as usize].locate_many(&rows, &mut places)?;
    }
    Ok(places)
}
