//! Whether an existing cache serves a source, or must be written anew. Writes nothing.

use std::path::Path;

use dataset_rt_storage::format::schema::StoredSchema;
use dataset_rt_storage::read::{Cache, OpenOptions};
use dataset_rt_storage::{Error, Kind, Result};

use crate::dataset::refuse_damaged;

/// What to do with a cache that is stale.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnStale {
    /// Refuse, naming both values.
    Error,
    /// Build a new one aside and exchange them.
    Rewrite,
    /// Take it as it is.
    Reuse,
}

impl OnStale {
    /// Reads the public name.
    pub fn from_name(name: &str) -> Option<Self> {
        match name {
            "error" => Some(Self::Error),
            "rewrite" => Some(Self::Rewrite),
            "reuse" => Some(Self::Reuse),
            _ => None,
        }
    }
}

/// What a source says about itself before it is iterated.
#[derive(Clone, Debug, Default)]
pub struct SourceClaim {
    /// Version of its preprocessing.
    pub fingerprint: Option<String>,
    /// Columns it declares.
    pub schema: Option<StoredSchema>,
}

/// What to do for a source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// There is no cache: write one.
    Write,
    /// There is a stale cache: write a new one and exchange them.
    Replace,
    /// The cache serves, with this many samples.
    Reuse {
        /// Samples in the cache.
        samples: u64,
    },
}

/// Decides for the cache at `path`, which need not exist. `attend` is called many times a second
/// while the cache is verified; its error ends that.
///
/// # Errors
/// `Conflict` for a stale cache with [`OnStale::Error`]; `Corrupt` or `Unsupported` for one that
/// cannot be read: such a cache is never rewritten.
pub fn decide(
    path: &Path,
    claim: &SourceClaim,
    on_stale: OnStale,
    validate_cache: bool,
    attend: &mut dyn FnMut() -> Result<()>,
) -> Result<Decision> {
    if std::fs::symlink_metadata(path).is_err() {
        return Ok(Decision::Write);
    }
    let cache = Cache::open(path, &OpenOptions::default()).map_err(|e| {
        if e.kind() == Kind::NotFound {
            return Error::conflict(format!(
                "{} exists but is not a complete cache: it has no manifest; remove or move that \
                 directory and call again, or choose another source name",
                path.display()
            ));
        }
        e
    })?;
    match (staleness(&cache, claim), on_stale) {
        (Some(reason), OnStale::Error) => Err(Error::conflict(format!(
            "{} is stale: {reason}; choose another source name, or set on_stale to \"rewrite\" or \
             \"reuse\"",
            path.display()
        ))),
        (Some(_), OnStale::Rewrite) => Ok(Decision::Replace),
        (None, _) | (Some(_), OnStale::Reuse) => {
            if validate_cache {
                refuse_damaged(path, attend)?;
            }
            Ok(Decision::Reuse { samples: cache.rows() })
        }
    }
}

fn staleness(cache: &Cache, claim: &SourceClaim) -> Option<String> {
    let stored = &cache.manifest().fingerprint;
    if *stored != claim.fingerprint {
        let show = |value: &Option<String>| match value {
            None => "no fingerprint".to_owned(),
            Some(value) => format!("fingerprint {value:?}"),
        };
        return Some(format!(
            "the source has {}, the cache {}",
            show(&claim.fingerprint),
            show(stored)
        ));
    }
    let declared = claim.schema.as_ref()?;
    let difference = declared.difference(cache.schema())?;
    Some(format!("the source's declared schema differs from the cache's: {difference}"))
}
