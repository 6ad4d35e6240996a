//! The digest of an active table, run by run; knows nothing of seeds, draws or extra columns.

use std::fmt;

use crate::mode::Mode;

/// Contexts of rule S3: a table in order and a table as a set never share a digest.
const ORDERED_CONTEXT: &str = "DatasetRT order of rows v0: table in table order";
const SET_CONTEXT: &str = "DatasetRT order of rows v0: table as a set";

/// Bytes hashed at once: as many blocks as the widest processors take side by side, several times,
/// and still within their first caches.
const WRITTEN_MAX: usize = 64 * 1024;

/// Digest of identity and weight of all rows of a table. `Display` writes 64 hex digits.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct TableDigest(pub [u8; 32]);

impl fmt::Display for TableDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for TableDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TableDigest({self})")
    }
}

/// What a row contributes to the order. Its `Ord` is the canonical order of rule S2.
///
/// Rows equal in all three are told apart by table position alone: sort stably.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RowKey {
    /// Identity of the cache.
    pub cache_id: u64,
    /// Row inside the cache.
    pub sample_id: u64,
    /// Bits of the weight; for the positive weights of a table they sort like the weights.
    pub weight_bits: u64,
}

impl RowKey {
    /// The key of one row.
    #[must_use]
    pub const fn new(cache_id: u64, sample_id: u64, weight: f64) -> Self {
        Self { cache_id, sample_id, weight_bits: weight.to_bits() }
    }
}

/// Rows of one cache with consecutive sample ids and one weight.
#[derive(Clone, Copy, Debug)]
struct Run {
    first: RowKey,
    rows: u64,
}

impl Run {
    /// This run with `next` appended, or `None` when the two do not form one run.
    fn joined(self, next: Self) -> Option<Self> {
        let follows = self.first.cache_id == next.first.cache_id
            && self.first.weight_bits == next.first.weight_bits
            && self.first.sample_id.checked_add(self.rows) == Some(next.first.sample_id);
        let rows = self.rows.checked_add(next.rows)?;
        follows.then_some(Self { first: self.first, rows })
    }
}

/// Computes a [`TableDigest`] in constant memory from rows or runs of rows.
///
/// Pushed runs are merged into maximal ones before they are hashed, so the digest depends on the
/// rows and not on how they were cut: an untouched table costs one push per cache.
#[derive(Clone, Debug)]
pub struct TableDigester {
    hasher: blake3::Hasher,
    /// Runs on their way to the hash, which is five times faster over many at once.
    written: Vec<u8>,
    open: Option<Run>,
}

impl TableDigester {
    /// A digester for a table used in `mode`.
    ///
    /// [`Mode::Sequential`] wants rows in table order. Shuffled modes want them in the canonical
    /// order of [`RowKey`], which is the caller's to establish, and share one digest.
    #[must_use]
    pub fn new(mode: Mode) -> Self {
        let context = if mode.is_table_ordered() { ORDERED_CONTEXT } else { SET_CONTEXT };
        Self { hasher: blake3::Hasher::new_derive_key(context), written: Vec::new(), open: None }
    }

    /// Appends one row.
    pub fn push(&mut self, cache_id: u64, sample_id: u64, weight: f64) {
        self.push_run(cache_id, sample_id, 1, weight);
    }

    /// Appends `rows` rows with sample ids `first_sample, first_sample + 1, ..` and one weight.
    ///
    /// Zero rows append nothing.
    pub fn push_run(&mut self, cache_id: u64, first_sample: u64, rows: u64, weight: f64) {
        if rows == 0 {
            return;
        }
        let next = Run { first: RowKey::new(cache_id, first_sample, weight), rows };
        let Some(open) = self.open else {
            self.open = Some(next);
            return;
        };
        self.open = open.joined(next).or_else(|| {
            self.write(open);
            Some(next)
        });
    }

    /// The digest of all rows pushed.
    #[must_use]
    pub fn finish(mut self) -> TableDigest {
        if let Some(open) = self.open.take() {
            self.write(open);
        }
        self.hasher.update(&self.written);
        TableDigest(*self.hasher.finalize().as_bytes())
    }

