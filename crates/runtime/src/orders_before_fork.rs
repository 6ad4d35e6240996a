//! Orders that nobody asked for yet are worked out before a fork, so that children share one instead
//! of each making its own. Knows no fork itself: the border asks before it closes the gate.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use dataset_rt_storage::Result;

use crate::snapshot::Snapshot;

/// Tables that were handed in, while they live and their order is not known.
static WAITING: Mutex<Vec<Weak<Snapshot>>> = Mutex::new(Vec::new());

/// Remembers a snapshot whose order costs time and memory a row. Call inside the gate.
pub fn remember(snapshot: &Arc<Snapshot>) {
    let mut waiting = WAITING.lock().unwrap_or_else(PoisonError::into_inner);
    waiting.retain(|other| other.strong_count() > 0);
    waiting.push(Arc::downgrade(snapshot));
}

/// Works out every order that is still not known. Call inside the gate, with breaks.
///
/// # Errors
/// What `attend` returned, or why an order cannot be made; the others are then left to whoever
/// needs them, as the error is.
pub fn prepare_orders(attend: &mut dyn FnMut() -> Result<()>) -> Result<()> {
    // The lock is not held while an order is made: `attend` may run Python, which may fork.
    let waiting = std::mem::take(&mut *WAITING.lock().unwrap_or_else(PoisonError::into_inner));
    for snapshot in waiting.iter().filter_map(Weak::upgrade) {
        snapshot.prepare(attend)?;
    }
    Ok(())
}
