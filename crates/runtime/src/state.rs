//! What changes about a dataset: its table and where its stream stands, which other processes may
//! follow. Knows no file.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use dataset_rt_sampler::Cursor;
use dataset_rt_storage::Result;

use crate::lineage::Lineage;
use crate::progress::Progress;
use crate::snapshot::Snapshot;

/// Table and place in the stream.
pub struct State {
    /// The active table and its order.
    pub snapshot: Arc<Snapshot>,
    /// Where the stream stands, as far as this process knows: [`State::follow`] asks others.
    pub cursor: Cursor,
    /// Of the newest iterator, unless something moved the stream since.
    pub newest: Option<Arc<Progress>>,
    /// Whom the cursor follows.
    pub lineage: Lineage,
}

/// All states, for [`share_cursors`].
static LIVING: Mutex<Vec<Weak<Mutex<State>>>> = Mutex::new(Vec::new());

impl State {
    /// A state before any iterator.
    pub fn of(snapshot: Arc<Snapshot>, cursor: Cursor, lineage: Lineage) -> Self {
        Self { snapshot, cursor, newest: None, lineage }
    }

    /// A state that may be shared with children. Call inside the gate.
    pub fn new(snapshot: Arc<Snapshot>, cursor: Cursor) -> Arc<Mutex<Self>> {
        let state = Arc::new(Mutex::new(Self::of(snapshot, cursor, Lineage::new())));
        let mut living = LIVING.lock().unwrap_or_else(PoisonError::into_inner);
        living.retain(|other| other.strong_count() > 0);
        living.push(Arc::downgrade(&state));
        state
    }

    /// Brings the cursor to where the process that this one follows left it.
    ///
    /// # Errors
    /// As [`Lineage::follow`].
    pub fn follow(&mut self) -> Result<()> {
        self.lineage.follow(&mut self.cursor)
    }

    /// The cursor was moved by this process, which follows nobody from now on.
    pub fn has_moved(&mut self) {
        self.lineage.part();
        self.lineage.tell(self.cursor);
    }
}

/// Lets children that are forked now follow the cursors of all datasets. Call when the gate is
/// closed and with the interpreter lock, so that nobody has a state in hand.
pub fn share_cursors() {
    let living = LIVING.lock().unwrap_or_else(PoisonError::into_inner).clone();
    for state in living.iter().filter_map(Weak::upgrade) {
        let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
        let State { cursor, lineage, .. } = &mut *state;
        lineage.share_with_forks(cursor);
    }
}
