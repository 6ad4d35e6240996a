//! The order of a table as plain numbers in shared memory, and back. Knows no rows.

use std::sync::Arc;

use dataset_rt_sampler::{TableDigest, WeightParts, WeightTable};
use dataset_rt_storage::{Error, Result};
use serde::{Deserialize, Serialize};

use super::memory::{SectionWriter, Sections};
use crate::plan::{PlanParts, RowMap};

const ROW_MAP: &str = "row map";
const THRESHOLDS: &str = "thresholds";
const GUIDE: &str = "guide";

/// What is not in sections of its own.
#[derive(Serialize, Deserialize)]
pub struct OrderMeaning {
    digest: [u8; 32],
    weights: Weights,
}

#[derive(Serialize, Deserialize)]
enum Weights {
    NotDrawn,
    Equal { rows: u64, quantum: u64 },
    Thresholds { shift: u32, coarse: u32 },
}

/// Writes the parts of an order.
///
/// # Errors
/// As the system fails, or what `attend` returned.
pub fn write_order(
    parts: &PlanParts<'_>,
    out: &mut SectionWriter,
    attend: &mut dyn FnMut() -> Result<()>,
) -> Result<OrderMeaning> {
    if let Some(rows) = parts.row_map {
        out.numbers(ROW_MAP, rows, attend)?;
    }
    let weights = match parts.weights {
        None => Weights::NotDrawn,
        Some(WeightParts::Equal { rows, quantum }) => Weights::Equal { rows, quantum },
        Some(WeightParts::Thresholds { thresholds, entries, shift, coarse }) => {
            out.numbers(THRESHOLDS, thresholds, attend)?;
            out.numbers(GUIDE, entries, attend)?;
            Weights::Thresholds { shift, coarse }
        }
    };
    Ok(OrderMeaning { digest: parts.digest.0, weights })
}

/// Digest, row map and weights of an order that [`write_order`] wrote; they stay where they are.
///
/// # Errors
/// `Corrupt` when parts are missing or do not belong together.
pub fn read_order(
    meaning: &OrderMeaning,
    sections: &Sections,
) -> Result<(TableDigest, RowMap, Option<WeightTable>)> {
    let missing = || Error::corrupt("the order of a table in shared memory is not complete");
    let rows = match sections.section(ROW_MAP) {
        None => RowMap::Same,
        Some(_) => RowMap::Each(sections.numbers(ROW_MAP).ok_or_else(missing)?),
    };
    let weights = match meaning.weights {
        Weights::NotDrawn => None,
        Weights::Equal { rows, quantum } => {
            Some(WeightTable::from_equal(rows, quantum).ok_or_else(missing)?)
        }
        Weights::Thresholds { shift, coarse } => {
            let thresholds = Arc::new(sections.numbers::<u64>(THRESHOLDS).ok_or_else(missing)?);
            let entries = Arc::new(sections.numbers::<u32>(GUIDE).ok_or_else(missing)?);
            let table = WeightTable::from_thresholds(thresholds, entries, shift, coarse);
            Some(table.ok_or_else(missing)?)
        }
    };
    Ok((TableDigest(meaning.digest), rows, weights))
}
