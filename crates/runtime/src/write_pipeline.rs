//! The threads of one cache write: encoders side by side, one committer in row order.
//! Knows no Python; the source pushes row groups from its own thread.
//!
//! ```text
//! source ── BoundedQueue ──► encoder ... encoder ── reorder ──► committer ──► files
//! ```
//! Every write has its own threads, so a source may read another dataset of the same runtime.
//! Groups are cut by the rows alone and committed in row order: the bytes do not depend on the
//! number of threads.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use dataset_rt_storage::format::codec::{Algo, Compression, train_dictionary};
use dataset_rt_storage::format::schema::StoredSchema;
use dataset_rt_storage::write::{
    CacheWriter, EncodedGroup, Encoder, Identity, PublishedCache, RowGroup, begun_before_fork,
};
use dataset_rt_storage::{Error, Result};

use crate::fork_gate;
use crate::lookahead::panic_error;
use crate::profile::{Profile, Stage};
use crate::queue::{BoundedQueue, ItemSize, QueueBound};

/// How long the end of a write is waited for between two looks for signals.
const WAIT_SLICE: Duration = Duration::from_millis(50);

/// A write under way.
pub struct WritePipeline {
    writer: Option<CacheWriter>,
    compression: Compression,
    num_workers: usize,
    running: Option<Running>,
    shared: Arc<Shared>,
    pushed: u64,
    pid: u32,
}

struct Running {
    encoders: Vec<JoinHandle<()>>,
    committer: JoinHandle<Option<CacheWriter>>,
}

struct Shared {
    queue: BoundedQueue<(u64, ItemSize, RowGroup)>,
    encoded: Mutex<Encoded>,
    arrived: Condvar,
    profile: Arc<Profile>,
}

/// Encoded groups on their way to the committer, at most as many as the queue has room for.
#[derive(Default)]
struct Encoded {
    groups: BTreeMap<u64, (ItemSize, EncodedGroup)>,
    encoders_left: usize,
    /// The committer has nothing left to do.
    is_over: bool,
    failure: Option<Error>,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Encoded> {
        self.encoded.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records the first failure and stops everybody.
    fn fail(&self, error: Error) {
        self.lock().failure.get_or_insert(error);
        self.queue.close(true);
        self.arrived.notify_all();
    }

    /// Waits a moment for the committer to end; false when it has not.
    fn is_over_soon(&self) -> bool {
        let encoded = self.lock();
        let waited = self.arrived.wait_timeout_while(encoded, WAIT_SLICE, |e| !e.is_over);
        waited.unwrap_or_else(PoisonError::into_inner).0.is_over
    }

    fn failure(&self) -> Option<Error> {
        self.lock().failure.clone()
    }
}

impl WritePipeline {
    /// Takes over a writer that holds its lock and may have been started; threads start with the
    /// first group.
    pub fn new(
        writer: CacheWriter,
        compression: Compression,
        num_workers: usize,
        bound: QueueBound,
        profile: Arc<Profile>,
    ) -> Self {
        let shared = Shared {
            queue: BoundedQueue::new(bound),
            encoded: Mutex::new(Encoded::default()),
            arrived: Condvar::new(),
            profile,
        };
        Self {
            writer: Some(writer),
            compression,
            num_workers: num_workers.max(1),
            running: None,
            shared: Arc::new(shared),
            pushed: 0,
            pid: fork_gate::process(),
        }
    }

    /// Hands over the next group. Blocks while the queue is full; `attend` is called several
    /// times a second meanwhile and may end the wait with an error.
    ///
    /// # Errors
    /// The first failure of any stage, or what `attend` returned.
    pub fn push(
        &mut self,
        schema: &StoredSchema,
        group: RowGroup,
        attend: &mut dyn FnMut() -> Result<()>,
    ) -> Result<()> {
        self.check_process()?;
        if self.running.is_none() {
            self.start(schema, &group)?;
        }
        let bytes = group.raw_bytes() * self.copies();
        let size = ItemSize { samples: group.rows(), bytes };
        let mut item = Some((self.pushed, size, group));
        self.pushed += 1;
        let shared = Arc::clone(&self.shared);
        shared.profile.time(Stage::QueueWait, || {
            while let Some(waiting) = item.take() {
                item = shared.queue.offer(waiting, size);
                if item.is_some() {
                    attend()?;
                    self.check_process()?;
                }
            }
            Ok(())
        })?;
        self.shared.failure().map_or(Ok(()), Err)
    }

