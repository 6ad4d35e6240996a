"""What survives damage is what was written, in a cache that verifies; the rest is named."""

import json
import random
import struct

import pyarrow as pa
import pytest
from conftest import QUIET, ListSource, directory_digest, numbered, sealed, written

import dataset_rt as drt

BLOCK_BYTES = 65_536
COMPRESSIONS = {
    "none": drt.ShardCompression(),
    "lz4": drt.ShardCompression(algo="lz4"),
    "zstd": drt.ShardCompression(algo="zstd", level=5),
    "zstd dictionary": drt.ShardCompression(algo="zstd", dictionary_bytes=4096),
    "zstd buffer": drt.ShardCompression(algo="zstd", scope="buffer"),
}


def samples(count=150):
    source = random.Random(5)
    return [
        (
            b"" if i % 17 == 0 else source.randbytes(1500) + b"text" * (i % 300),
            {"n": i, "s": None if i % 5 == 0 else f"row {i}"},
        )
        for i in range(count)
    ]


def large(runtime, directory, compression="none", shard_bytes=150_000):
    config = drt.WriterConfig(
        show_progress=False,
        max_shard_bytes=shard_bytes,
        shard_compression=COMPRESSIONS[compression],
    )
    return written(runtime, directory, samples(), config=config, fingerprint="v1")


def flip(file, at):
    content = bytearray(file.read_bytes())
    content[at] ^= 1
    file.write_bytes(content)


def salvaged(path, into, **options):
    return drt.salvage_cache(path, into, writer_config=QUIET, **options)


def holds(report, originals):
    """Checks the new cache against what was written, through the ranges of the report."""
    assert drt.verify_cache(report.new_path, level="deep")
    cache = drt.open_cache(report.new_path)
    metadata = cache.metadata()
    kept = set()
    for samples_kept in report.kept:
        for old in range(samples_kept.start, samples_kept.stop):
            new = samples_kept.new_start + old - samples_kept.start
            payload, expected = originals[old]
            assert cache.payload(new).to_pybytes() == payload
            assert metadata.row(new, named=True).items() >= expected.items()
            kept.add(old)
    lost = {i for samples_lost in report.lost for i in range(samples_lost.start, samples_lost.stop)}
    assert kept | lost == set(range(len(originals)))
    assert not kept & lost
    assert (len(kept), len(lost)) == (report.samples_kept, report.samples_lost)
    assert cache.num_samples == len(kept)
    return lost


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_a_damaged_shard_costs_its_block_alone(runtime, tmp_path, compression):
    cache = large(runtime, tmp_path, compression)
    shard = sorted((cache / "shards").iterdir())[1]
    flip(shard, min(70_000, shard.stat().st_size - 300))
    before = directory_digest(cache)
    report = salvaged(cache, tmp_path / "new")
    lost = holds(report, samples())
    assert 0 < len(lost) < 60
    assert {found.file for found in report.lost} == {f"shards/{shard.name}"}
    table = report.lost_metadata()
    assert table["sample_id"].to_list() == table["n"].to_list() == sorted(lost)
    new, old = drt.open_cache(report.new_path), drt.open_cache(cache)
    assert new.schema == old.schema
    assert new.manifest["compression"] == old.manifest["compression"]
    assert new.manifest["columns"] == old.manifest["columns"]
    provenance = new.manifest["provenance"]
    assert provenance["salvaged_from_content_blake3"] == old.manifest["content_blake3"]
    assert int(provenance["salvaged_samples_lost"]) == len(lost)
    assert not report.is_identical
    assert report.original_cache_id == old.cache_id != report.cache_id == new.cache_id
    assert directory_digest(cache) == before, "the damaged cache was touched"
    assert json.loads(report.to_json())["new_path"] == str(report.new_path)


