"""Image folders and map-style datasets as sources: order, labels, staleness, odd files."""

import os
import pickle
import subprocess

import polars as pl
import pytest
from conftest import written
from source_tools import (
    SMALL,
    assert_resumes,
    is_stale,
    put_tar,
    refused,
    samples_of,
    shout,
    stumble,
    write,
)

import dataset_rt as drt
from dataset_rt.sources import (
    CsvSource,
    ImageFolderSource,
    MapDatasetSource,
    ParquetSource,
    WebDatasetSource,
)
from dataset_rt.sources.inputs.files import changed_part


@pytest.fixture
def folder(tmp_path):
    """300 files under three labels, one of them nested, in no order."""
    root = tmp_path / "pets"
    for i in sorted(range(300), key=lambda i: hash(str(i))):
        label = ("cat", "dog/small", "zebra")[i % 3]
        (root / label).mkdir(parents=True, exist_ok=True)
        (root / label / f"{i:03}.JPG").write_bytes(f"image {i}".encode() * (i % 7 + 1))
    return root


def test_files_come_sorted_and_labelled(folder):
    (folder / "Aardvark").mkdir()
    (folder / "Aardvark" / "ä.png").write_bytes(b"a")
    source = ImageFolderSource(folder)
    found = samples_of(source)
    paths = [metadata["path"] for _, metadata in found]
    assert paths == sorted(paths, key=str.encode)
    assert len(source) == len(found) == 301
    assert found[0] == (b"a", {"path": "Aardvark/ä.png", "label": "Aardvark", "label_id": 0})
    assert source.labels == ["Aardvark", "cat", "dog", "zebra"]
    assert {m["label_id"] for _, m in found if m["label"] == "zebra"} == {3}
    assert all(data == (folder / m["path"]).read_bytes() for data, m in found)


def test_an_interrupted_folder_goes_on(folder, tmp_path, runtime):
    cache = assert_resumes(runtime, lambda: ImageFolderSource(folder), tmp_path, 300)
    assert cache.schema.names == ["path", "label", "label_id"]
    assert cache.manifest["provenance"] == {"importer": "image_folder", "root": str(folder)}


def test_a_transformed_folder_goes_on(folder, tmp_path, runtime):
    def make():
        return ImageFolderSource(folder, transform=shout, transform_version="1")

    cache = assert_resumes(runtime, make, tmp_path, 300)
    assert cache.metadata()["loud"].all()
    assert bytes(cache.payload(0)).startswith(b"IMAGE 0")


@pytest.mark.parametrize(
    "change",
    [
        lambda root: (root / "cat" / "000.JPG").write_bytes(b"other"),
        lambda root: (root / "cat" / "new.jpg").write_bytes(b"new"),
        lambda root: (root / "cat" / "000.JPG").rename(root / "cat" / "0.JPG"),
        lambda root: (root / "cat" / "000.JPG").rename(root / "zebra" / "000.JPG"),
        lambda root: (root / "cat" / "000.JPG").unlink(),
        lambda root: os.utime(root / "cat" / "000.JPG", ns=(1, 1)),
    ],
    ids=["changed", "added", "renamed", "moved", "removed", "touched"],
)
def test_a_changed_folder_is_stale(folder, tmp_path, runtime, change):
    write(runtime, ImageFolderSource(folder), tmp_path / "caches")
    assert not is_stale(runtime, ImageFolderSource(folder), tmp_path / "caches")
    (folder / "cat" / "notes.md").write_text("no image")
    assert not is_stale(runtime, ImageFolderSource(folder), tmp_path / "caches")
    change(folder)
    assert is_stale(runtime, ImageFolderSource(folder), tmp_path / "caches")


