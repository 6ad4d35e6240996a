//! A shuffled table of few rows (rule S21); knows nothing of weights.
//!
//! Source: Fisher and Yates, in the form of Durstenfeld, "Algorithm 235", 1964.

use super::LANES;
use super::error::{CycleError, with_room};
use crate::key::StreamKey;
use crate::weights::multiply_high;

/// Shuffled by a table up to here, and by a network behind it: all orders of few rows are equally
/// likely, which a network of few values cannot promise.
pub(crate) const SHUFFLED_ROWS_MAX: u64 = 1 << 16;

/// All rows below `rows`, in random order.
pub(super) fn shuffled(key: &StreamKey, rows: u32) -> Result<Vec<u32>, CycleError> {
    let mut order = with_room(rows as usize)?;
    order.extend(0..rows);
    let mut bits = [0; LANES];
    let mut end = rows as usize;
    while end > 0 {
        let start = end.saturating_sub(LANES);
        for (i, bits) in (start..end).zip(&mut bits) {
            *bits = key.bits(i as u64);
        }
        for i in (start..end).rev() {
            order.swap(i, multiply_high(bits[i - start], i as u64 + 1) as usize);
        }
        end = start;
    }
    Ok(order)
}
