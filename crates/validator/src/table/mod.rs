//! Whether a user's table obeys the caches it speaks about. No file is touched in here.
//!
//! ```text
//! user's table ──> columns   which column is which; names, reserved and missing ones
//!                    │
//!                 identity   cache_id, sample_id as u64 ──> place   rows -> runs of cache rows
//!                  weight    finite and above 0                       │
//!                  stored    user's type -> stored type ──> compare <─┘  equal cell by cell
//!                    │
//!                  check ──> CheckedTable, which nothing else can make
//! ```

mod cell;
mod check;
mod checked;
mod columns;
mod compare;
mod identity;
mod place;
mod stored;
mod weight;

#[cfg(test)]
mod tests;

pub use check::{CacheColumns, check_table, whole_table};
pub use checked::{CacheOrdinals, CheckedTable, RestoredOrdinals, TableRow};
