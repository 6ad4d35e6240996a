//! The order of checks: the manifest first, then what it names. Each rule is checked elsewhere.

use std::path::Path;

use dataset_rt_storage::absent::no_cache;
use dataset_rt_storage::format::limits::{FORMAT_VERSION, MANIFEST_BYTES_MAX};
use dataset_rt_storage::format::manifest::{MANIFEST_FILE, Manifest};
use dataset_rt_storage::store::{LocalStore, Store, read_file};
use dataset_rt_storage::{Error, Kind, Result};

use super::arrow_file::ArrowFiles;
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

/// Checks the cache at `path`. Memory: the stored bytes of one record batch of a shard and one of
/// `metadata.arrow`, and what they stand for decompressed; see the bounds in
/// `docs/architecture.md`.
///
/// # Errors
/// `NotFound` when there is no cache, and what is not the cache's fault: `Exhausted` without
/// memory or descriptors, `Conflict` when caches replace one another all the while. Everything
/// that is wrong inside of it is a finding.
pub fn verify_cache(path: &Path, level: Level) -> Result<Report> {
    verify_cache_attended(path, level, &mut || Ok(()))
}

/// [`verify_cache`], calling `attend` between pieces of bounded size: every MiB that is hashed and
/// every record batch that is decoded. An error of `attend` ends the check and comes back.
///
/// # Errors
/// As [`verify_cache`], and what `attend` returns.
pub fn verify_cache_attended(
    path: &Path,
    level: Level,
    attend: &mut dyn FnMut() -> Result<()>,
) -> Result<Report> {
    for _ in 0..REPLACEMENTS_MAX {
        let mut report = Report::new(path.display().to_string(), level.as_str());
        let Some(bytes) = read_manifest(path, &mut report)? else {
            report.is_complete = false;
            return Ok(report);
        };
        check(path, level, &bytes, &mut report, attend)?;
        // A writer may have exchanged the cache: half of the files looked at were of another one.
        let is_same = || read_file(&path.join(MANIFEST_FILE), MANIFEST_BYTES_MAX);
        if report.ok || is_same().is_ok_and(|now| now == bytes) {
            return Ok(report);
        }
    }
    Err(Error::conflict(format!(
        "{} was replaced {REPLACEMENTS_MAX} times while it was verified; verify it when its \
         writers have finished",
        path.display()
    )))
}

/// How often verification begins again because the cache was replaced meanwhile.
const REPLACEMENTS_MAX: usize = 3;

fn check(
    path: &Path,
    level: Level,
    bytes: &[u8],
    report: &mut Report,
    attend: &mut dyn FnMut() -> Result<()>,
) -> Result<()> {
    report.files_checked += 1;
    report.bytes_checked += bytes.len() as u64;
    report.is_complete = false;
    let Some(manifest) = check_manifest(bytes, report)? else { return Ok(()) };
    let is_whole = check_sizes(path, &manifest, report)?;
    if level >= Level::Full {
        check_digests(path, &manifest, &is_whole, report, attend)?;
    }
    if is_whole.iter().all(|whole| *whole) {
        check_index_header(path, &manifest, report)?;
        let files = ArrowFiles::new(path, &manifest)?;
        let is_sound = files.check(report, attend)?;
        if is_sound && level == Level::Deep {
            check_rows(path, &manifest, &files, report, attend)?;
        }
        report.is_complete = is_sound && !report.is_full();
    }
    Ok(())
}

/// The bytes of the manifest, unless they cannot be read.
fn read_manifest(path: &Path, report: &mut Report) -> Result<Option<Vec<u8>>> {
    let file = path.join(MANIFEST_FILE);
    let error = match read_file(&file, MANIFEST_BYTES_MAX) {
        Ok(bytes) => return Ok(Some(bytes)),
        Err(error) => error,
    };
    if error.kind() == Kind::NotFound {
        return Err(no_cache(path));
    }
    // What cannot even be looked at may be no cache.
    match LocalStore.kind(&file) {
        Ok(Some(_)) => report
            .broken_by(error, "M01", MANIFEST_FILE, "", "a regular file that can be read")
            .map(|()| None),
        _ => Err(error),
    }
}

/// The manifest, unless it breaks a rule.
fn check_manifest(bytes: &[u8], report: &mut Report) -> Result<Option<Manifest>> {
    let version = match Manifest::stated_version(bytes) {
        Ok(version) => version,
        Err(error) => {
            let expected = "a manifest of this format";
            report.broken("M01", MANIFEST_FILE, "", expected, error.message());
            return Ok(None);
        }
    };
    if let Err(error) = Manifest::check_self_digest(bytes) {
        report.broken("M02", MANIFEST_FILE, "manifest_blake3", "its own digest", error.message());
        return Ok(None);
    }
    if let Err(error) = Manifest::check_version(version) {
        let expected = format!("version {FORMAT_VERSION}");
        report.broken_by(error, "M01", MANIFEST_FILE, "format_version", &expected)?;
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