    /// How often a group exists at worst: what was compressed waits beside it to be written.
    fn copies(&self) -> u64 {
        match self.compression.algo {
            Algo::None => 1,
            Algo::Lz4 | Algo::Zstd => 2,
        }
    }

    /// A forked child has neither the threads nor the right to touch the parent's files.
    fn check_process(&self) -> Result<()> {
        if self.pid == fork_gate::process() {
            return Ok(());
        }
        Err(begun_before_fork())
    }

    fn start(&mut self, schema: &StoredSchema, first: &RowGroup) -> Result<()> {
        let mut writer =
            self.writer.take().ok_or_else(|| Error::internal("the writer is already used"))?;
        let dictionary = match (writer.started(), self.compression.dictionary_bytes) {
            (Some(dictionary), _) => dictionary.map(<[u8]>::to_vec),
            (None, 0) => None,
            (None, bytes) => train_on(first, bytes as usize)?,
        };
        if writer.started().is_none() {
            writer.start(schema.clone(), dictionary.clone())?;
        }
        let dictionary: Option<Arc<[u8]>> = dictionary.map(Arc::from);
        let spawn_failed = |e: std::io::Error| {
            Error::new(
                dataset_rt_storage::Kind::Exhausted,
                format!("cannot start a writer thread: {e}; allow more threads or fewer workers"),
            )
        };
        self.shared.lock().encoders_left = self.num_workers;
        // All of them before the first thread, which nobody would end.
        let made = (0..self.num_workers)
            .map(|_| Encoder::new(schema, &self.compression, dictionary.clone()))
            .collect::<Result<Vec<_>>>()?;
        let mut encoders = Vec::with_capacity(self.num_workers);
        for (i, encoder) in made.into_iter().enumerate() {
            let shared = Arc::clone(&self.shared);
            let thread = std::thread::Builder::new()
                .name(format!("dataset-rt-encode-{i}"))
                .spawn(move || encode_all(&shared, encoder));
            match thread {
                Ok(thread) => encoders.push(thread),
                Err(error) if encoders.is_empty() => return Err(spawn_failed(error)),
                // One encoder is enough to finish; the others only add overlap.
                Err(_) => self.shared.lock().encoders_left -= 1,
            }
        }
        let shared = Arc::clone(&self.shared);
        let committer = std::thread::Builder::new()
            .name("dataset-rt-commit".to_owned())
            .spawn(move || {
                let writer = commit_all(&shared, writer);
                shared.lock().is_over = true;
                shared.arrived.notify_all();
                writer
            })
            .map_err(|e| {
                self.shared.queue.close(true);
                spawn_failed(e)
            })?;
        self.running = Some(Running { encoders, committer });
        Ok(())
    }

    /// Waits for all groups and publishes the cache. `attend` is called several times a second
    /// until the last group is written; publishing itself is one step that nobody interrupts.
    ///
    /// # Errors
    /// The first failure of any stage, or what `attend` returned; nothing is published then.
    pub fn publish(
        mut self,
        identity: Identity,
        attend: &mut dyn FnMut() -> Result<()>,
    ) -> Result<PublishedCache> {
        self.finish_groups(attend)?;
        let writer = self.join();
        if let Some(error) = self.shared.failure() {
            return Err(error);
        }
        let writer = writer
            .ok_or_else(|| Error::internal("the committer ended without giving its writer back"))?;
        self.shared.profile.time(Stage::Publish, || writer.publish(identity))
    }

