//! The file system does what writing and reading rely on.

use std::fs;
use std::path::Path;

use super::*;
use crate::Kind;

fn directory() -> tempfile::TempDir {
    tempfile::tempdir().unwrap()
}

fn write(path: &Path, bytes: &[u8]) {
    let mut file = LocalStore.create_file(path).unwrap();
    file.write_all(bytes).unwrap();
    file.sync().unwrap();
    file.close().unwrap();
}

#[test]
fn publishing_never_replaces_what_exists() {
    let root = directory();
    let (from, to) = (root.path().join("from"), root.path().join("to"));
    LocalStore.create_dir(&from).unwrap();
    LocalStore.create_dir(&to).unwrap();
    let refused = LocalStore.rename_no_replace(&from, &to).unwrap_err();
    assert_eq!(refused.kind(), Kind::Conflict);
    assert!(from.exists());
    LocalStore.remove_tree(&to).unwrap();
    LocalStore.rename_no_replace(&from, &to).unwrap();
    assert!(to.exists() && !from.exists());
}

#[test]
fn two_directories_change_places() {
    let root = directory();
    let (a, b) = (root.path().join("a"), root.path().join("b"));
    LocalStore.create_dir(&a).unwrap();
    LocalStore.create_dir(&b).unwrap();
    write(&a.join("x"), b"1");
    LocalStore.exchange(&a, &b).unwrap();
    assert!(b.join("x").exists() && !a.join("x").exists());
}

#[test]
fn a_lock_excludes_others_until_it_is_dropped() {
    let root = directory();
    let path = root.path().join("a");
    assert!(LocalStore.lock_dir(&path).unwrap().is_none(), "nothing to lock");
    LocalStore.create_dir(&path).unwrap();
    let held = LocalStore.lock_dir(&path).unwrap();
    assert!(held.is_some());
    assert!(LocalStore.lock_dir(&path).unwrap().is_none());
    drop(held);
    assert!(LocalStore.lock_dir(&path).unwrap().is_some());
}

#[test]
fn a_mapping_outlives_file_and_reader() {
    let root = directory();
    let path = root.path().join("a");
    write(&path, b"hello");
    let file = ReadFile::open(&path, IoMode::Mmap).unwrap();
    let buffer = file.mapped().unwrap().view().unwrap();
    drop(file);
    fs::remove_file(&path).unwrap();
    assert_eq!(buffer.as_slice(), b"hello");
}

#[test]
fn both_ways_of_reading_agree_and_end_at_the_end() {
    let root = directory();
    let path = root.path().join("a");
    write(&path, b"hello");
    for io in [IoMode::Auto, IoMode::Mmap, IoMode::Pread] {
        let file = ReadFile::open(&path, io).unwrap();
        let mut out = [0; 3];
        file.read_at(2, &mut out).unwrap();
        assert_eq!(&out, b"llo");
        assert_eq!(file.read_at(3, &mut out).unwrap_err().kind(), Kind::Corrupt);
        assert_eq!(file.read_at(u64::MAX, &mut out).unwrap_err().kind(), Kind::Corrupt);
    }
}

#[test]
fn a_change_in_place_is_noticed_and_a_removal_is_none() {
    let root = directory();
    let path = root.path().join("a");
    for io in [IoMode::Mmap, IoMode::Pread] {
        let _ = fs::remove_file(&path);
        write(&path, b"hello");
        let file = ReadFile::open(&path, io).unwrap();
        assert!(!file.changed().unwrap());
        let other = root.path().join("b");
        fs::rename(&path, &other).unwrap();
        fs::remove_file(&other).unwrap();
        assert!(!file.changed().unwrap(), "what is open stays what it is: {io:?}");
        write(&path, b"hello");
        assert!(!file.changed().unwrap(), "another file in its place is not this one: {io:?}");
        let file = ReadFile::open(&path, io).unwrap();
        fs::write(&path, b"longer than before").unwrap();
        assert!(file.changed().unwrap(), "{io:?}");
    }
}

#[test]
fn a_file_that_shrinks_is_a_conflict_and_refused_ever_after() {
    let root = directory();
    let path = root.path().join("a");
    for io in [IoMode::Mmap, IoMode::Pread] {
        let _ = fs::remove_file(&path);
        write(&path, &vec![7; 1 << 20]);
        let file = ReadFile::open(&path, io).unwrap();
        let mut out = [0; 8];
        file.read_at(1 << 19, &mut out).unwrap();
        fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(100).unwrap();
        for _ in 0..2 {
            let error = file.read_at(1 << 19, &mut out).unwrap_err();
            assert_eq!(error.kind(), Kind::Conflict, "{error}");
            assert!(error.message().contains(&*path.to_string_lossy()), "{error}");
            assert!(file.changed().unwrap());
        }
    }
}

