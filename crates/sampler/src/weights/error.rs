//! What makes a weight unusable; knows nothing of tables' columns or how weights are stored.

use std::error::Error;
use std::fmt;

/// What is wrong with a weight.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum WeightProblem {
    /// Not a number.
    NotANumber,
    /// Positive infinity.
    Infinite,
    /// Below zero, negative infinity included.
    Negative,
    /// Zero of either sign.
    Zero,
    /// There is no row at all.
    NoRows,
}

/// The first weight that cannot be drawn from.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WeightError {
    /// Row of the weight, counted from 0; 0 for [`WeightProblem::NoRows`].
    pub row: u64,
    /// The weight found; NaN for [`WeightProblem::NoRows`].
    pub weight: f64,
    /// What is wrong with it.
    pub reason: WeightProblem,
}

impl WeightError {
    pub(super) const NO_ROWS: Self =
        Self { row: 0, weight: f64::NAN, reason: WeightProblem::NoRows };

    /// `weight` itself when it is finite and positive.
    pub(crate) fn check(row: u64, weight: f64) -> Result<f64, Self> {
        let reason = if weight > 0.0 && weight < f64::INFINITY {
            return Ok(weight);
        } else if weight.is_nan() {
            WeightProblem::NotANumber
        } else if weight == 0.0 {
            WeightProblem::Zero
        } else if weight < 0.0 {
            WeightProblem::Negative
        } else {
            WeightProblem::Infinite
        };
        Err(Self { row, weight, reason })
    }
}

impl fmt::Display for WeightError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let advice = match self.reason {
            WeightProblem::NoRows => {
                return f.write_str("weights: expected at least one row, found none");
            }
            WeightProblem::Zero => "; to exclude a row, filter it out",
            _ => "",
        };
        let Self { row, weight, .. } = self;
        write!(f, "weight: expected a finite number above 0, found {weight} in row {row}{advice}")
    }
}

impl Error for WeightError {}
