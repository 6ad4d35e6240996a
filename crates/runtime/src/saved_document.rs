//! The JSON document of what is saved: its kind and version, what it says, its table, and a digest
//! of all of that. Knows no file.

use dataset_rt_storage::format::digest::from_hex;
use dataset_rt_storage::format::seal::{check_seal, seal, with_seal};
use dataset_rt_storage::{Error, Result};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

const VERSION: u32 = 1;
/// The digest of the document itself. The same in every version, as `format` and `version` are.
const SELF_DIGEST: &str = "document_blake3";
/// The table's place in a document.
const TABLE: &str = "table";

/// A kind of document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Form {
    /// Its file is `<stem>.json`.
    pub stem: &'static str,
    format: &'static str,
}

impl Form {
    /// Place and table.
    pub const STATE: Self = Self { stem: "state", format: "dataset_rt.saved_state" };
    /// Everything but the place.
    pub const CONFIG: Self = Self { stem: "config", format: "dataset_rt.config" };

    /// The form of `<stem>.json`.
    ///
    /// # Errors
    /// `InvalidInput` when there is none.
    pub fn of_stem(stem: &str) -> Result<Self> {
        let found = [Self::STATE, Self::CONFIG].into_iter().find(|form| form.stem == stem);
        found.ok_or_else(|| Error::invalid(format!("nothing is saved as {stem}.json")))
    }

    /// What the names of its tables begin with.
    pub fn table_prefix(self) -> String {
        format!("{}-table-", self.stem)
    }

    /// Name of the table with this digest.
    pub fn table_name(self, blake3: &str) -> String {
        format!("{}{blake3}.arrows", self.table_prefix())
    }
}

/// What a document says of its table.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TableEntry {
    /// Its name, in the same directory.
    pub file: String,
    /// Its digest, hexadecimal.
    pub blake3: String,
    /// Its length.
    pub size_bytes: u64,
    /// Its rows.
    pub rows: u64,
    /// Stored columns whose values differ from those of the caches.
    pub edited: Vec<String>,
}

/// The bytes of a document with these contents.
///
/// # Errors
/// `InvalidInput` for contents that are no JSON object.
pub fn encode(form: Form, contents: &str, table: Option<&TableEntry>) -> Result<Vec<u8>> {
    let internal = |e: serde_json::Error| Error::internal(e.to_string());
    let mut document: Map<String, Value> = serde_json::from_str(contents)
        .map_err(|e| Error::invalid(format!("a document that is no JSON object: {e}")))?;
    document.insert("format".to_owned(), form.format.into());
    document.insert("version".to_owned(), VERSION.into());
    document.insert(TABLE.to_owned(), serde_json::to_value(table).map_err(internal)?);
    let document = serde_json::to_string_pretty(&Value::Object(document)).map_err(internal)?;
    let mut text = with_seal(&document, SELF_DIGEST);
    seal(&mut text);
    Ok(text.into_bytes())
}

/// Contents and table of a document. Its digest comes before its version: a damaged version is
/// damage.
///
/// # Errors
/// `Unsupported` for another version, `Corrupt` for everything else that is wrong.
pub fn decode(form: Form, bytes: &[u8]) -> Result<(String, Option<TableEntry>)> {
    check_seal(bytes, SELF_DIGEST).map_err(|what| damaged(&what))?;
    let mut document: Map<String, Value> =
        serde_json::from_slice(bytes).map_err(|e| damaged(&format!("no JSON object: {e}")))?;
    document.remove(SELF_DIGEST);
    let mut take = |field: &str| document.remove(field).unwrap_or(Value::Null);
    let (format, version, table) = (take("format"), take("version"), take(TABLE));
    if format != form.format {
        return Err(damaged(&format!("found format {format}; expected {:?}", form.format)));
    }
    if !version.is_u64() {
        return Err(damaged(&format!("found version {version}; expected a number")));
    }
    if version != VERSION {
        return Err(Error::unsupported(format!(
            "found version {version}; this release reads version {VERSION}; use the release that \
             saved it"
        )));
    }
    let table: Option<TableEntry> = parsed(TABLE, &table)?;
    if let Some(entry) = &table {
        let is_digest = from_hex(&entry.blake3).is_some();
        if !is_digest || entry.file != form.table_name(&entry.blake3) {
            return Err(damaged(&format!(
                "{TABLE}: found file {:?} with blake3 {:?}; expected {} with 64 digits",
                entry.file,
                entry.blake3,
                form.table_name("<blake3>")
            )));
        }
    }
    let contents = serde_json::to_string(&document).map_err(|e| Error::internal(e.to_string()))?;
    Ok((contents, table))
}

