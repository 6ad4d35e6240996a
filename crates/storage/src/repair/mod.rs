//! What is left of a damaged cache: which bytes are still proven, what can be put back in place,
//! which samples survive. Knows the format, the store and how files are written; never the reader,
//! which stops at the first damage.
//!
//! ```text
//! remains    manifest, files, and rows put together from whatever still holds them
//!   ^ proven      a file whose bytes come with the proof of their block
//!   ^ columns     stored columns from whichever file holds them
//!   ^ structure   where the record batches of a damaged Arrow file lie
//!   ^ cells       values of one column, each there or lost
//!   ^ payloads    stored bytes -> payload
//!   ^ region      bytes with holes, and why
//! unproven   a cache without its manifest, from Arrow structure alone
//! walk       remains -> pieces: the samples that survive, the samples that do not
//! examine    which files are damaged, which samples are lost
//! restore    derived files written anew, exactly where the digest says that they are the same
//! ```

mod cells;
mod columns;
mod examine;
mod payloads;
mod proven;
mod region;
mod remains;
mod restore;
mod structure;
#[cfg(test)]
mod tests;
mod unproven;
mod walk;

pub use examine::{Examination, FileFinding, FileState, LostSamples, examine};
pub use region::Loss;
pub use remains::{Remains, Trust};
pub use restore::restore;
pub use walk::{Samples, Selection};
