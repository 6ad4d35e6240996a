//! One error type for the whole core: a kind that tells the caller what to do, a message, a place.
//! Knows nothing of Python: the border maps kinds to exception classes.

use std::fmt;
use std::io;
use std::path::Path;

/// What the caller should do about an error. Append-only: kinds are part of the public contract.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Kind {
    /// The call was wrong: fix its arguments.
    InvalidInput,
    /// The thing does not exist: build it, or name another.
    NotFound,
    /// A sample identity that no loaded cache holds.
    SampleNotFound,
    /// This release or this platform cannot do it: upgrade or choose another way.
    Unsupported,
    /// Stored data disagrees with its digests or the format: rebuild it.
    Corrupt,
    /// Something else holds or has changed the thing: reopen or choose another name.
    Conflict,
    /// The file system refused for now: retry.
    Unavailable,
    /// A limit or the disk is full: make room.
    Exhausted,
    /// A bug in this library: report it.
    Internal,
}

impl Kind {
    /// The stable name users see, for instance `"Corrupt"`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::InvalidInput => "InvalidInput",
            Self::NotFound | Self::SampleNotFound => "NotFound",
            Self::Unsupported => "Unsupported",
            Self::Corrupt => "Corrupt",
            Self::Conflict => "Conflict",
            Self::Unavailable => "Unavailable",
            Self::Exhausted => "Exhausted",
            Self::Internal => "Internal",
        }
    }
}

/// A failed operation: what failed, what was expected and found, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    kind: Kind,
    message: String,
    os_code: Option<i32>,
}

/// Result of every fallible operation of the core.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// An error of `kind` whose message says what failed, expected, found, and where.
    pub fn new(kind: Kind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), os_code: None }
    }

    /// The call was wrong.
    pub fn invalid(message: impl Into<String>) -> Self {
        Self::new(Kind::InvalidInput, message)
    }

    /// Stored data is damaged.
    pub fn corrupt(message: impl Into<String>) -> Self {
        Self::new(Kind::Corrupt, message)
    }

    /// A bug of ours.
    pub fn internal(message: impl Into<String>) -> Self {
        Self::new(Kind::Internal, message)
    }

    /// Not possible with this release.
    pub fn unsupported(message: impl Into<String>) -> Self {
        Self::new(Kind::Unsupported, message)
    }

    /// Somebody else holds or changed it.
    pub fn conflict(message: impl Into<String>) -> Self {
        Self::new(Kind::Conflict, message)
    }

    /// An operating system error met while doing `verb` (`"open"`, `"write"`) on `path`.
    pub fn from_io(verb: &str, path: &Path, error: &io::Error) -> Self {
        use io::ErrorKind as K;
        // ENOMEM, ENFILE, EMFILE on every system this builds for.
        let is_out_of_handles = matches!(error.raw_os_error(), Some(12 | 23 | 24));
        let (kind, advice) = match error.kind() {
            _ if is_out_of_handles => (
                Kind::Exhausted,
                "close files or raise the limits on open files (ulimit -n) and memory",
            ),
            K::NotFound | K::NotADirectory => (Kind::NotFound, "check the path"),
            K::AlreadyExists | K::DirectoryNotEmpty => {
                (Kind::Conflict, "choose another name or remove it")
            }
            K::StorageFull | K::QuotaExceeded | K::FileTooLarge | K::OutOfMemory => {
                (Kind::Exhausted, "make room and retry")
            }
            K::Unsupported => (Kind::Unsupported, "use another file system"),
            K::InvalidInput | K::InvalidFilename => (Kind::InvalidInput, "use another path"),
            K::PermissionDenied | K::ReadOnlyFilesystem => {
                (Kind::Unavailable, "check the permissions")
            }
            _ => (Kind::Unavailable, "retry; if it persists, check the disk"),
        };
        Self {
            kind,
            message: format!("cannot {verb} {}: {error}; {advice}", path.display()),
            os_code: error.raw_os_error(),
        }
    }

    /// The same error with the operating system's code that `cause` has.
    #[must_use]
    pub fn caused_by(mut self, cause: &io::Error) -> Self {
        self.os_code = cause.raw_os_error();
        self
    }

    /// The same error with `place: ` in front of its message.
    #[must_use]
    pub fn within(mut self, place: impl fmt::Display) -> Self {
        self.message = format!("{place}: {}", self.message);
        self
    }

    /// What the caller should do.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// The full text.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// The operating system's code (`errno`), where the file system was the cause.
    pub fn os_code(&self) -> Option<i32> {
        self.os_code
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Error {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_is_exhausted_and_keeps_its_code() {
        let error = Error::from_io("write", Path::new("x"), &io::Error::from_raw_os_error(28));
        assert_eq!(error.kind(), Kind::Exhausted);
        assert_eq!(error.os_code(), Some(28));
        assert!(error.message().contains("cannot write x"));
    }

    #[test]
    fn too_many_open_files_is_exhausted_too() {
        let error = Error::from_io("open", Path::new("x"), &io::Error::from_raw_os_error(24));
        assert_eq!(error.kind(), Kind::Exhausted);
        assert!(error.message().contains("ulimit"), "{error}");
    }

    #[test]
    fn place_is_put_in_front() {
        let error = Error::corrupt("digest differs").within("shards/000000.arrow");
        assert_eq!(error.to_string(), "shards/000000.arrow: digest differs");
    }
}