/// A part of a document whose digest was right.
///
/// # Errors
/// `Corrupt` with the line of the part where it is not as expected.
pub fn parsed<T: DeserializeOwned>(part: &str, value: &Value) -> Result<T> {
    let text = serde_json::to_string_pretty(value).map_err(|e| Error::internal(e.to_string()))?;
    serde_json::from_str(&text).map_err(|error| {
        let line = error.line().checked_sub(1).and_then(|line| text.lines().nth(line));
        let what = error.to_string();
        let what = what.split(" at line ").next().unwrap_or_default();
        damaged(&format!("{part}: {what}, found {}", line.unwrap_or_default().trim()))
    })
}

fn damaged(what: &str) -> Error {
    // A crafted document must not make messages as long as itself.
    let what: String = what.chars().take(400).collect();
    Error::corrupt(format!("it is not what was saved: {what}; save it again"))
}

#[cfg(test)]
mod tests {
    use dataset_rt_storage::Kind;
    use serde_json::json;

    use super::*;

    fn entry() -> TableEntry {
        let blake3 = "0a".repeat(32);
        let file = Form::STATE.table_name(&blake3);
        TableEntry { file, blake3, size_bytes: 5, rows: 2, edited: vec!["label".to_owned()] }
    }

    /// A document with a change after which its digest is right again.
    fn resealed(change: impl Fn(&mut Value)) -> Vec<u8> {
        let bytes = encode(Form::STATE, "{\"state\": 3}", Some(&entry())).unwrap();
        let mut document: Value = serde_json::from_slice(&bytes).unwrap();
        document.as_object_mut().unwrap().remove(SELF_DIGEST);
        change(&mut document);
        let text = serde_json::to_string_pretty(&document).unwrap();
        let mut text = with_seal(&text, SELF_DIGEST);
        seal(&mut text);
        text.into_bytes()
    }

    #[test]
    fn contents_and_table_come_back() {
        let (contents, table) = decode(Form::STATE, &resealed(|_| {})).unwrap();
        assert_eq!(contents, "{\"state\":3}");
        assert_eq!(serde_json::to_value(table).unwrap(), serde_json::to_value(entry()).unwrap());
        let bytes = encode(Form::STATE, "{}", None).unwrap();
        assert!(decode(Form::STATE, &bytes).unwrap().1.is_none());
    }

    #[test]
    fn any_flipped_byte_is_damage() {
        let bytes = resealed(|_| {});
        for i in 0..bytes.len() {
            let mut flipped = bytes.clone();
            flipped[i] ^= 1;
            assert_eq!(decode(Form::STATE, &flipped).unwrap_err().kind(), Kind::Corrupt);
        }
    }

    #[test]
    fn wrong_fields_of_a_sound_document_are_named() {
        let told = |bytes: &[u8], kind: Kind, parts: &[&str]| {
            let error = decode(Form::STATE, bytes).unwrap_err();
            assert_eq!(error.kind(), kind, "{error}");
            assert!(parts.iter().all(|part| error.message().contains(part)), "{error}");
        };
        told(&resealed(|d| d["version"] = 2.into()), Kind::Unsupported, &["version 2", "1"]);
        told(&resealed(|d| d["version"] = "1".into()), Kind::Corrupt, &["version \"1\""]);
        told(&resealed(|d| d["format"] = "x".into()), Kind::Corrupt, &["\"x\"", "saved_state"]);
        let config = encode(Form::CONFIG, "{}", None).unwrap();
        told(&config, Kind::Corrupt, &["dataset_rt.config", "dataset_rt.saved_state"]);
        let other = json!("state-table-/../x");
        for (field, value, parts) in [
            ("rows", json!(-1), ["-1", "u64"]),
            ("rows", json!("2"), ["\"rows\": \"2\"", "u64"]),
            ("size_bytes", json!(null), ["size_bytes", "u64"]),
            ("edited", json!([1]), ["1", "string"]),
            ("more", json!(1), ["more", "unknown field"]),
            ("file", other, ["/../x", "expected state-table-<blake3>.arrows"]),
            ("blake3", json!("xy"), ["\"xy\"", "64 digits"]),
        ] {
            told(&resealed(|d| d[TABLE][field] = value.clone()), Kind::Corrupt, &parts);
        }
        told(&resealed(|d| d[TABLE] = json!({})), Kind::Corrupt, &["missing field", "file"]);
        told(&resealed(|d| d[TABLE] = json!(3)), Kind::Corrupt, &["table", "3"]);
    }
}
