//! Tests of reading: what was written comes back, damage and lies are refused.

mod damage;
mod hostile;
mod open;
mod round_trip;
pub(crate) mod support;
