//! Tables of the rows of one cycle each, and what they are made from; keeps none.

use super::error::CycleError;
use super::shuffle::shuffled;
use super::weighted::CycleWeights;
use crate::key::CycleKeys;

/// Makes the table of any cycle.
#[derive(Clone, Debug)]
pub struct CycleSource {
    keys: CycleKeys,
    kind: Kind,
}

#[derive(Clone, Debug)]
enum Kind {
    Shuffled { rows: u32 },
    Weighted(CycleWeights),
}

impl CycleSource {
    pub(crate) const fn shuffled(keys: CycleKeys, rows: u32) -> Self {
        Self { keys, kind: Kind::Shuffled { rows } }
    }

    pub(crate) const fn weighted(keys: CycleKeys, weights: CycleWeights) -> Self {
        Self { keys, kind: Kind::Weighted(weights) }
    }

    /// Rows of a cycle, which are as many positions.
    #[must_use]
    pub const fn rows(&self) -> u64 {
        match &self.kind {
            Kind::Shuffled { rows } => *rows as u64,
            Kind::Weighted(weights) => weights.rows(),
        }
    }

    /// Memory that a table holds, in bytes.
    #[must_use]
    pub const fn table_bytes(&self) -> u64 {
        self.rows().saturating_mul(size_of::<u32>() as u64)
    }

    /// Works out cycle `cycle`: O(rows), or O(rows log rows) by weight, with up to 20 bytes a row
    /// meanwhile. `go_on` is asked many times a second.
    ///
    /// # Errors
    /// As [`CycleError`] says.
    pub fn build(
        &self,
        cycle: u64,
        go_on: &mut dyn FnMut() -> bool,
    ) -> Result<CycleTable, CycleError> {
        let key = self.keys.key(cycle);
        let rows = match &self.kind {
            Kind::Shuffled { rows } => shuffled(&key, *rows),
            Kind::Weighted(weights) => {
                let rows = weights.rows();
                let few = u32::try_from(rows).map_err(|_| CycleError::TooManyRows { rows })?;
                weights.ordered(&key, few, go_on)
            }
        }?;
        Ok(CycleTable { cycle, rows })
    }
}

/// The rows of one cycle.
#[derive(Debug)]
pub struct CycleTable {
    cycle: u64,
    rows: Vec<u32>,
}

impl CycleTable {
    /// Number of the cycle.
    #[must_use]
    pub const fn cycle(&self) -> u64 {
        self.cycle
    }

    /// Each row once, in the order of the cycle's positions.
    #[must_use]
    pub fn rows(&self) -> &[u32] {
        &self.rows
    }
}
