//! Weights as intervals of integers; knows nothing of keys, positions or random bits' origin.
//!
//! ```text
//! f64 weight ── quantise ──► q ── running sum, shift ──► T ── min { i : T_i > r } ──► row
//!                              └─ all weights equal: closed form, no T (equal.rs)
//! guide.rs narrows the search and never changes its result
//! ```

mod equal;
mod error;
mod guide;
mod numbers;
mod quantise;
mod table;
#[cfg(test)]
mod tests;

pub(crate) use equal::multiply_high;
pub use error::{WeightError, WeightProblem};
pub use numbers::SharedNumbers;
pub(crate) use quantise::parts;
pub use table::{WeightParts, WeightTable, WeightTableBuilder};