#[test]
fn changes_around_the_contents_are_none_and_touching_the_file_is_one() {
    let root = directory();
    let (path, link) = (root.path().join("a"), root.path().join("link"));
    write(&path, b"hello");
    let file = ReadFile::open(&path, IoMode::Mmap).unwrap();
    let tick = || {
        // Times of files have the grain of the kernel's clock: the next change shows on this one.
        let probe = root.path().join("probe");
        let time = |path: &Path| fs::metadata(path).unwrap().modified().unwrap();
        write(&probe, b"x");
        let begin = time(&probe);
        while time(&probe) == begin {
            fs::write(&probe, b"x").unwrap();
        }
        fs::remove_file(&probe).unwrap();
    };
    tick();
    fs::hard_link(&path, &link).unwrap();
    assert!(!file.changed().unwrap(), "another name");
    tick();
    fs::remove_file(&link).unwrap();
    assert!(!file.changed().unwrap(), "one name less");
    tick();
    let mut mode = fs::metadata(&path).unwrap().permissions();
    mode.set_readonly(true);
    fs::set_permissions(&path, mode).unwrap();
    assert!(!file.changed().unwrap(), "another mode");
    // Whoever writes and puts the modification time back moves the change time alone.
    let modified = fs::metadata(&path).unwrap().modified().unwrap();
    tick();
    fs::File::open(&path).unwrap().set_modified(modified).unwrap();
    assert!(file.changed().unwrap());
}

#[test]
fn links_directories_and_pipes_are_not_files() {
    let root = directory();
    let (path, link) = (root.path().join("a"), root.path().join("link"));
    write(&path, b"x");
    std::os::unix::fs::symlink(&path, &link).unwrap();
    for wrong in [&link, root.path()] {
        let error = ReadFile::open(wrong, IoMode::Auto).unwrap_err();
        assert_eq!(error.kind(), Kind::Corrupt, "{error}");
    }
    assert_eq!(LocalStore.kind(&link).unwrap(), Some(EntryKind::Other));
    let missing = ReadFile::open(&root.path().join("none"), IoMode::Auto).unwrap_err();
    assert_eq!(missing.kind(), Kind::NotFound);
}

#[test]
fn a_small_file_is_read_whole_and_a_large_one_refused() {
    let root = directory();
    let path = root.path().join("a");
    write(&path, b"hello");
    assert_eq!(read_file(&path, 5).unwrap(), b"hello");
    assert_eq!(read_file(&path, 4).unwrap_err().kind(), Kind::Corrupt);
}

#[cfg(feature = "faults")]
#[test]
fn a_file_that_failed_once_fails_ever_after() {
    let root = directory();
    let store = FaultyStore::new(1, Fault::ShortWrite);
    let mut file = store.create_file(&root.path().join("a")).unwrap();
    assert_eq!(file.write_all(b"four").unwrap_err().kind(), Kind::Exhausted);
    assert!(file.write_all(b"more").is_err());
    assert!(file.sync().is_err());
    assert!(file.close().is_err());
    assert_eq!(fs::read(root.path().join("a")).unwrap(), b"fo");
}

#[cfg(feature = "faults")]
#[test]
fn a_power_loss_keeps_what_was_synced_and_anything_of_the_rest() {
    let root = directory();
    let store = CrashStore::new(root.path(), true).unwrap();
    let (kept, path) = (root.path().join("kept"), root.path().join("kept/x"));
    store.create_dir(&kept).unwrap();
    store.sync_dir(root.path()).unwrap();
    let mut file = store.create_file(&path).unwrap();
    file.write_all(b"ab").unwrap();
    file.sync().unwrap();
    store.sync_dir(&kept).unwrap();
    file.write_all(b"cd").unwrap();
    store.rename_no_replace(&kept, &root.path().join("moved")).unwrap();

    let moments = store.moments();
    let (what, disk) = moments.last().unwrap();
    assert_eq!(what, "rename to moved");
    let mut found: Vec<_> = disk
        .losses(0, 0)
        .iter()
        .flat_map(|loss| disk.after_loss(loss))
        .filter_map(|(path, bytes)| Some((path.display().to_string(), bytes?)))
        .collect();
    found.sort();
    found.dedup();
    let contents: [&[u8]; 4] = [b"ab", b"ab\0\0", b"abc", b"abcd"];
    let expected = ["kept/x", "moved/x"]
        .map(|path| contents.map(|bytes| (path.to_owned(), bytes.to_vec())))
        .concat();
    assert_eq!(found, expected);
}
