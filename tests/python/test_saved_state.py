"""Saved states and configurations: whole or not at all, and equal where they are loaded."""

import json
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import polars as pl
import pyarrow as pa
import pytest
from conftest import identities, numbered, opened, run_script, sealed, written
from plain_blake3 import blake3

import dataset_rt as drt


def edited(dataset, seed=0):
    table = dataset.get_metadata().filter(pl.col("number") % 5 != 0).reverse()
    table = table.with_columns(
        weight=(pl.col("number") * 7 + seed) % 11 + 0.5,
        score=pl.col("score") * -1,
        note="n" + pl.col("number").cast(pl.String),
    )
    dataset.update_metadata(table, edited=["score"])
    return dataset


def shuffled(runtime, cache, seed=3):
    return opened(runtime, cache, seed=seed, shuffle=True)


def state_of(dataset):
    return dataset.state_dict(), dataset.order_fingerprint, dataset.get_metadata().to_dicts()


@pytest.mark.parametrize("has_table", [False, True])
@pytest.mark.parametrize("taken", [0, 1, 17, 39])
def test_a_run_goes_on_at_the_next_sample_with_its_table(
    runtime, cache, tmp_path, has_table, taken
):
    dataset = shuffled(runtime, cache)
    if has_table:
        edited(dataset)
    dataset.set_epoch(2)
    samples = iter(dataset)
    for _ in range(taken):
        next(samples)
    dataset.save_state(tmp_path / "deep" / "saved")
    rest = [*samples, *dataset]
    again = shuffled(runtime, cache)
    if not has_table:
        edited(again)
    again.load_state(tmp_path / "deep" / "saved")
    assert [*again, *again] == rest
    assert again.get_metadata().equals(dataset.get_metadata())


def test_the_loop_of_a_table_per_epoch_goes_on_in_another_process(runtime, cache, tmp_path):
    def train(dataset, start, stop, save_at=None):
        seen = []
        for epoch in range(start, stop):
            edited(dataset, epoch)
            for step, sample in enumerate(dataset):
                seen.append((sample.sample_id, sample.metadata["score"]))
                if (epoch, step) == save_at:
                    dataset.save_state(tmp_path / "saved")
        return seen

    whole = train(shuffled(runtime, cache), 0, 4, save_at=(2, 9))
    again = shuffled(runtime, cache)
    again.load_state(tmp_path / "saved")
    assert again.epoch == 2
    rest = [(sample.sample_id, sample.metadata["score"]) for sample in again]
    assert [*rest, *train(again, 3, 4)] == whole[2 * 40 + 10 :]


def test_only_the_newest_table_is_kept(runtime, cache, tmp_path):
    dataset = shuffled(runtime, cache)
    names = set()
    for seed in range(3):
        edited(dataset, seed).save_state(tmp_path / "saved")
        names.add(tuple(sorted(path.name for path in (tmp_path / "saved").iterdir())))
    assert len(names) == 3
    assert all(len(each) == 2 and each[1] == "state.json" for each in names)
    shuffled(runtime, cache).save_state(tmp_path / "saved")
    assert [path.name for path in (tmp_path / "saved").iterdir()] == ["state.json"]


def test_state_and_configuration_may_share_a_directory(runtime, cache, tmp_path):
    dataset = edited(shuffled(runtime, cache))
    dataset.dump_config(tmp_path)
    edited(dataset, 5).save_state(tmp_path)
    again = drt.CachedDataset.from_config(tmp_path, runtime=runtime)
    assert again.order_fingerprint != dataset.order_fingerprint
    again.load_state(tmp_path)
    assert state_of(again) == state_of(dataset)


def table_file(directory):
    (path,) = directory.glob("*-table-*.arrows")
    return path


