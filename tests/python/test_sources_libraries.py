"""Datasets of Hugging Face and ArrayRecord files as sources, through their own libraries."""

import io
import pickle

import pytest
from source_tools import assert_begins_anywhere, assert_resumes, is_stale, samples_of, shout, write

import dataset_rt as drt
from dataset_rt.sources import ArrayRecordSource, HuggingFaceSource

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
]


@pytest.fixture
def datasets(monkeypatch, tmp_path):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("HF_HOME", str(tmp_path / "home"))
    found = pytest.importorskip("datasets", reason="datasets is not importable: see make torch")
    found.disable_progress_bars()
    return found


def numbers(count):
    return {
        "blob": [f"blob {i}".encode() * (i % 5 + 11) for i in range(count)],
        "label": [i % 3 for i in range(count)],
    }


def png(color):
    from PIL import Image

    out = io.BytesIO()
    Image.new("RGB", (2, 2), color).save(out, "png")
    return out.getvalue()


def test_an_interrupted_dataset_goes_on(datasets, tmp_path, runtime):
    names = datasets.ClassLabel(names=["cat", "dog", "fox"])
    features = datasets.Features({"blob": datasets.Value("binary"), "label": names})
    saved = tmp_path / "saved"
    datasets.Dataset.from_dict(numbers(300), features=features).save_to_disk(saved)

    def make():
        return HuggingFaceSource("h", datasets.load_from_disk(saved), payload="blob")

    cache = assert_resumes(runtime, make, tmp_path, 300)
    assert cache.metadata()["label"].to_list() == [i % 3 for i in range(300)]
    assert "dataset" not in cache.manifest["provenance"]
    assert cache.manifest["provenance"]["names of label"] == "cat\ndog\nfox"


def test_a_shuffled_and_filtered_dataset_keeps_its_order(datasets, tmp_path, runtime):
    dataset = datasets.Dataset.from_dict(numbers(300)).shuffle(seed=1).select(range(200))

    def make():
        return HuggingFaceSource(
            "h", dataset, payload="blob", transform=shout, transform_version="1"
        )

    cache = assert_resumes(runtime, make, tmp_path, 200)
    assert [bytes(cache.payload(i)) for i in range(200)] == [b.upper() for b in dataset["blob"]]


def test_images_come_encoded_whatever_the_dataset_does(datasets, tmp_path):
    encoded = [png((i, 0, 0)) for i in range(3)]
    rows = {"image": [{"bytes": b, "path": None} for b in encoded], "y": [1, 2, 3]}
    features = datasets.Features({"image": datasets.Image(), "y": datasets.Value("int64")})
    dataset = datasets.Dataset.from_dict(rows, features=features)
    dataset.set_transform(lambda batch: 1 / 0)
    found = samples_of(HuggingFaceSource("h", dataset, payload="image"))
    assert found == [(data, {"y": i + 1}) for i, data in enumerate(encoded)]


def test_a_folder_loaded_as_a_dataset_has_its_files(datasets, tmp_path):
    for i, label in enumerate(["cat", "dog"]):
        (tmp_path / "data" / label).mkdir(parents=True)
        (tmp_path / "data" / label / f"{i}.png").write_bytes(png((i, 1, 2)))
    dataset = datasets.load_dataset(
        "imagefolder", data_dir=str(tmp_path / "data"), split="train", cache_dir=str(tmp_path / "c")
    )
    found = samples_of(HuggingFaceSource("h", dataset, payload="image"))
    assert found == [(png((0, 1, 2)), {"label": 0}), (png((1, 1, 2)), {"label": 1})]


def test_changed_datasets_are_stale(datasets, tmp_path, runtime):
    dataset = datasets.Dataset.from_dict(numbers(30))
    write(runtime, HuggingFaceSource("h", dataset, payload="blob"), tmp_path / "c")
    again = datasets.Dataset.from_dict(numbers(30))
    assert not is_stale(runtime, HuggingFaceSource("h", again, payload="blob"), tmp_path / "c")
    other = dataset.select(range(1, 30))
    assert is_stale(runtime, HuggingFaceSource("h", other, payload="blob"), tmp_path / "c")


def test_an_iterable_dataset_goes_on(datasets, tmp_path, runtime):
    def make():
        dataset = datasets.Dataset.from_dict(numbers(300)).to_iterable_dataset()
        return HuggingFaceSource("h", dataset, payload="blob", fingerprint="v1")

    assert_resumes(runtime, make, tmp_path, 300)
    plain = HuggingFaceSource("h", make()._dataset, payload="blob")
    assert plain.fingerprint is None


