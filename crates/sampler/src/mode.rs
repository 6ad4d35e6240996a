//! The sampling modes and the version of their meaning; knows nothing of how a mode draws.

use std::fmt;

/// Version of every rule that decides the order of rows.
///
/// It enters each stream key, so a release that changes any rule changes the version and can never
/// continue an old stream silently. Version 0 is a draft: its golden vectors may be regenerated.
pub const SAMPLER_VERSION: u32 = 0;

/// How positions of a stream become rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Mode {
    /// Rows in table order, again and again.
    Sequential,
    /// Independent weighted draws with replacement from the table taken as a set.
    Multinomial,
    /// Each row once a cycle, in an order drawn for each cycle; weights do not count.
    Permutation,
    /// Each row once a cycle, in an order drawn for each cycle: heavier rows tend to come earlier.
    WeightedWithoutReplacement,
}

impl Mode {
    /// Every mode, by its code.
    pub const ALL: [Self; 4] =
        [Self::Sequential, Self::Multinomial, Self::Permutation, Self::WeightedWithoutReplacement];

    /// The name used in configurations and saved states.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Sequential => "sequential",
            Self::Multinomial => "multinomial",
            Self::Permutation => "permutation",
            Self::WeightedWithoutReplacement => "weighted_without_replacement",
        }
    }

    /// The mode called `name`, or `None` when this version has no such mode.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|mode| mode.as_str() == name)
    }

    /// Whether the position of a row inside the table takes part in the order.
    #[must_use]
    pub const fn is_table_ordered(self) -> bool {
        matches!(self, Self::Sequential)
    }

    /// The byte of rule S5. Codes are append-only.
    pub(crate) const fn code(self) -> u8 {
        match self {
            Self::Sequential => 0,
            Self::Multinomial => 1,
            Self::Permutation => 2,
            Self::WeightedWithoutReplacement => 3,
        }
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_lead_back_to_their_mode() {
        for mode in Mode::ALL {
            assert_eq!(Mode::from_name(mode.as_str()), Some(mode));
        }
        assert_eq!(Mode::from_name("Multinomial"), None);
        assert_eq!(Mode::from_name(""), None);
    }
}
