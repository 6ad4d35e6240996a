//! What stays of a write when the power fails or the disk does: an older cache, the new one, or
//! none, each complete; and a next run that succeeds.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

mod faults;
mod power_loss;
mod support;
