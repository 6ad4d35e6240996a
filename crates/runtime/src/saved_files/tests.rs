//! Pairs that are saved, loaded, damaged and interrupted at every operation.

use std::collections::BTreeSet;
use std::fs;
use std::sync::Arc;

use arrow_array::UInt64Array;
use arrow_schema::{DataType, Field, Schema};
use dataset_rt_storage::store::{CrashStore, Fault, FaultyStore, LocalStore};
use serde_json::Value;
use tempfile::tempdir;

use super::*;

fn batch(first: u64) -> RecordBatch {
    let field = Field::new("sample_id", DataType::UInt64, false);
    let column = UInt64Array::from_iter_values(first..first + 5);
    RecordBatch::try_new(Arc::new(Schema::new(vec![field])), vec![Arc::new(column)]).unwrap()
}

fn save(store: &dyn Store, directory: &Path, number: u64, has_table: bool) -> Result<()> {
    let batches = [batch(number)];
    let schema = batches[0].schema();
    let edited = [format!("column {number}")];
    let table = SavedTable { schema: &schema, batches: &batches, edited: &edited };
    let document = format!("{{\"number\": {number}}}");
    let table = has_table.then_some(&table);
    save_files(store, directory, Form::STATE, &document, table, &mut || Ok(()))
}

/// The number that is saved, its table checked.
fn load(directory: &Path) -> Result<u64> {
    load_with(directory, &mut || Ok(()))
}

fn load_with(directory: &Path, attend: &mut dyn FnMut() -> Result<()>) -> Result<u64> {
    let loaded = load_files(directory, Form::STATE, attend)?;
    let contents: Value = serde_json::from_str(&loaded.contents).unwrap();
    let number = contents["number"].as_u64().unwrap();
    if let Some(table) = loaded.table {
        assert_eq!((table.rows, table.edited), (5, vec![format!("column {number}")]));
        let reader = arrow_ipc::reader::StreamReader::try_new(&table.bytes[..], None).unwrap();
        let found: Vec<RecordBatch> = reader.map(|batch| batch.unwrap()).collect();
        assert_eq!(found, [batch(number)]);
    }
    Ok(number)
}

