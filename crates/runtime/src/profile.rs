//! Where the time of a write went, stage by stage. Measures, decides nothing.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use serde::Serialize;

/// The stages of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Waiting for the source's next sample.
    Source,
    /// Copying samples into row groups.
    Ingest,
    /// The source waiting for room in the queue.
    QueueWait,
    /// Compressing and laying out record batches, summed over workers.
    Encode,
    /// Hashing and writing files.
    Commit,
    /// Closing files durably and renaming.
    Publish,
}

/// Seconds per stage, what was written, and how it ended.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct StageSeconds {
    source: f64,
    ingest: f64,
    queue_wait: f64,
    encode: f64,
    commit: f64,
    publish: f64,
}

/// Adds up stage times from several threads. Switched off it costs one branch.
pub struct Profile {
    seconds: Option<Mutex<StageSeconds>>,
}

impl Profile {
    /// A profile that measures only if `is_on`.
    pub fn new(is_on: bool) -> Self {
        Self { seconds: is_on.then(|| Mutex::new(StageSeconds::default())) }
    }

    /// Whether anything is measured.
    pub fn is_on(&self) -> bool {
        self.seconds.is_some()
    }

    /// Runs `work` on the account of `stage`.
    #[expect(clippy::disallowed_methods, reason = "a profile is about wall time")]
    pub fn time<R>(&self, stage: Stage, work: impl FnOnce() -> R) -> R {
        if self.seconds.is_none() {
            return work();
        }
        let start = Instant::now();
        let result = work();
        self.add(stage, start.elapsed());
        result
    }

    /// Books time that the caller measured.
    pub fn add(&self, stage: Stage, duration: Duration) {
        let Some(seconds) = &self.seconds else { return };
        let mut seconds = seconds.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let account = match stage {
            Stage::Source => &mut seconds.source,
            Stage::Ingest => &mut seconds.ingest,
            Stage::QueueWait => &mut seconds.queue_wait,
            Stage::Encode => &mut seconds.encode,
            Stage::Commit => &mut seconds.commit,
            Stage::Publish => &mut seconds.publish,
        };
        *account += duration.as_secs_f64();
    }

    /// What was measured; zeros when off.
    pub fn seconds(&self) -> StageSeconds {
        self.seconds.as_ref().map_or_else(StageSeconds::default, |seconds| {
            seconds.lock().unwrap_or_else(std::sync::PoisonError::into_inner).clone()
        })
    }
}