def test_a_table_of_the_old_cache_is_carried_over_by_original_ids(runtime, tmp_path):
    cache = large(runtime, tmp_path)
    flip(cache / "shards/000000.arrow", 80_000)
    report = salvaged(cache, tmp_path / "new", original_ids=True, name="rest")
    assert report.new_path == tmp_path / "new" / "rest"
    holds(report, samples())
    metadata = drt.open_cache(report.new_path).metadata()
    assert metadata["original_sample_id"].to_list() == metadata["n"].to_list()
    flip(report.new_path / "shards/000000.arrow", 80_000)
    with pytest.raises(drt.InvalidInputError, match="original_sample_id"):
        salvaged(report.new_path, tmp_path / "newer", original_ids=True)


def test_an_incomplete_cache_never_passes_for_the_whole(runtime, tmp_path):
    cache = large(runtime, tmp_path)
    flip(cache / "shards/000000.arrow", 80_000)
    new = salvaged(cache, tmp_path / "new").new_path
    source = ListSource("words", samples(), fingerprint="v1")
    built = runtime.from_cache_sources(
        source, new.parent, reader_config=drt.ReaderConfig(seed=1), writer_config=QUIET
    )
    assert isinstance(built.results[0].exception, drt.ConflictError)
    assert source.times_iterated == 0


def test_nothing_lost_and_everything_lost(runtime, tmp_path):
    cache = large(runtime, tmp_path)
    none = salvaged(cache, tmp_path / "new")
    assert not none
    assert "a copy is not needed" in str(none)
    (cache / "index.bin").unlink()
    assert "repair restores its files in place" in str(salvaged(cache, tmp_path / "new"))
    assert not (tmp_path / "new").exists()
    whole = salvaged(cache, tmp_path / "new", always=True)
    assert whole.is_identical
    assert whole.cache_id == whole.original_cache_id
    assert holds(whole, samples()) == set()
    assert drt.open_cache(whole.new_path).manifest["fingerprint"] == "v1"
    with pytest.raises(drt.ConflictError, match="exists"):
        salvaged(cache, tmp_path / "new", always=True)
    (cache / "metadata.arrow").unlink()
    for shard in (cache / "shards").iterdir():
        shard.unlink()
    gone = salvaged(cache, tmp_path / "newer")
    assert not gone
    assert gone.samples_kept == 0
    assert "nothing can be salvaged" in str(gone)
    assert gone.lost_metadata()["n"].null_count() == 150


def test_damaged_columns_of_a_shard_cost_no_sample_but_are_worth_a_copy(runtime, tmp_path):
    originals = [(b"%04d" % i, {"n": i, "s": f"row {i} " + "x" * 90}) for i in range(3000)]
    cache = written(runtime, tmp_path, originals)
    flip(cache / "shards/000000.arrow", 2 * BLOCK_BYTES + 5)
    report = salvaged(cache, tmp_path / "new")
    assert [file.state for file in report.files] == ["lost"]
    assert report.is_identical
    assert holds(report, originals) == set()


def test_missing_cut_and_exchanged_shards(runtime, tmp_path):
    cache = large(runtime, tmp_path, shard_bytes=70_000)
    shards = sorted((cache / "shards").iterdir())
    assert len(shards) > 3
    shards[0].unlink()
    with shards[1].open("rb+") as file:
        file.truncate(BLOCK_BYTES + 10)
    second, third = shards[2].read_bytes(), shards[3].read_bytes()
    shards[2].write_bytes(third)
    shards[3].write_bytes(second)
    report = salvaged(cache, tmp_path / "new")
    lost = holds(report, samples())
    reasons = {found.file: found.reason for found in report.files}
    assert reasons["shards/000000.arrow"] == "it is missing"
    assert "ends at byte 65546" in reasons["shards/000001.arrow"]
    assert "shards/000003.arrow must hold" in reasons["shards/000002.arrow"]
    shards[2].write_bytes(second)
    shards[3].write_bytes(third)
    assert holds(salvaged(cache, tmp_path / "newer"), samples()) < lost