def damage(directory, kind):
    document, table = directory / "state.json", table_file(directory)
    if kind == "no directory":
        shutil.rmtree(directory)
    elif kind == "no document":
        document.unlink()
    elif kind == "no table":
        table.unlink()
    elif kind == "cut table":
        table.write_bytes(table.read_bytes()[:-100])
    elif kind == "flipped table":
        content = bytearray(table.read_bytes())
        content[len(content) // 2] ^= 1
        table.write_bytes(content)
    elif kind == "foreign document":
        document.write_text('{"format": "something else"}')
    elif kind == "cut document":
        document.write_text(document.read_text()[:-30])
    elif kind == "newer":
        text = document.read_text()
        assert '"version": 1' in text
        document.write_text(text.replace('"version": 1', '"version": 2'))
    elif kind == "linked table":
        table.rename(directory.parent / "elsewhere")
        table.symlink_to(directory.parent / "elsewhere")


KINDS = {
    "no directory": drt.NotFoundError,
    "no document": drt.NotFoundError,
    "no table": drt.NotFoundError,
    "cut table": drt.CorruptError,
    "flipped table": drt.CorruptError,
    "linked table": drt.CorruptError,
    "cut document": drt.CorruptError,
    "foreign document": drt.CorruptError,
    "newer": drt.CorruptError,
}


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_changes_when_a_load_fails(runtime, cache, tmp_path, kind):
    saved = tmp_path / "saved"
    edited(shuffled(runtime, cache)).save_state(saved)
    damage(saved, kind)
    dataset = edited(shuffled(runtime, cache), 4)
    before = state_of(dataset)
    with pytest.raises(KINDS[kind], match=r"saved|state|directory"):
        dataset.load_state(saved)
    assert state_of(dataset) == before


def test_nothing_changes_when_state_and_dataset_differ(runtime, cache, tmp_path):
    saved = tmp_path / "saved"
    edited(shuffled(runtime, cache)).save_state(saved)
    other = written(runtime, tmp_path / "others", numbered(60))
    for dataset in (shuffled(runtime, cache, seed=4), opened(runtime, cache, seed=3)):
        before = state_of(dataset)
        with pytest.raises(drt.InvalidInputError, match=r"seed|sampling"):
            dataset.load_state(saved)
        assert state_of(dataset) == before
    dataset = shuffled(runtime, other)
    before = state_of(dataset)
    with pytest.raises(drt.InvalidInputError, match="cache_id"):
        dataset.load_state(saved)
    assert state_of(dataset) == before
    shuffled(runtime, cache).save_state(saved)
    with pytest.raises(drt.InvalidInputError, match="rows"):
        dataset.load_state(saved)
    assert state_of(dataset) == before


SAVING_UNTIL_KILLED = """
    import sys
    import polars as pl
    import dataset_rt as drt
    dataset = drt.open_dataset(sys.argv[1], seed=3, shuffle=True)
    table = dataset.get_metadata()
    number = 0
    while True:
        number += 1
        dataset.update_metadata(table.with_columns(weight=pl.lit(1.0 + number), run=number))
        dataset.set_epoch(number)
        dataset.save_state(sys.argv[2])
        print(number, flush=True)
"""


def test_a_killed_process_leaves_the_state_before_or_the_new_one(runtime, cache, tmp_path):
    for after in (1, 3, 8):
        saved = tmp_path / f"saved-{after}"
        command = [sys.executable, "-c", textwrap.dedent(SAVING_UNTIL_KILLED), cache, saved]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            for _ in range(after):
                last = int(process.stdout.readline())
            process.kill()
            last = max([last, *map(int, process.stdout.read().split())])
        dataset = shuffled(runtime, cache)
        dataset.load_state(saved)
        assert dataset.epoch in (last, last + 1)
        assert dataset[0].metadata["run"] == dataset.epoch


def test_a_full_disk_keeps_what_was_saved(runtime, cache, tmp_path):
    saved = tmp_path / "saved"
    edited(shuffled(runtime, cache)).save_state(saved)
    script = """
        import resource, signal, sys
        import polars as pl
        import dataset_rt as drt
        dataset = drt.open_dataset(sys.argv[1], seed=3, shuffle=True)
        table = dataset.get_metadata()
        dataset.update_metadata(pl.concat([table] * 2000))
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
        try:
            dataset.save_state(sys.argv[2])
        except drt.ExhaustedError as error:
            print(error)
    """
    before = {path.name: path.read_bytes() for path in saved.iterdir()}
    assert "cannot write" in run_script(script, cache, saved)
    assert {path.name: path.read_bytes() for path in saved.iterdir()} == before


def test_a_configuration_makes_an_equal_dataset_at_its_beginning(runtime, cache, tmp_path):
    dataset = edited(opened(runtime, cache, seed=2**64 - 1, shuffle=True, prefetch_size=17))
    dataset.set_epoch_len(23)
    next(iter(dataset))
    dataset.dump_config(tmp_path / "config")
    again = drt.CachedDataset.from_config(tmp_path / "config")
    assert (again.epoch, len(again)) == (0, 23)
    assert again.reader_config == dataset.reader_config
    assert again.order_fingerprint == dataset.order_fingerprint
    assert again.get_metadata().equals(dataset.get_metadata())
    dataset.set_epoch(0)
    assert list(again) == list(dataset)
    with drt.DatasetRuntime(num_workers=1) as own:
        assert drt.CachedDataset.from_config(tmp_path / "config", runtime=own).runtime is own


def test_a_configuration_of_ranks_keeps_the_share(runtime, cache, tmp_path):
    part = shuffled(runtime, cache).partition(1, 3, global_batch_size=9, drop_last=True)
    part.dump_config(tmp_path)
    again = drt.CachedDataset.from_config(tmp_path, runtime=runtime)
    assert repr(again) == repr(part)
    assert identities(again) == identities(part)


def test_a_moved_tree_is_found_by_relative_paths(runtime, tmp_path):
    caches = [
        written(runtime, tmp_path / "old" / "caches", numbered(20 + i), name=f"c{i}")
        for i in range(2)
    ]
    dataset = opened(runtime, caches, seed=3, shuffle=True)
    dataset.dump_config(tmp_path / "old" / "runs" / "one")
    (tmp_path / "old").rename(tmp_path / "new")
    again = drt.CachedDataset.from_config(tmp_path / "new" / "runs" / "one", runtime=runtime)
    assert again.order_fingerprint == dataset.order_fingerprint
    assert [path.parts[-3:] for path in again.cache_paths] == [
        ("new", "caches", f"c{i}") for i in range(2)
    ]
    # At the old place is something else now; contents decide.
    written(runtime, tmp_path / "old" / "caches", numbered(5), name="c0")
    again = drt.CachedDataset.from_config(tmp_path / "new" / "runs" / "one", runtime=runtime)
    assert again.order_fingerprint == dataset.order_fingerprint
    shutil.rmtree(tmp_path / "new" / "caches" / "c0")
    with pytest.raises(drt.NotFoundError) as missing:
        drt.CachedDataset.from_config(tmp_path / "new" / "runs" / "one", runtime=runtime)
    assert "old/caches/c0: found content" in str(missing.value)
    assert "new/caches/c0" in str(missing.value)


def test_a_length_that_was_set_stays_one_though_it_is_that_of_the_table(runtime, cache, tmp_path):
    dataset = shuffled(runtime, cache)
    dataset.set_epoch_len(50)
    dataset.dump_config(tmp_path)
    again = drt.CachedDataset.from_config(tmp_path, runtime=runtime)
    assert again.state_dict() == dataset.state_dict()
    for each in (dataset, again):
        next(iter(each))
        each.update_metadata(each.get_metadata().head(3))
    assert again.state_dict() == dataset.state_dict()


def load(name, directory, runtime, cache):
    if name == "config.json":
        return drt.CachedDataset.from_config(directory, runtime=runtime)
    dataset = shuffled(runtime, cache)
    before = state_of(dataset)
    try:
        dataset.load_state(directory)
    except drt.DatasetRTError:
        assert state_of(dataset) == before
        raise
    return dataset


@pytest.mark.parametrize("name", ["state.json", "config.json"])
def test_any_flipped_byte_is_noticed(runtime, cache, tmp_path, name):
    dataset = edited(shuffled(runtime, cache))
    dataset.save_state(tmp_path)
    dataset.dump_config(tmp_path)
    path = tmp_path / name
    content = path.read_bytes()
    digits = [i for i, byte in enumerate(content) if byte in b"0123456789"]
    for at in sorted({*range(0, len(content), 23), *digits[::5]}):
        flipped = bytearray(content)
        flipped[at] ^= 1
        path.write_bytes(flipped)
        with pytest.raises(drt.CorruptError, match=name):
            load(name, tmp_path, runtime, cache)
    path.write_bytes(content)
    load(name, tmp_path, runtime, cache)


def rewrite(path, change):
    """Change a saved document, and make its own digest right again."""
    document = json.loads(path.read_text())
    del document["document_blake3"]
    change(document)
    document["document_blake3"] = "0" * 64
    path.write_text(sealed(json.dumps(document, indent=2) + "\n"))


UNSOUND = [
    ("state.json", lambda it: it["state"].update(position=-1), '"position": -1'),
    ("state.json", lambda it: it["state"].update(more=1), "more"),
    ("state.json", lambda it: it["state"].update(seed="3"), '"seed": "3"'),
    ("state.json", lambda it: it.update(state=None), "null"),
    ("state.json", lambda it: it.update(more=1), "more"),
    ("state.json", lambda it: it["table"].update(rows=41), "found 40 rows; expected 41"),
    ("state.json", lambda it: it["table"].update(rows=-1), '"rows": -1'),
    ("state.json", lambda it: it["table"].update(size_bytes=2**40), "size_bytes"),
    ("state.json", lambda it: it.update(format="dataset_rt.config"), "dataset_rt.config"),
    ("config.json", lambda it: it.pop("caches"), "caches"),
    ("config.json", lambda it: it.update(caches=[]), "caches"),
    ("config.json", lambda it: it["caches"][0].update(path=None), r"caches\.0\.path.*None"),
    ("config.json", lambda it: it.update(more=1), "more"),
    ("config.json", lambda it: it["reader_config"].update(seed=-1), r"seed.*found -1"),
    ("config.json", lambda it: it["partition"].update(rank=-1), r"partition\.rank.*found -1"),
    ("config.json", lambda it: it["partition"].update(rank=1), "rank 1; expected one below 1"),
    ("config.json", lambda it: it["partition"].update(world_size="2"), "partition.world_size"),
    ("config.json", lambda it: it["partition"].update(global_batch_size=2**64), "global_batch"),
    ("config.json", lambda it: it.update(epoch_len=-1), "epoch_len.*found -1"),
    ("config.json", lambda it: it.update(epoch_len=2**63), "epoch_len"),
    ("config.json", lambda it: it["table"].update(rows=39), "found 40 rows; expected 39"),
]


@pytest.mark.parametrize(("name", "change", "told"), UNSOUND)
def test_wrong_fields_of_a_sound_document_are_told(runtime, cache, tmp_path, name, change, told):
    dataset = edited(shuffled(runtime, cache))
    dataset.save_state(tmp_path)
    dataset.dump_config(tmp_path)
    rewrite(tmp_path / name, change)
    with pytest.raises(drt.CorruptError, match=told) as error:
        load(name, tmp_path, runtime, cache)
    assert str(tmp_path / name.removesuffix(".json")) in str(error.value)


@pytest.mark.parametrize("name", ["state.json", "config.json"])
def test_what_a_later_release_saved_is_told(runtime, cache, tmp_path, name):
    dataset = shuffled(runtime, cache)
    dataset.save_state(tmp_path)
    dataset.dump_config(tmp_path)
    rewrite(tmp_path / name, lambda document: document.update(version=2))
    with pytest.raises(drt.UnsupportedError, match=rf"{name}: found version 2"):
        load(name, tmp_path, runtime, cache)


def stream_of(table):
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue().to_pybytes()


NO_TABLES = {
    "nothing": b"",
    "no message": b"\xff\xff\xff\xff\x20\0\0\0" + b"\x7f" * 32,
    "cut": stream_of(pa.table({"a": range(100)}))[:-200],
    "no text": stream_of(pa.table({"a": ["abcdefgh"]})).replace(b"abcdefgh", b"\xff" * 8),
}


@pytest.mark.parametrize("name", ["state.json", "config.json"])
@pytest.mark.parametrize("kind", NO_TABLES)
def test_a_table_that_arrow_does_not_take_is_told(runtime, cache, tmp_path, name, kind):
    stem = name.removesuffix(".json")
    dataset = edited(shuffled(runtime, cache))
    dataset.save_state(tmp_path)
    dataset.dump_config(tmp_path)
    stream = NO_TABLES[kind]
    digest = blake3(stream)
    file = f"{stem}-table-{digest}.arrows"
    (tmp_path / file).write_bytes(stream)
    entry = {"file": file, "blake3": digest, "size_bytes": len(stream)}
    rewrite(tmp_path / name, lambda document: document["table"].update(entry))
    with pytest.raises(drt.CorruptError, match=file):
        load(name, tmp_path, runtime, cache)


def test_an_empty_path_is_no_directory(runtime, cache, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    dataset = shuffled(runtime, cache)
    calls = dataset.save_state, dataset.load_state, dataset.dump_config, dataset.from_config
    for call in calls:
        with pytest.raises(drt.InvalidInputError, match="path is empty"):
            call("")
    assert [path.name for path in tmp_path.iterdir()] == ["caches"]


@pytest.mark.parametrize("below", ["", "run-1", "run-1/last"])
def test_a_link_means_the_directory_it_leads_to(runtime, cache, tmp_path, below):
    (tmp_path / "scratch").mkdir()
    (tmp_path / "checkpoints").symlink_to(tmp_path / "scratch")
    place = tmp_path / "checkpoints" / below
    dataset = opened(runtime, cache, shuffle=True)
    next(iter(dataset))
    dataset.save_state(place)
    dataset.dump_config(place)
    again = opened(runtime, cache, shuffle=True)
    again.load_state(tmp_path / "scratch" / below)
    assert again.state_dict()["position"] == 1
    assert len(drt.CachedDataset.from_config(place)) == 50
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")
    with pytest.raises(drt.InvalidInputError, match="is not a directory"):
        dataset.save_state(tmp_path / "dangling")


def test_a_path_that_is_no_text_is_told(runtime, tmp_path):
    cache = written(runtime, tmp_path / "caches", numbered(3))
    odd = cache.with_name("odd\udcff")
    cache.rename(odd)
    dataset = opened(runtime, odd)
    dataset.save_state(tmp_path / "state")
    with pytest.raises(drt.InvalidInputError, match="no Unicode text"):
        dataset.dump_config(tmp_path / "config")
    assert not (tmp_path / "config").exists()


def test_saved_files_obey_their_schemas(runtime, cache, tmp_path):
    import jsonschema

    dataset = edited(shuffled(runtime, cache))
    dataset.save_state(tmp_path)
    dataset.dump_config(tmp_path)
    schemas = Path(__file__).resolve().parents[2] / "schemas"
    for name, file in (
        ("state.json", "saved_state.v1.schema.json"),
        ("config.json", "config.v1.schema.json"),
    ):
        schema = json.loads((schemas / file).read_text())
        jsonschema.Draft202012Validator.check_schema(schema)
        jsonschema.validate(json.loads((tmp_path / name).read_text()), schema)