def test_options_are_part_of_the_fingerprint_and_the_place_is_not(folder, tmp_path):
    def fingerprint(root=folder, **options):
        return ImageFolderSource(root, name="pets", **options).fingerprint

    plain = fingerprint()
    moved = folder.rename(tmp_path / "elsewhere")
    assert fingerprint(moved) == plain
    others = [
        fingerprint(moved, labels=False),
        fingerprint(moved, extensions=None),
        fingerprint(moved, transform=shout, transform_version="1"),
        fingerprint(moved, transform=shout, transform_version="2"),
    ]
    assert len({plain, *others}) == 5
    assert fingerprint(moved, fingerprint="mine") == "mine"
    assert [changed_part(plain, other) for other in others] == ["options"] * 4
    (moved / "cat" / "000.JPG").unlink()
    assert changed_part(plain, fingerprint(moved)) == "inputs"
    assert changed_part(plain, fingerprint(moved, labels=False)) is None
    assert changed_part(plain, "mine") is changed_part(None, plain) is None


def test_the_fingerprint_reads_no_file(folder, tmp_path):
    fifo = folder / "cat" / "pipe.jpg"
    os.mkfifo(fifo)
    # Opening a pipe that nobody writes would wait for ever.
    assert ImageFolderSource(folder).fingerprint


def test_hidden_and_empty_places_are_left_out(folder):
    (folder / ".git" / "x").mkdir(parents=True)
    (folder / ".git" / "x" / "1.jpg").write_bytes(b"hidden")
    (folder / "cat" / "._1.jpg").write_bytes(b"hidden")
    (folder / "nobody").mkdir()
    source = ImageFolderSource(folder)
    assert len(source) == 300
    assert "nobody" not in source.labels


def test_links_are_followed_and_circles_refused(folder, tmp_path, runtime):
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "1.jpg").write_bytes(b"linked")
    (folder / "linked").symlink_to(outside)
    (folder / "cat" / "link.jpg").symlink_to(outside / "1.jpg")
    assert len(ImageFolderSource(folder)) == 302
    (folder / "cat" / "up").symlink_to(folder)
    assert "a link back" in refused(runtime, ImageFolderSource(folder), tmp_path / "c")


@pytest.mark.parametrize(
    ("place", "message"),
    [
        (b"cat/b\xff.jpg", r"b'cat/b\\xff.jpg' is not UTF-8"),
        (b"loose.jpg", "loose.jpg lies in no directory"),
    ],
)
def test_odd_files_are_named(folder, tmp_path, runtime, place, message):
    with open(os.path.join(os.fsencode(folder), place), "wb") as file:
        file.write(b"x")
    found = refused(runtime, ImageFolderSource(folder), tmp_path / "c")
    assert message.replace("\\\\", "\\") in found


def test_deep_trees_are_listed(tmp_path):
    folder = tmp_path / "deep"
    folder.mkdir()
    here = os.open(folder, os.O_RDONLY)
    for _ in range(1500):
        os.mkdir("d", dir_fd=here)
        below = os.open("d", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    with open(os.open("x.jpg", os.O_CREAT | os.O_WRONLY, dir_fd=here), "wb") as file:
        file.write(b"deep")
    os.close(here)
    ((data, metadata),) = samples_of(ImageFolderSource(folder))
    assert data == b"deep"
    assert metadata["label"] == "d"
    subprocess.run(["rm", "-rf", folder], check=True)


def test_directories_may_have_any_name(tmp_path, runtime):
    root = os.fsdecode(os.fsencode(tmp_path) + b"/\xff")
    os.makedirs(os.path.join(root, "cat"))
    with open(os.path.join(root, "cat", "1.jpg"), "wb") as file:
        file.write(b"x")
    result = write(runtime, ImageFolderSource(root, name="odd"), tmp_path / "c")
    assert drt.open_cache(result.path).num_samples == 1


def test_a_dangling_link_is_named(folder, tmp_path, runtime):
    (folder / "cat" / "gone.jpg").symlink_to("nowhere")
    assert "gone.jpg" in refused(runtime, ImageFolderSource(folder), tmp_path / "c")


def test_without_labels_loose_files_are_fine(folder):
    (folder / "loose.jpg").write_bytes(b"x")
    source = ImageFolderSource(folder, labels=False)
    assert samples_of(source)[-1][1]["path"] == "zebra/299.JPG"
    assert (b"x", {"path": "loose.jpg"}) in samples_of(source)
    assert source.schema.names == ["path"]


def test_nothing_to_import_says_what_is_there(tmp_path, runtime):
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "1.npy").write_bytes(b"x")
    message = refused(runtime, ImageFolderSource(tmp_path), tmp_path / "c")
    assert "but .npy" in message
    assert "extensions=" in message
    with pytest.raises(drt.NotFoundError, match="expected a directory"):
        ImageFolderSource(tmp_path / "missing")