def test_a_lost_dictionary_costs_every_payload_but_empty_ones(runtime, tmp_path):
    cache = large(runtime, tmp_path, "zstd dictionary")
    flip(cache / "dictionary.bin", 50)
    report = salvaged(cache, tmp_path / "new")
    assert holds(report, samples()) == {i for i in range(150) if i % 17}
    assert {found.file for found in report.lost} == {"dictionary.bin"}
    repair = drt.repair_cache(cache, dry_run=True)
    assert [file.state for file in repair.files] == ["lost"]


def test_without_a_manifest_only_what_is_asked_for_unproven(runtime, tmp_path):
    cache = large(runtime, tmp_path, "zstd")
    flip(cache / "manifest.json", 300)
    with pytest.raises(drt.CorruptError, match="--unproven"):
        salvaged(cache, tmp_path / "new")
    (cache / "manifest.json").unlink()
    flip(cache / "shards/000001.arrow", 70_000)
    report = salvaged(cache, tmp_path / "new", trust="structure")
    assert holds(report, samples())
    assert not report.is_proven
    assert report.original_cache_id is None
    assert "none of them proven" in str(report)
    provenance = drt.open_cache(report.new_path).manifest["provenance"]
    assert provenance["salvaged_proof"].startswith("none")
    text = (report.new_path / "manifest.json").read_text()
    (report.new_path / "manifest.json").write_text(
        sealed(text.replace('"format_version": 0', '"format_version": 9'))
    )
    with pytest.raises(drt.UnsupportedError, match="version 9"):
        salvaged(report.new_path, tmp_path / "newer", trust="structure")


def test_any_damage_ends_in_a_cache_that_verifies(runtime, tmp_path):
    originals = [
        (b"" if i == 1 else b"payload %d" % i * 3, {"n": i, "s": f"r{i}"}) for i in range(4)
    ]
    config = drt.WriterConfig(show_progress=False, max_shard_bytes=1)
    cache = written(runtime, tmp_path, originals, config=config)
    files = [file for file in sorted(cache.rglob("*")) if file.is_file()]
    places = [(file, at) for file in files for at in range(0, file.stat().st_size, 23)]
    assert len(places) > 300
    for number, (file, at) in enumerate(places):
        content = file.read_bytes()
        flip(file, at)
        into = tmp_path / f"new {number}"
        if file.name == "manifest.json":
            assert holds(salvaged(cache, into, trust="structure"), originals) == set()
        elif file.parent.name == "shards":
            # One sample a shard; an empty payload needs no shard.
            lost = holds(salvaged(cache, into), originals)
            assert lost == {int(file.stem)} - {1}
        else:
            assert drt.repair_cache(cache)
            assert file.read_bytes() == content
        file.write_bytes(content)
    assert drt.verify_cache(cache, level="deep")


def test_columns_of_every_kind_and_none(runtime, tmp_path):
    schema = pa.schema([pa.field("n", pa.int8(), nullable=False), pa.field("x", pa.null())])
    originals = [(b"%d" % i * 30_000, {"n": i, "x": None}) for i in range(9)]
    for name, extra in {"typed": {"schema": schema}, "bare": {}}.items():
        values = originals if extra else [(payload, {}) for payload, _ in originals]
        cache = written(runtime, tmp_path, values, name=name, **extra)
        flip(cache / "shards/000000.arrow", 150_000)
        report = salvaged(cache, tmp_path / "new")
        assert holds(report, values)
        new = drt.open_cache(report.new_path)
        assert new.manifest["columns"] == drt.open_cache(cache).manifest["columns"]


def test_wrong_arguments(cache, tmp_path):
    with pytest.raises(drt.InvalidInputError, match="trust"):
        drt.salvage_cache(cache, tmp_path / "new", trust="me")
    with pytest.raises(TypeError, match="into"):
        drt.salvage_cache(cache, 3)
    with pytest.raises(TypeError, match="writer_config"):
        drt.salvage_cache(cache, tmp_path / "new", writer_config={"a": 1})
    (cache / "shards/000000.arrow").unlink()
    with pytest.raises(drt.InvalidInputError, match="name"):
        drt.salvage_cache(cache, tmp_path / "new", name="a/b")


