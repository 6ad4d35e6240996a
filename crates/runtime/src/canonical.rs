//! Rows of a user's table in canonical order: by cache, sample, weight, then table position. Knows no
//! mode and no weight but as bits to sort by.

use dataset_rt_storage::{Error, Result};
use dataset_rt_validator::table::{CacheOrdinals, CheckedTable};

use crate::active::ActiveTable;
use crate::plan::PIECE_ROWS;

/// Identities of a checked table as one number each, ascending in canonical order.
pub struct IdentityRanks<'a> {
    checked: &'a CheckedTable,
    /// Per cache ordinal: cache id and the rank of its sample 0.
    caches: Vec<(u64, u64)>,
    samples_total: u64,
}

impl<'a> IdentityRanks<'a> {
    /// Ranks the samples of all caches of `table`, whose rows `checked` holds.
    pub fn new(table: &ActiveTable, checked: &'a CheckedTable) -> Self {
        let caches = table.caches();
        let mut sorted: Vec<usize> = (0..caches.len()).collect();
        sorted.sort_unstable_by_key(|&i| caches[i].cache_id());
        let mut bases = vec![(0, 0); caches.len()];
        let mut base = 0;
        for i in sorted {
            bases[i] = (caches[i].cache_id(), base);
            base += caches[i].rows();
        }
        Self { checked, caches: bases, samples_total: base }
    }

    /// Id of the cache at a position of the dataset.
    pub fn cache_id(&self, cache: u32) -> u64 {
        self.caches.get(cache as usize).map_or(0, |c| c.0)
    }

    fn rank(&self, cache: u32, sample_id: u64) -> u64 {
        self.caches.get(cache as usize).map_or(0, |c| c.1) + sample_id
    }

    /// Cache ordinal, sample id and weight of a table row that exists.
    pub fn row(&self, row: usize) -> (u32, u64, f64) {
        self.checked.row(row).map_or((0, 0, 0.0), |row| (row.cache, row.sample_id, row.weight))
    }

    /// Calls `visit(row, cache ordinal, sample id, weight)` for every row in table order.
    pub fn for_each(
        &self,
        attend: &mut dyn FnMut() -> Result<()>,
        mut visit: impl FnMut(usize, u32, u64, f64),
    ) -> Result<()> {
        let ordinals = self.checked.caches();
        let mut row = 0;
        for (ids, weights) in self.checked.sample_ids().iter().zip(self.checked.weights()) {
            let pieces = ids.values().chunks(PIECE_ROWS);
            for (ids, weights) in pieces.zip(weights.values().chunks(PIECE_ROWS)) {
                attend()?;
                for (&sample_id, &weight) in ids.iter().zip(weights) {
                    let cache = match ordinals {
                        CacheOrdinals::One(cache) => cache,
                        CacheOrdinals::PerRow(caches) => caches.get(row).copied().unwrap_or(0),
                    };
                    visit(row, cache, sample_id, weight);
                    row += 1;
                }
            }
        }
        Ok(())
    }

    /// Whether the table's rows stand in canonical order already.
    ///
    /// # Errors
    /// What `attend` returned.
    pub fn are_canonical(&self, attend: &mut dyn FnMut() -> Result<()>) -> Result<bool> {
        let mut last = (0, 0);
        let mut ascending = true;
        self.for_each(attend, |_, cache, sample_id, weight| {
            let key = (self.rank(cache, sample_id), weight.to_bits());
            ascending &= last <= key;
            last = key;
        })?;
        Ok(ascending)
    }

    /// Table rows in canonical order: by rank, weight bits, then table position.
    ///
    /// # Errors
    /// `Unsupported` for 2^32 rows and more, or what `attend` returned.
    pub fn canonical_rows(&self, attend: &mut dyn FnMut() -> Result<()>) -> Result<Vec<u32>> {
        let rows = self.checked.rows();
        u32::try_from(rows).map_err(|_| {
            Error::unsupported(format!("{rows} table rows; expected fewer than 2^32"))
        })?;
        // A counting sort costs four bytes a sample of the caches: worth it unless the table is
        // a small part of them.
        if self.samples_total <= 8 * rows as u64 {
            return self.counting_sort(rows, attend);
        }
        let mut keys = Vec::with_capacity(rows);
        self.for_each(attend, |row, cache, sample_id, weight| {
            keys.push((self.rank(cache, sample_id), weight.to_bits(), row as u32));
        })?;
        keys.sort_unstable();
        Ok(keys.into_iter().map(|(_, _, row)| row).collect())
    }

    fn counting_sort(
        &self,
        rows: usize,
        attend: &mut dyn FnMut() -> Result<()>,
    ) -> Result<Vec<u32>> {
        let mut next = vec![0_u32; self.samples_total as usize + 1];
        self.for_each(attend, |_, cache, sample_id, _| {
            next[self.rank(cache, sample_id) as usize + 1] += 1;
        })?;
        for i in 1..next.len() {
            next[i] += next[i - 1];
        }
        let mut sorted = vec![0_u32; rows];
        self.for_each(attend, |row, cache, sample_id, _| {
            let slot = &mut next[self.rank(cache, sample_id) as usize];
            sorted[*slot as usize] = row as u32;
            *slot += 1;
        })?;
        // Rows of one identity are in table order now; weight bits come before that.
        let bits = |row: u32| self.row(row as usize).2.to_bits();
        let mut start = 0;
        let mut unattended = 0;
        for &end in &next[..self.samples_total as usize] {
            let group = &mut sorted[start..end as usize];
            unattended += group.len() + 1;
            if unattended >= PIECE_ROWS {
                attend()?;
                unattended = 0;
            }
            // Duplicates of equal weight, the rule, are only looked at.
            if group.len() > 1 && !group.is_sorted_by_key(|&row| bits(row)) {
                group.sort_by_cached_key(|&row| bits(row));
            }
            start = end as usize;
        }
        Ok(sorted)
    }
}