def test_a_file_that_changes_while_it_is_imported_is_refused(folder, tmp_path, runtime):
    source = ImageFolderSource(folder)
    assert len(source) == 300
    (folder / "zebra" / "299.JPG").write_bytes(b"changed since")
    message = refused(runtime, source, tmp_path / "c")
    assert "299.JPG: changed since it was listed" in message
    assert not (tmp_path / "c" / "pets").exists()


def test_a_transform_needs_a_version(folder):
    with pytest.raises(drt.InvalidInputError, match="cannot see code"):
        ImageFolderSource(folder, transform=shout)
    with pytest.raises(drt.InvalidInputError, match="there is none"):
        ImageFolderSource(folder, transform_version="1")
    assert ImageFolderSource(folder, transform=shout, fingerprint="mine").fingerprint == "mine"


def test_what_goes_to_processes_is_small(folder):
    source = ImageFolderSource(folder, transform=shout, transform_version="1")
    item = next(iter(source))
    there = pickle.loads(pickle.dumps(source.transform))
    assert there(pickle.loads(pickle.dumps(item))) == source.transform(item)
    # Neither the list of files nor the bytes of one.
    assert len(pickle.dumps((source.transform, item))) < 600


class Squares:
    """What a `torch.utils.data.Dataset` is, without PyTorch."""

    def __len__(self):
        return 300

    def __getitem__(self, index):
        return index * index


def encode_number(number):
    return drt.CacheInput(str(number).encode() * 20, {"number": number})


def test_a_map_dataset_goes_on(tmp_path, runtime):
    def make():
        return MapDatasetSource("squares", Squares(), encode_number, fingerprint="v1")

    cache = assert_resumes(runtime, make, tmp_path, 300)
    assert cache.metadata()["number"].to_list() == [i * i for i in range(300)]
    assert cache.manifest["provenance"]["encode"].endswith("encode_number")


def test_a_map_dataset_loads_where_it_encodes():
    source = MapDatasetSource("squares", Squares(), encode_number, fingerprint="v1")
    assert list(source) == list(range(300))
    transform = pickle.loads(pickle.dumps(source.transform))
    assert transform(7) == drt.CacheInput(b"49" * 20, {"number": 49})
    with pytest.raises(TypeError, match="no __len__"):
        MapDatasetSource("x", iter([1]), encode_number, fingerprint="v1")


def test_a_folder_is_the_same_cache_as_its_samples_written_by_hand(folder, tmp_path, runtime):
    imported = write(runtime, ImageFolderSource(folder), tmp_path / "a", SMALL)
    by_hand = written(runtime, tmp_path / "b", samples_of(ImageFolderSource(folder)))
    assert drt.open_cache(imported.path).cache_id == drt.open_cache(by_hand).cache_id


BYTES = [b"fine", b"fine", b"bad", b"fine"]


def with_bad_file(directory):
    (directory / "root" / "cat").mkdir(parents=True)
    for i, data in enumerate(BYTES):
        (directory / "root" / "cat" / f"{i}.jpg").write_bytes(data)
    options = {"transform": stumble, "transform_version": "1"}
    return ImageFolderSource(directory / "root", **options), f"{directory}/root/cat/2.jpg: "


def with_bad_row(directory):
    for part in range(2):
        pl.DataFrame({"payload": BYTES[part * 2 :][:2]}).write_parquet(
            directory / f"{part}.parquet"
        )
    source = ParquetSource("q", directory, transform=stumble, transform_version="1")
    return source, f"{directory}/1.parquet, row 0: "