fn names(directory: &Path) -> BTreeSet<String> {
    let entries = fs::read_dir(directory).unwrap();
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

#[test]
fn what_is_saved_comes_back_and_old_tables_go() {
    let root = tempdir().unwrap();
    let directory = root.path().join("a/b");
    assert_eq!(load(&directory).unwrap_err().kind(), Kind::NotFound);
    for (number, has_table, files) in [(1, true, 2), (2, true, 2), (3, false, 1), (4, true, 2)] {
        save(&LocalStore, &directory, number, has_table).unwrap();
        assert_eq!(load(&directory).unwrap(), number);
        assert_eq!(names(&directory).len(), files);
    }
}

#[test]
fn every_failure_keeps_the_old_pair_or_has_the_new_one() {
    for fault in [Fault::Errno(5), Fault::ShortWrite, Fault::Afterwards] {
        let mut at = 0;
        loop {
            let root = tempdir().unwrap();
            save(&LocalStore, root.path(), 1, true).unwrap();
            let store = FaultyStore::new(at, fault);
            let outcome = save(&store, root.path(), 2, true);
            if store.operations() <= at {
                outcome.unwrap();
                break;
            }
            let found = load(root.path()).unwrap();
            assert!(found == 2 || (outcome.is_err() && found == 1), "{fault:?} at {at}");
            // Nothing but the pair, and what the next time removes.
            save(&LocalStore, root.path(), 3, true).unwrap();
            assert_eq!(names(root.path()).len(), 2, "{fault:?} at {at}");
            at += 1;
        }
        assert!(at > 8);
    }
}

#[test]
fn every_power_loss_keeps_the_old_pair_or_has_the_new_one() {
    let root = tempdir().unwrap();
    let directory = root.path().join("saved");
    save(&LocalStore, &directory, 1, true).unwrap();
    let store = CrashStore::new(root.path(), true).unwrap();
    save(&store, &directory, 2, true).unwrap();
    let moments = store.moments();
    let mut found = BTreeSet::new();
    for (i, (moment, disk)) in moments.iter().enumerate() {
        for loss in disk.losses(8, i as u64) {
            let after = tempdir().unwrap();
            for (path, bytes) in disk.after_loss(&loss) {
                let path = after.path().join(path);
                match bytes {
                    Some(bytes) => fs::write(path, bytes).unwrap(),
                    None => fs::create_dir_all(path).unwrap(),
                }
            }
            let number = load(&after.path().join("saved"));
            let number = number.unwrap_or_else(|e| panic!("{moment}: {loss:?}: {e}"));
            if i + 1 == moments.len() {
                assert_eq!(number, 2, "{moment}: {loss:?}");
            }
            found.insert(number);
            save(&LocalStore, &after.path().join("saved"), 3, true).unwrap();
        }
    }
    assert_eq!(found, BTreeSet::from([1, 2]));
}

#[test]
fn damaged_missing_and_foreign_files_are_told() {
    let root = tempdir().unwrap();
    save(&LocalStore, root.path(), 1, true).unwrap();
    let names = names(root.path());
    let table = root.path().join(names.iter().find(|name| name.ends_with("arrows")).unwrap());
    let document = root.path().join("state.json");
    let (bytes, text) = (fs::read(&table).unwrap(), fs::read_to_string(&document).unwrap());
    let mut flipped = bytes.clone();
    flipped[bytes.len() / 2] ^= 1;
    for damaged in [&bytes[..bytes.len() - 1], &flipped, b"", &[&bytes[..], b"x"].concat()] {
        fs::write(&table, damaged).unwrap();
        assert_eq!(load(root.path()).unwrap_err().kind(), Kind::Corrupt);
    }
    fs::remove_file(&table).unwrap();
    assert_eq!(load(root.path()).unwrap_err().kind(), Kind::NotFound);
    fs::write(&table, &bytes).unwrap();
    for foreign in ["", "[]", "{\"table\": 3}", &text[..text.len() / 2], &text.replace('1', "2")] {
        fs::write(&document, foreign).unwrap();
        assert_eq!(load(root.path()).unwrap_err().kind(), Kind::Corrupt, "{foreign}");
    }
}

#[test]
fn a_size_that_differs_is_told() {
    let root = tempdir().unwrap();
    save(&LocalStore, root.path(), 1, true).unwrap();
    let document = fs::read(root.path().join("state.json")).unwrap();
    let (contents, entry) = decode(Form::STATE, &document).unwrap();
    let mut entry = entry.unwrap();
    entry.size_bytes += 1;
    let document = encode(Form::STATE, &contents, Some(&entry)).unwrap();
    fs::write(root.path().join("state.json"), document).unwrap();
    let error = load(root.path()).unwrap_err();
    assert_eq!(error.kind(), Kind::Corrupt);
    assert!(error.message().contains("size_bytes"), "{error}");
}

#[test]
fn whoever_saves_while_another_loads_disturbs_nobody() {
    let root = tempdir().unwrap();
    let mut number = 1;
    save(&LocalStore, root.path(), number, true).unwrap();
    // The old document is open by now; its table goes.
    let mut save_few = || {
        if number < 4 {
            number += 1;
            save(&LocalStore, root.path(), number, true)?;
        }
        Ok(())
    };
    assert_eq!(load_with(root.path(), &mut save_few).unwrap(), 4);
    let mut save_always = || {
        number += 1;
        save(&LocalStore, root.path(), number, true)
    };
    let error = load_with(root.path(), &mut save_always).unwrap_err();
    assert_eq!(error.kind(), Kind::Unavailable);
    assert_eq!(load(root.path()).unwrap(), number);
}

#[test]
fn an_empty_path_is_told() {
    let empty = Path::new("");
    assert_eq!(save(&LocalStore, empty, 1, true).unwrap_err().kind(), Kind::InvalidInput);
    assert_eq!(load(empty).unwrap_err().kind(), Kind::InvalidInput);
}

#[test]
fn two_savers_exclude_each_other() {
    let root = tempdir().unwrap();
    let lock = LocalStore.lock_dir(root.path()).unwrap();
    assert_eq!(save(&LocalStore, root.path(), 1, true).unwrap_err().kind(), Kind::Unavailable);
    drop(lock);
    save(&LocalStore, root.path(), 1, true).unwrap();
}