    /// Hashes one maximal run: four little-endian words (rule S4).
    fn write(&mut self, run: Run) {
        let RowKey { cache_id, sample_id, weight_bits } = run.first;
        let words = [cache_id, sample_id, run.rows, weight_bits].map(u64::to_le_bytes);
        self.written.extend_from_slice(words.as_flattened());
        if self.written.len() >= WRITTEN_MAX {
            self.hasher.update(&self.written);
            self.written.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn digest(mode: Mode, runs: &[(u64, u64, u64, f64)]) -> TableDigest {
        let mut digester = TableDigester::new(mode);
        for &(cache_id, first, rows, weight) in runs {
            digester.push_run(cache_id, first, rows, weight);
        }
        digester.finish()
    }

    #[test]
    fn display_is_lower_case_hex_of_all_bytes() {
        let mut bytes = [0; 32];
        bytes[0] = 0xab;
        bytes[31] = 0x01;
        let text = TableDigest(bytes).to_string();
        assert_eq!(text.len(), 64);
        assert!(text.starts_with("ab00") && text.ends_with("0001"), "{text}");
    }

    #[test]
    fn table_order_and_set_never_share_a_digest() {
        for runs in [&[][..], &[(1, 0, 10, 1.0)]] {
            assert_ne!(digest(Mode::Sequential, runs), digest(Mode::Multinomial, runs));
        }
    }

    #[test]
    fn every_field_of_a_row_enters() {
        let base = digest(Mode::Multinomial, &[(1, 2, 3, 1.0)]);
        let others = [(0, 2, 3, 1.0), (1, 1, 3, 1.0), (1, 2, 4, 1.0), (1, 2, 3, 1.0_f64.next_up())];
        for other in others {
            assert_ne!(base, digest(Mode::Multinomial, &[other]));
        }
        assert_ne!(base, digest(Mode::Multinomial, &[(1, 2, 3, 1.0), (1, 2, 3, 1.0)]));
    }

    #[test]
    fn rows_that_differ_in_cache_or_weight_never_form_a_run() {
        let run = digest(Mode::Multinomial, &[(1, 0, 2, 1.0)]);
        for second in [(2, 1, 1, 1.0), (1, 1, 1, 2.0), (1, 2, 1, 1.0), (1, 0, 1, 1.0)] {
            assert_ne!(run, digest(Mode::Multinomial, &[(1, 0, 1, 1.0), second]), "{second:?}");
        }
    }

    #[test]
    fn order_of_rows_enters() {
        let forth = digest(Mode::Sequential, &[(1, 0, 1, 1.0), (2, 0, 1, 1.0)]);
        let back = digest(Mode::Sequential, &[(2, 0, 1, 1.0), (1, 0, 1, 1.0)]);
        assert_ne!(forth, back);
    }

    #[test]
    fn ends_of_the_integer_range_do_not_wrap_into_a_run() {
        let wrapped = digest(Mode::Sequential, &[(1, u64::MAX, 1, 1.0), (1, 0, 1, 1.0)]);
        let apart = digest(Mode::Sequential, &[(1, u64::MAX, 2, 1.0)]);
        assert_ne!(wrapped, apart);
        digest(Mode::Sequential, &[(1, 0, u64::MAX, 1.0), (1, u64::MAX, u64::MAX, 1.0)]);
    }

    /// Rows from a small world, so that runs, duplicates and breaks all appear.
    fn rows() -> impl Strategy<Value = Vec<(u64, u64, u64, f64)>> {
        let weight = prop_oneof![Just(1.0), Just(2.5)];
        prop::collection::vec((0..2_u64, 0..6_u64, 0..5_u64, weight), 0..24)
    }

    proptest! {
        #[test]
        fn cutting_rows_into_runs_changes_nothing(
            runs in rows(), cuts in prop::collection::vec(1..4_u64, 1..8)
        ) {
            let whole = digest(Mode::Multinomial, &runs);
            let mut single = TableDigester::new(Mode::Multinomial);
            let mut cut = TableDigester::new(Mode::Multinomial);
            let mut sizes = cuts.iter().cycle();
            for (cache_id, first, rows, weight) in runs {
                (first..first + rows).for_each(|id| single.push(cache_id, id, weight));
                let mut done = 0;
                while done < rows {
                    let size = sizes.next().copied().unwrap_or(1).min(rows - done);
                    cut.push_run(cache_id, first + done, size, weight);
                    done += size;
                }
            }
            prop_assert_eq!(whole, single.finish());
            prop_assert_eq!(whole, cut.finish());
        }

        #[test]
        fn different_rows_have_different_digests(a in rows(), b in rows()) {
            let flat = |runs: &[(u64, u64, u64, f64)]| -> Vec<RowKey> {
                let row = |&(cache, first, rows, weight): &(u64, u64, u64, f64)| {
                    (first..first + rows).map(move |id| RowKey::new(cache, id, weight))
                };
                runs.iter().flat_map(row).collect()
            };
            let same = digest(Mode::Sequential, &a) == digest(Mode::Sequential, &b);
            prop_assert_eq!(same, flat(&a) == flat(&b));
        }
    }
}
