"""Other Arrow tools read every layout of our files, cell by cell."""

import importlib.util
import json
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest
import zstandard
from arrow_tools import TOOLS

import dataset_rt as drt

GOLDEN = Path(__file__).resolve().parents[1] / "golden"
_spec = importlib.util.spec_from_file_location("golden_make", GOLDEN / "make.py")
make = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(make)

LAYOUTS = {
    "none": drt.ShardCompression(),
    "lz4 payload": drt.ShardCompression(algo="lz4"),
    "zstd payload": drt.ShardCompression(algo="zstd", level=3),
    "zstd dictionary": drt.ShardCompression(algo="zstd", level=3, dictionary_bytes=1024),
    "lz4 buffer": drt.ShardCompression(algo="lz4", scope="buffer"),
    "zstd buffer": drt.ShardCompression(algo="zstd", level=3, scope="buffer"),
}
ROWS = 400


class Rows:
    """Every stored type over several shards, half of it null, some payloads empty."""

    name = "größe 🙂"
    types = make.EveryTypeSource.types

    def __init__(self):
        self.schema = self.types

    def batch(self):
        values = make.EveryTypeSource.values.values()
        columns = [
            pa.array([held[(i + i // 7) % 4] for i in range(ROWS)], kind) for kind, held in values
        ]
        payload = [f'{{"row": {i}, "kind": "{i % 13}"}}'.encode() * (i % 5) for i in range(ROWS)]
        schema = self.types.append(pa.field("payload", pa.large_binary(), nullable=False))
        return pa.record_batch([*columns, pa.array(payload, pa.large_binary())], schema=schema)

    def __iter__(self):
        yield self.batch()


def expected_cells():
    batch = Rows().batch()
    return dict(zip(batch.schema.names, map(make.texts, batch.columns), strict=True))


@pytest.fixture(scope="module")
def caches(tmp_path_factory):
    """One cache a layout, each of several shards."""
    root = tmp_path_factory.mktemp("layouts")
    found = {}
    with drt.DatasetRuntime(num_workers=1) as runtime:
        for layout, compression in LAYOUTS.items():
            config = drt.WriterConfig(
                shard_compression=compression, max_shard_bytes=20_000, show_progress=False
            )
            (result,) = runtime.write_cache(Rows(), root / layout, writer_config=config)
            found[layout] = result.path
    return found


def raw(frame, algo, dictionary):
    """A stored payload as the source gave it, by the lines that docs/tools.md shows."""
    if algo == "none" or not frame:
        return frame
    if dictionary:
        trained = zstandard.ZstdCompressionDict(dictionary)
        return zstandard.ZstdDecompressor(dict_data=trained).decompress(frame)
    return pa.input_stream(pa.py_buffer(frame), compression=algo).read()


def shards(cache):
    manifest = json.loads((cache / "manifest.json").read_text())
    return [cache / shard["path"] for shard in manifest["shards"]]


def frames_in(table, cache):
    """Codec of the single payloads, by the marks that the file itself carries."""
    marks = pa.ipc.open_file(shards(cache)[0]).schema.metadata
    if marks[b"dataset_rt.codec_scope"] == b"buffer":
        return "none", None
    dictionary = cache / "dictionary.bin"
    has_dictionary = b"dataset_rt.dictionary_blake3" in marks
    assert has_dictionary == dictionary.exists()
    return marks[b"dataset_rt.codec"].decode(), has_dictionary and dictionary.read_bytes()


def cells(table, types):
    """Cells of a tool's table as text, once each column has its stored type again."""
    found = {}
    for name, column in zip(table.schema.names, table.columns, strict=True):
        kind = types.field(name).type
        if pa.types.is_null(kind):
            assert column.null_count == len(column)
            found[name] = [None] * len(column)
        else:
            found[name] = make.texts(column.cast(kind).combine_chunks())
    return found


def check_cache(cache, tool, types, expected):
    read = TOOLS[tool]
    marked = types.insert(0, pa.field("sample_id", pa.uint64()))
    marked = marked.append(pa.field("payload", pa.large_binary()))
    whole = {name: [] for name in marked.names}
    for shard in shards(cache):
        table = read(shard)
        table.validate(full=True)
        assert table.schema.names == marked.names
        if tool.startswith("datafusion"):
            table = table.sort_by("sample_id")
        for name, column in cells(table, marked).items():
            whole[name].extend(column)
    assert whole.pop("sample_id") == [str(i) for i in range(len(expected["payload"]))]
    algo, dictionary = frames_in(table, cache)
    whole["payload"] = [
        raw(bytes.fromhex(frame), algo, dictionary).hex() for frame in whole["payload"]
    ]
    assert whole == expected
    stored = {name: column for name, column in expected.items() if name != "payload"}
    if stored:
        assert cells(read(cache / "metadata.arrow"), types) == stored


@pytest.mark.parametrize("tool", TOOLS)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_tool_finds_what_the_source_gave(caches, layout, tool):
    assert len(shards(caches[layout])) > 1
    check_cache(caches[layout], tool, Rows.types, expected_cells())


@pytest.mark.parametrize("kind", [make.BareSource, make.EmptySource], ids=lambda k: k.__name__)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_tools_read_shards_without_columns_and_without_payload_bytes(tmp_path, layout, kind):
    config = drt.WriterConfig(
        shard_compression=LAYOUTS[layout], max_shard_bytes=3000, show_progress=False
    )
    with drt.DatasetRuntime(num_workers=1) as runtime:
        (result,) = runtime.write_cache(kind("odd"), tmp_path, writer_config=config)
    for tool in TOOLS:
        check_cache(result.path, tool, kind.types, make.cells(kind("odd")))


@pytest.mark.parametrize("tool", TOOLS)
def test_a_tool_finds_the_cells_of_every_golden_cache(tool):
    checked = 0
    for file in make.CELLS.iterdir():
        content = json.loads(file.read_text())
        for name in content["caches"]:
            kind, _ = make.CACHES[name]
            check_cache(make.ROOT / name, tool, kind.types, content["cells"])
            checked += 1
    assert checked == len(make.CACHES)


# What docs/tools.md says of each tool; string, large and view forms of one type count as equal.
CHANGES = {
    "polars": {"timestamp s": "timestamp[ms]", "zoned s": "timestamp[ms, tz=Europe/Berlin]"},
    "duckdb": {"zoned s": "timestamp[us, tz=ZONE]", "zoned ns": "timestamp[ns, tz=ZONE]"},
}


@pytest.mark.parametrize("tool", TOOLS)
def test_types_that_a_tool_changes_are_documented(tool):
    zone = duckdb.sql("SELECT current_setting('TimeZone')").fetchall()[0][0]
    found = {}
    for field in TOOLS[tool](make.ROOT / "every_type/metadata.arrow").schema:
        kind = str(field.type).removeprefix("large_").removesuffix("_view")
        stored = str(make.EveryTypeSource.types.field(field.name).type).removeprefix("large_")
        if kind != stored:
            found[field.name] = kind
    expected = CHANGES.get(tool.split("_")[0], {})
    assert found == {name: kind.replace("ZONE", zone) for name, kind in expected.items()}


def test_duckdb_refuses_a_table_without_columns():
    file = make.ROOT / "no_columns/metadata.arrow"
    with pytest.raises(duckdb.InvalidInputException, match="at least one column"):
        TOOLS["duckdb_over_table"](file)
    assert TOOLS["polars_read"](file).shape == TOOLS["pandas_feather"](file).shape == (0, 0)