    /// Commits what was pushed and ends unpublished: a resumable write keeps the shards that this
    /// finishes. For a source that failed; dropping the pipeline instead ends it at once.
    ///
    /// # Errors
    /// What `attend` returned.
    pub fn settle(mut self, attend: &mut dyn FnMut() -> Result<()>) -> Result<()> {
        self.finish_groups(attend)
    }

    /// Lets the committer end behind the last group pushed.
    fn finish_groups(&mut self, attend: &mut dyn FnMut() -> Result<()>) -> Result<()> {
        self.check_process()?;
        self.shared.queue.close(false);
        while self.running.as_ref().is_some_and(|running| !running.committer.is_finished())
            && !self.shared.is_over_soon()
        {
            attend()?;
            self.check_process()?;
        }
        Ok(())
    }

    /// Waits for the committer; the writer comes back unless it was dropped by a failure. After a
    /// failure encoders may still be busy with a last group: they touch nothing but their memory,
    /// and nobody waits for them.
    fn join(&mut self) -> Option<CacheWriter> {
        let Some(running) = self.running.take() else { return self.writer.take() };
        let writer = running.committer.join().ok().flatten();
        let has_failed = self.shared.failure().is_some();
        for encoder in running.encoders {
            if !has_failed || encoder.is_finished() {
                let _ = encoder.join();
            }
        }
        writer
    }
}

impl Drop for WritePipeline {
    /// An unfinished write ends its threads and removes what it wrote, but for finished shards of
    /// a resumable one.
    fn drop(&mut self) {
        if self.pid != fork_gate::process() {
            // Neither joined nor removed: threads and files are the parent's.
            std::mem::forget(self.running.take());
            std::mem::forget(self.writer.take());
            return;
        }
        if self.running.is_some() {
            self.shared.fail(Error::conflict("the write was given up"));
            drop(self.join());
        }
    }
}

fn train_on(group: &RowGroup, bytes: usize) -> Result<Option<Vec<u8>>> {
    let payload = group.payload();
    let offsets = payload.value_offsets();
    let lengths: Vec<usize> = offsets.windows(2).map(|w| (w[1] - w[0]) as usize).collect();
    let first = offsets.first().map_or(0, |&o| o as usize);
    let last = offsets.last().map_or(0, |&o| o as usize);
    train_dictionary(&payload.value_data()[first..last], &lengths, bytes)
}

fn encode_all(shared: &Shared, mut encoder: Encoder) {
    while let Some((number, size, group)) = shared.queue.take() {
        let encoded = shared.profile.time(Stage::Encode, || {
            catch_unwind(AssertUnwindSafe(|| encoder.encode(group)))
                .unwrap_or_else(|panic| Err(panic_error(panic.as_ref())))
        });
        match encoded {
            Ok(encoded) => {
                shared.lock().groups.insert(number, (size, encoded));
                shared.arrived.notify_all();
            }
            Err(error) => shared.fail(error),
        }
    }
    shared.lock().encoders_left -= 1;
    shared.arrived.notify_all();
}

/// Commits groups in order; gives the writer back when every group is committed.
fn commit_all(shared: &Shared, mut writer: CacheWriter) -> Option<CacheWriter> {
    let mut number = 0;
    while let Some((size, group)) = next_encoded(shared, number) {
        let committed = shared.profile.time(Stage::Commit, || {
            catch_unwind(AssertUnwindSafe(|| writer.commit(group)))
                .unwrap_or_else(|panic| Err(panic_error(panic.as_ref())))
        });
        shared.queue.finished(size);
        if let Err(error) = committed {
            shared.fail(error);
            return None;
        }
        number += 1;
    }
    shared.failure().is_none().then_some(writer)
}

fn next_encoded(shared: &Shared, number: u64) -> Option<(ItemSize, EncodedGroup)> {
    let mut encoded = shared.lock();
    loop {
        if encoded.failure.is_some() {
            return None;
        }
        if let Some(group) = encoded.groups.remove(&number) {
            return Some(group);
        }
        if encoded.encoders_left == 0 {
            return None;
        }
        encoded = shared.arrived.wait(encoded).unwrap_or_else(PoisonError::into_inner);
    }
}
