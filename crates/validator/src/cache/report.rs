//! What a verification found. Checks nothing.

use std::fmt;

use dataset_rt_storage::{Error, Kind, Result};
use serde::Serialize;

/// Findings listed at most: a cache that broken is known to be broken.
const FINDINGS_MAX: usize = 1000;

/// How bad a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// The cache breaks a rule.
    Error,
    /// Worth knowing, breaks nothing.
    Warning,
}

/// One broken rule at one place.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// Id of the rule.
    pub rule: String,
    /// How bad it is.
    pub severity: Severity,
    /// File within the cache.
    pub file: String,
    /// Row, batch, byte or field within the file; empty for the file as a whole.
    pub place: String,
    /// What the rule asks for.
    pub expected: String,
    /// What is there.
    pub found: String,
    /// What its finder should do: `Corrupt`, but for another version or a file that the system
    /// does not give.
    #[serde(skip)]
    pub kind: Kind,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} in {}", self.rule, self.file)?;
        if !self.place.is_empty() {
            write!(f, " at {}", self.place)?;
        }
        write!(f, ": expected {}, found {}", self.expected, self.found)
    }
}

/// The outcome of a verification.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Report {
    /// The cache.
    pub path: String,
    /// The level asked for.
    pub level: String,
    /// Whether no rule is broken.
    pub ok: bool,
    /// Broken rules, at most 1,000.
    pub findings: Vec<Finding>,
    /// Whether everything that the level asks for was looked at: damage may end a check early.
    pub is_complete: bool,
    /// Files looked at: those that are there.
    pub files_checked: u64,
    /// Bytes read; level deep reads most files twice.
    pub bytes_checked: u64,
}

impl Report {
    pub(super) fn new(path: String, level: &str) -> Self {
        Self {
            path,
            level: level.to_owned(),
            ok: true,
            findings: Vec::new(),
            is_complete: true,
            files_checked: 0,
            bytes_checked: 0,
        }
    }

    /// Whether a file has other bytes than were written.
    pub(super) fn has_damaged_files(&self) -> bool {
        self.findings.iter().any(|finding| finding.rule == "F03")
    }

    pub(super) fn is_full(&self) -> bool {
        self.findings.len() >= FINDINGS_MAX
    }

    pub(super) fn broken(
        &mut self,
        rule: &str,
        file: &str,
        place: impl Into<String>,
        expected: impl Into<String>,
        found: impl Into<String>,
    ) {
        self.add(Kind::Corrupt, rule, file, place.into(), expected.into(), found.into());
    }

    /// Takes `error` as a finding.
    ///
    /// # Errors
    /// Gives it back where the cache is not its cause: memory, descriptors, bugs.
    pub(super) fn broken_by(
        &mut self,
        error: Error,
        rule: &str,
        file: &str,
        place: impl Into<String>,
        expected: &str,
    ) -> Result<()> {
        if matches!(error.kind(), Kind::Exhausted | Kind::Internal) {
            return Err(error);
        }
        let found = error.message().to_owned();
        self.add(error.kind(), rule, file, place.into(), expected.to_owned(), found);
        Ok(())
    }

    /// A file that is there and cannot be read, unless the cache is not the cause.
    pub(super) fn unreadable(&mut self, file: &str, error: Error) -> Result<()> {
        self.broken_by(error, "F01", file, "", "a file that can be read")
    }

    fn add(
        &mut self,
        kind: Kind,
        rule: &str,
        file: &str,
        place: String,
        expected: String,
        found: String,
    ) {
        self.ok = false;
        if self.is_full() {
            return;
        }
        self.findings.push(Finding {
            rule: rule.to_owned(),
            severity: Severity::Error,
            file: file.to_owned(),
            place,
            expected,
            found,
            kind,
        });
    }

    /// The first finding that is an error.
    pub fn first_error(&self) -> Option<&Finding> {
        self.findings.iter().find(|finding| finding.severity == Severity::Error)
    }

    /// The report as JSON.
    ///
    /// # Errors
    /// `Internal` when serialisation fails.
    pub fn to_json(&self) -> Result<String> {
        serde_json::to_string(self)
            .map_err(|e| Error::internal(format!("cannot serialise the report: {e}")))
    }
}
