"""Saved states and configurations: whole or not at all, and equal where they are loaded."""

import json
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import polars as pl
import pytest
from conftest import identities, numbered, opened, run_script, written

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
    "foreign document": drt.InvalidInputError,
    "newer": drt.InvalidInputError,
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


@pytest.mark.parametrize(
    "change",
    [
        lambda config: config.update(version=2),
        lambda config: config.pop("caches"),
        lambda config: config.update(more=1),
        lambda config: config["reader_config"].update(seed=-1),
        lambda config: config["caches"][0].update(path=None),
    ],
)
def test_a_foreign_configuration_is_told(runtime, cache, tmp_path, change):
    shuffled(runtime, cache).dump_config(tmp_path)
    path = tmp_path / "config.json"
    config = json.loads(path.read_text())
    change(config)
    path.write_text(json.dumps(config))
    with pytest.raises(drt.CorruptError, match=r"config\.json"):
        drt.CachedDataset.from_config(tmp_path, runtime=runtime)


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