def with_bad_named_file(directory):
    with_bad_file(directory)
    names = "".join(f"root/cat/{i}.jpg\n" for i in range(4))
    (directory / "a.csv").write_text(f"file\n{names}")
    options = {"transform": stumble, "transform_version": "1"}
    source = CsvSource("q", directory / "a.csv", payload_files="file", **options)
    return source, f"{directory}/a.csv, row 2, column 'file': {directory}/root/cat/2.jpg: "


def with_bad_member(directory):
    put_tar(directory / "a.tar", [(f"{i}.jpg", data) for i, data in enumerate(BYTES)])
    options = {"transform": stumble, "transform_version": "1"}
    source = WebDatasetSource("q", directory / "a.tar", payload="jpg", **options)
    return source, f"{directory}/a.tar: sample '2': "


@pytest.mark.parametrize(
    ("make", "num_processes"),
    [
        *((with_bad_file, 1), (with_bad_row, 1), (with_bad_named_file, 1), (with_bad_member, 1)),
        (with_bad_file, 2),
    ],
)
def test_a_failing_transform_says_what_it_was_at_work_on(tmp_path, runtime, make, num_processes):
    source, place = make(tmp_path)
    config = SMALL.model_copy(update={"num_processes": num_processes})
    result = write(runtime, source, tmp_path / "c", config)
    assert str(result.exception) == f"{place}transform raised OSError: truncated"
    assert result.message.endswith(f"{result.exception} (after 2 samples)")
    assert isinstance(result.exception, drt.SourceError)
    # A worker's exception comes with its cause, too.
    assert type(result.exception.__cause__) is OSError
    assert str(result.exception.__cause__) == "truncated"


def test_a_transform_that_returns_no_sample_says_of_what(tmp_path, runtime):
    (tmp_path / "root" / "cat").mkdir(parents=True)
    (tmp_path / "root" / "cat" / "1.jpg").write_bytes(b"nothing")
    source = ImageFolderSource(tmp_path / "root", transform=stumble, transform_version="1")
    message = refused(runtime, source, tmp_path / "c")
    assert f"{tmp_path}/root/cat/1.jpg: transform returned NoneType; expected one" in message


def test_items_of_a_map_dataset_are_named(tmp_path, runtime):
    def refuse(item):
        raise KeyError(item)

    source = MapDatasetSource("q", Squares(), refuse, fingerprint="v1")
    assert "item 0: encode raised KeyError: 0" in refused(runtime, source, tmp_path / "c")
    source = MapDatasetSource("q", {0: 0, 2: 2}, encode_number, fingerprint="v1")
    assert "item 1: the dataset raised KeyError: 1" in refused(runtime, source, tmp_path / "c")


def test_files_that_are_left_out_are_counted(folder):
    (folder / "cat" / "notes.txt").write_text("x")
    (folder / "cat" / "NOTES.TXT").write_text("x")
    (folder / "README").write_text("x")
    assert ImageFolderSource(folder).left_out == {"": 1, ".txt": 2}
    assert ImageFolderSource(folder, extensions=None, labels=False).left_out == {}


def test_a_file_written_while_it_is_read_is_refused(tmp_path, monkeypatch):
    (tmp_path / "cat").mkdir()
    path = tmp_path / "cat" / "1.jpg"
    path.write_bytes(b"old")
    os.utime(path, (1, 1))
    source = ImageFolderSource(tmp_path)
    assert source.fingerprint

    def written_before_it_is_read(*args):
        opened = open(*args)  # noqa: SIM115 - its caller closes it
        path.write_bytes(b"new")
        return opened

    target = "dataset_rt.sources.inputs.files.open"
    monkeypatch.setattr(target, written_before_it_is_read, raising=False)
    with pytest.raises(drt.InvalidInputError, match=r"1\.jpg: changed since it was listed"):
        list(source)
