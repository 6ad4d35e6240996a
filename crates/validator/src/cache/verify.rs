//! The order of checks: the manifest first, then what it names. Each rule is checked elsewhere.

use std::path::Path;

use dataset_rt_storage::format::limits::MANIFEST_BYTES_MAX;
use dataset_rt_storage::format::manifest::{MANIFEST_FILE, Manifest};
use dataset_rt_storage::store::read_file;
use dataset_rt_storage::{Error, Kind, Result};

use super::arrow_file::check_structure;
use super::deep::check_rows;
use super::files::{check_digests, check_index_header, check_sizes};
use super::report::Report;

/// How much is checked; each level includes the ones before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Structure: manifest, sizes, headers. Reads little.
    Quick,
    /// Every BLAKE3. Reads every byte once.
    Full,
    /// Every cross-reference. Decodes every row.
    Deep,
}

impl Level {
    /// Reads the public name.
    pub fn from_name(name: &str) -> Option<Self> {
        match name {
            "quick" => Some(Self::Quick),
            "full" => Some(Self::Full),
            "deep" => Some(Self::Deep),
            _ => None,
        }
    }

    /// The public name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Quick => "quick",
            Self::Full => "full",
            Self::Deep => "deep",
        }
    }
}

/// Checks the cache at `path`. Memory is bounded by one record batch.
///
/// # Errors
/// `NotFound` when there is no cache, `Unsupported` for another format version, and what keeps
/// files from being read at all. Everything else is a finding.
pub fn verify_cache(path: &Path, level: Level) -> Result<Report> {
    verify_cache_attended(path, level, &mut || Ok(()))
}

/// [`verify_cache`], calling `attend` many times a second; its error ends the check.
///
/// # Errors
/// As [`verify_cache`], or what `attend` returned.
pub fn verify_cache_attended(
    path: &Path,
    level: Level,
    attend: &mut dyn FnMut() -> Result<()>,
) -> Result<Report> {
    let mut report = Report::new(path.display().to_string(), level.as_str());
    let bytes = match read_file(&path.join(MANIFEST_FILE), MANIFEST_BYTES_MAX) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == Kind::Corrupt => {
            report.broken("M01", MANIFEST_FILE, "", "a regular file", error.message());
            return Ok(report);
        }
        Err(error) if error.kind() == Kind::NotFound => {
            return Err(Error::new(
                Kind::NotFound,
                format!(
                    "there is no cache at {}: {}; check the path or write the cache first",
                    path.display(),
                    if path.exists() { "it has no manifest.json" } else { "it does not exist" }
                ),
            ));
        }
        Err(error) => return Err(error),
    };
    report.files_checked += 1;
    report.bytes_checked += bytes.len() as u64;
    let Some(manifest) = check_manifest(&bytes, &mut report)? else { return Ok(report) };
    let is_whole = check_sizes(path, &manifest, &mut report)?;
    if level >= Level::Full {
        check_digests(path, &manifest, &is_whole, &mut report, attend)?;
    }
    if is_whole.iter().all(|whole| *whole) {
        check_index_header(path, &manifest, &mut report)?;
        let files = check_structure(path, &manifest, &mut report, attend)?;
        if let (Level::Deep, Some(files)) = (level, files) {
            check_rows(path, &manifest, files, &mut report, attend)?;
        }
    }
    Ok(report)
}

/// The manifest, unless it breaks a rule.
fn check_manifest(bytes: &[u8], report: &mut Report) -> Result<Option<Manifest>> {
    let expected = "a manifest of this format";
    if let Err(error) = Manifest::check_version(bytes) {
        if error.kind() == Kind::Unsupported {
            return Err(error);
        }
        report.broken("M01", MANIFEST_FILE, "", expected, error.message());
        return Ok(None);
    }
    if let Err(error) = Manifest::check_self_digest(bytes) {
        report.broken("M02", MANIFEST_FILE, "manifest_blake3", "its own digest", error.message());
        return Ok(None);
    }
    match Manifest::decode_fields(bytes) {
        Ok(manifest) => Ok(Some(manifest)),
        Err(error) => {
            report.broken("M03", MANIFEST_FILE, "", "fields that agree", error.message());
            Ok(None)
        }
    }
}