def test_the_compression_is_that_of_the_writer_config_where_it_is_set(runtime, tmp_path):
    cache = written(runtime, tmp_path, numbered(20))
    config = drt.WriterConfig(
        show_progress=False, shard_compression=drt.ShardCompression(algo="lz4")
    )
    report = drt.salvage_cache(cache, tmp_path / "new", always=True, writer_config=config)
    assert report.is_identical
    assert drt.open_cache(report.new_path).manifest["compression"]["algo"] == "lz4"


def test_a_damaged_number_is_a_loss_of_any_length_and_takes_no_time(runtime, tmp_path):
    cache = large(runtime, tmp_path, shard_bytes=100_000)
    shards = sorted((cache / "shards").iterdir())
    assert len(shards) == 3
    manifest = json.loads((cache / "manifest.json").read_text())
    rows = [shard["rows"] for shard in manifest["shards"]]
    ids = b"".join(struct.pack("<Q", sample) for sample in range(rows[0] + rows[1], 150))
    content = bytearray(shards[2].read_bytes())
    content[content.index(ids) + 7] = 0x40
    shards[2].write_bytes(content)
    shards[1].unlink()
    (cache / "manifest.json").unlink()
    report = salvaged(cache, tmp_path / "new", trust="structure")
    assert report.samples_kept == rows[0] + rows[2]
    assert (report.lost[0].start, report.lost[0].stop) == (rows[0], rows[0] + rows[1] + (1 << 62))
    with pytest.raises(drt.ExhaustedError, match="the ranges of lost samples are in the report"):
        report.lost_metadata()
    cli = pytest.importorskip("cli_tools", reason="the command line needs the extra `cli`")
    found = cli.call("repair", cache, "--unproven", "--into", tmp_path / "newer")
    assert found.code == 0, found.err
    assert f"{rows[0] + rows[2]} of" in " ".join(found.lines)


def test_rows_that_a_header_makes_up_cost_no_memory_of_their_own(runtime, tmp_path):
    claimed = 300_000
    cache = tmp_path / "crafted"
    (cache / "shards").mkdir(parents=True)
    marks = {"format_version": "0", "kind": "shard", "codec": "zstd", "codec_scope": "buffer"}
    schema = pa.schema(
        [
            pa.field("sample_id", pa.uint64(), nullable=False),
            pa.field("payload", pa.large_binary(), nullable=False),
        ],
        metadata={f"dataset_rt.{name}": value for name, value in marks.items()},
    )
    # Long enough that zstd could hold the offsets of as many rows, and none of them.
    rows = 1001
    source = random.Random(3)
    offsets = [0, *(source.randrange(2**62) for _ in range(rows - 1)), 1]
    noise = struct.pack(f"<{rows + 1}q", *offsets)
    arrays = [
        pa.Array.from_buffers(pa.uint64(), rows, [None, pa.py_buffer(noise)]),
        pa.Array.from_buffers(
            pa.large_binary(), rows, [None, pa.py_buffer(noise), pa.py_buffer(b"x")]
        ),
    ]
    shard = cache / "shards" / "000000.arrow"
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    with pa.OSFile(str(shard), "wb") as file, pa.ipc.new_file(file, schema, options=options) as out:
        out.write_batch(pa.record_batch(arrays, schema=schema))
    number, lie = struct.pack("<q", rows), struct.pack("<q", claimed)
    content = shard.read_bytes()
    assert content.count(number) >= 3
    shard.write_bytes(content.replace(number, lie))
    report = salvaged(cache, tmp_path / "new", trust="structure")
    assert report.samples_lost == claimed
    assert (report.lost[0].start, report.lost[-1].stop) == (0, claimed)
    # Neighbours merge: of one reason always, of any where there are very many.
    assert len({lost.reason for lost in report.lost}) <= 3
    assert len(report.lost) <= 100_000
