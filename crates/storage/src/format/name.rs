//! Names of sources: the one path segment a cache directory is called.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use unicode_normalization::UnicodeNormalization;

use super::limits::NAME_BYTES_MAX;
use crate::{Error, Result};

/// The NFC form of `name`, safe as one path segment.
///
/// # Errors
/// `InvalidInput` when it is empty, too long, starts with a dot, or holds a separator or a
/// control character.
pub fn normalise_name(name: &str) -> Result<String> {
    let normalised: String = name.nfc().collect();
    let fault = if normalised.is_empty() {
        "is empty"
    } else if normalised.len() > NAME_BYTES_MAX {
        "is longer than 200 UTF-8 bytes"
    } else if normalised.starts_with('.') {
        "starts with a dot"
    } else if normalised.chars().any(|c| matches!(c, '/' | '\\') || c.is_control()) {
        "holds a path separator or a control character"
    } else {
        return Ok(normalised);
    };
    Err(Error::invalid(format!(
        "source name {name:?} {fault}; expected a plain path segment of 1 to {NAME_BYTES_MAX} \
         UTF-8 bytes without separators, control characters or a leading dot"
    )))
}

/// Where the unfinished cache `name` lives below `parent`, beside the place it will get.
pub fn partial_path(parent: &Path, name: &str) -> PathBuf {
    parent.join(format!(".{name}.partial"))
}

/// Normalises the names of one call and refuses two that a case-insensitive file system, or a
/// reader's eye, would take for one.
///
/// # Errors
/// `InvalidInput` for a bad name or a duplicate.
pub fn normalise_names<'a>(names: impl IntoIterator<Item = &'a str>) -> Result<Vec<String>> {
    let mut seen: HashMap<String, String> = HashMap::new();
    let mut normalised = Vec::new();
    for name in names {
        let name = normalise_name(name)?;
        // Full case folding via upper case first: "ß" and "SS" fold together as Unicode asks.
        let folded: String = name.to_uppercase().to_lowercase().nfc().collect();
        if let Some(first) = seen.insert(folded, name.clone()) {
            return Err(Error::invalid(format!(
                "source names {first:?} and {name:?} are the same name, case aside; expected \
                 distinct names in one call; rename one"
            )));
        }
        normalised.push(name);
    }
    Ok(normalised)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bad_names_are_refused() {
        let long = "x".repeat(201);
        for name in ["", ".", "..", ".a", "a/b", "a\\b", "a\0b", "a\nb", long.as_str()] {
            assert!(normalise_name(name).is_err(), "{name:?}");
        }
        assert_eq!(normalise_name(&"x".repeat(200)).unwrap().len(), 200);
    }

    #[test]
    fn two_unicode_forms_are_one_name() {
        assert_eq!(normalise_name("e\u{301}").unwrap(), "\u{e9}");
        assert!(normalise_names(["e\u{301}", "\u{c9}"]).is_err());
        assert!(normalise_names(["Train", "train"]).is_err());
        assert_eq!(normalise_names(["a", "b c.d 🙂"]).unwrap(), ["a", "b c.d 🙂"]);
    }
}