def test_other_things_are_refused(datasets):
    dataset = datasets.Dataset.from_dict(numbers(3))
    with pytest.raises(TypeError, match="pass one of its splits"):
        HuggingFaceSource("h", datasets.DatasetDict({"train": dataset}), payload="blob")
    with pytest.raises(drt.InvalidInputError, match="payload='blob'"):
        HuggingFaceSource("h", dataset)


@pytest.fixture
def records(tmp_path):
    """Two files of 300 records."""
    module = pytest.importorskip(
        "array_record.python.array_record_module", reason="array_record is not importable"
    )
    folder = tmp_path / "records"
    folder.mkdir()
    for part in range(2):
        writer = module.ArrayRecordWriter(str(folder / f"{part}.array_record"), "group_size:7")
        for i in range(part * 150, part * 150 + 150):
            writer.write(f"record {i}".encode() * (i % 5 + 11))
        writer.close()
    return folder


def parse(sample):
    return drt.CacheInput(sample.data, {"length": len(sample.data)})


def test_interrupted_records_go_on(records, tmp_path, runtime):
    cache = assert_resumes(runtime, lambda: ArrayRecordSource("a", records), tmp_path, 300)
    assert cache.schema.names == []
    assert bytes(cache.payload(299)) == b"record 299" * 15


def test_records_and_datasets_begin_anywhere(records, datasets):
    places = [0, 1, 63, 64, 65, 149, 150, 151, 299, 300]
    assert_begins_anywhere(lambda: ArrayRecordSource("a", records), places)
    dataset = datasets.Dataset.from_dict(numbers(300))
    for kind in (dataset, dataset.to_iterable_dataset()):

        def make(kind=kind):
            return HuggingFaceSource("h", kind, payload="blob", fingerprint="v1")

        assert_begins_anywhere(make, places)


def test_transformed_records_go_on(records, tmp_path, runtime):
    def make():
        return ArrayRecordSource("a", records, transform=parse, transform_version="1")

    assert len(make()) == 300
    item = pickle.loads(pickle.dumps(next(iter(make()))))
    assert item.sample.data == b"record 0" * 11
    assert item.place == f"{records / '0.array_record'}, record 0"
    cache = assert_resumes(runtime, make, tmp_path, 300)
    assert cache.metadata()["length"][299] == 150


def test_damaged_records_name_the_file(records):
    path = records / "1.array_record"
    whole = path.read_bytes()
    good = samples_of(ArrayRecordSource("a", records))
    noticed = 0
    places = [place for place, byte in enumerate(whole) if byte]
    for place in places[:: len(places) // 60]:
        data = bytearray(whole)
        data[place] ^= 0xFF
        path.write_bytes(data)
        message = None
        try:
            # Padding may be anything.
            assert samples_of(ArrayRecordSource("a", records)) == good
        except drt.InvalidInputError as error:
            message = str(error)
        noticed += message is not None
        assert message is None or "1.array_record: " in message
    assert noticed > 50
    path.write_bytes(b"something else")
    with pytest.raises(drt.InvalidInputError, match=r"1\.array_record: expected"):
        samples_of(ArrayRecordSource("a", records))


def test_changed_records_are_stale(records, tmp_path, runtime):
    write(runtime, ArrayRecordSource("a", records), tmp_path / "c")
    assert not is_stale(runtime, ArrayRecordSource("a", records), tmp_path / "c")
    (records / "1.array_record").unlink()
    assert is_stale(runtime, ArrayRecordSource("a", records), tmp_path / "c")


def test_a_missing_library_is_named(monkeypatch, tmp_path):
    import builtins
    import sys

    for name in [n for n in sys.modules if n.startswith("array_record")]:
        monkeypatch.delitem(sys.modules, name)
    real = builtins.__import__

    def without(name, *rest):
        if name.startswith("array_record"):
            raise ModuleNotFoundError(f"No module named {name!r}", name="array_record")
        return real(name, *rest)

    monkeypatch.setattr("dataset_rt.sources.inputs.files.import_module", lambda name: without(name))
    with pytest.raises(ModuleNotFoundError, match="pip install array_record"):
        ArrayRecordSource("a", tmp_path)


def test_a_dataset_without_a_name_has_none_in_its_provenance(datasets):
    source = HuggingFaceSource("h", datasets.Dataset.from_dict(numbers(3)), payload="blob")
    assert "dataset" not in source.provenance
