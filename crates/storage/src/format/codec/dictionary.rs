//! Training of a zstd dictionary from samples. Knows nothing of where samples come from.

use crate::format::limits::DICTIONARY_BYTES_MAX;
use crate::{Error, Result};

/// A dictionary of at most `bytes` bytes made from `samples`, which lie one after another with
/// the given `lengths`. The same input gives the same dictionary. Costs about a second for 100
/// MB of samples.
///
/// `None` if the samples are too few or too alike for zstd's trainer: compress without one.
///
/// # Errors
/// `InvalidInput` if `bytes` is above the format's limit or `lengths` do not add up.
pub fn train_dictionary(
    samples: &[u8],
    lengths: &[usize],
    bytes: usize,
) -> Result<Option<Vec<u8>>> {
    if bytes as u64 > DICTIONARY_BYTES_MAX {
        return Err(Error::invalid(format!(
            "dictionary of {bytes} bytes; expected at most {DICTIONARY_BYTES_MAX}"
        )));
    }
    let total = lengths.iter().try_fold(0_usize, |total, len| total.checked_add(*len));
    if total != Some(samples.len()) {
        return Err(Error::invalid(format!(
            "sample lengths do not add up to {} bytes",
            samples.len()
        )));
    }
    if lengths.is_empty() {
        return Ok(None);
    }
    Ok(zstd::dict::from_continuous(samples, lengths, bytes).ok().filter(|dict| !dict.is_empty()))
}
