"""The table of types in the documents is what the library does, line by line."""

import re
from decimal import Decimal
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from conftest import QUIET, numbered, opened, written

import dataset_rt as drt

DOCUMENT = Path(__file__).resolve().parents[2] / "docs/reference/types.md"
ROWS = 3
LIST_VALUES = [[1, 2], None, [3, 4]]
BYTES = [b"abcd", b"", b"x" * 20]


def union(make):
    return make(pa.array([0] * ROWS, pa.int8()))


COLUMNS = {
    "null": pa.nulls(ROWS),
    "bool": pa.array([True, None, False]),
    **{
        str(kind): pa.array([1, None, 3], kind)
        for kind in (
            *(pa.int8(), pa.int16(), pa.int32(), pa.int64()),
            *(pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()),
        )
    },
    "float16": pa.array(np.array([1.5, 2, 3], "f2")),
    "float32": pa.array([1.5, None, 3], pa.float32()),
    "float64": pa.array([1.5, None, 3], pa.float64()),
    "string": pa.array(["a", None, "b"], pa.string()),
    "large_string": pa.array(["a", None, "b"], pa.large_string()),
    "string_view": pa.array(["a", None, "b"], pa.string_view()),
    "binary": pa.array(BYTES, pa.binary()),
    "large_binary": pa.array(BYTES, pa.large_binary()),
    "binary_view": pa.array(BYTES, pa.binary_view()),
    "fixed_size_binary": pa.array([b"ab", b"cd", b"ef"], pa.binary(2)),
    "date32": pa.array([1, None, 3], pa.date32()),
    "date64": pa.array([86_400_000, None, 0], pa.date64()),
    **{
        f"timestamp[{unit}]": pa.array([1, None, 3], pa.timestamp(unit))
        for unit in ("s", "ms", "us", "ns")
    },
    "timestamp[us, Europe/Berlin]": pa.array([1, None, 3], pa.timestamp("us", "Europe/Berlin")),
    "timestamp[us, +05:30]": pa.array([1, None, 3], pa.timestamp("us", "+05:30")),
    "dictionary of string": pa.array(["a", None, "a"]).dictionary_encode(),
    "dictionary of binary": pa.array([b"a", b"b", b"a"]).dictionary_encode(),
    "dictionary of int64": pa.array([1, None, 1]).dictionary_encode(),
    "run_end_encoded of string": pa.RunEndEncodedArray.from_arrays([2, 3], ["a", "b"]),
    "uuid": pa.array([b"x" * 16, b"\0" * 16, b"y" * 16], pa.uuid()),
    "time32": pa.array([1, None, 3], pa.time32("s")),
    "time64": pa.array([1, None, 3], pa.time64("us")),
    "duration": pa.array([1, None, 3], pa.duration("us")),
    "month_day_nano_interval": pa.array([(1, 2, 3), None, None], pa.month_day_nano_interval()),
    "decimal32": pa.array([Decimal("1.50"), None, None], pa.decimal32(5, 2)),
    "decimal64": pa.array([Decimal("1.50"), None, None], pa.decimal64(5, 2)),
    "decimal128": pa.array([Decimal("1.50"), None, None], pa.decimal128(5, 2)),
    "decimal256": pa.array([Decimal("1.50"), None, None], pa.decimal256(50, 2)),
    "list": pa.array(LIST_VALUES, pa.list_(pa.int64())),
    "large_list": pa.array(LIST_VALUES, pa.large_list(pa.int64())),
    "fixed_size_list": pa.array(LIST_VALUES, pa.list_(pa.int64(), 2)),
    "list_view": pa.array(LIST_VALUES, pa.list_view(pa.int64())),
    "large_list_view": pa.array(LIST_VALUES, pa.large_list_view(pa.int64())),
    "struct": pa.array([{"a": 1}, None, {"a": 3}]),
    "map": pa.array([[("a", 1)], None, []], pa.map_(pa.string(), pa.int64())),
    "sparse_union": union(lambda ids: pa.UnionArray.from_sparse(ids, [pa.array([1, 2, 3])])),
    "dense_union": union(
        lambda ids: pa.UnionArray.from_dense(
            ids, pa.array([0, 1, 2], pa.int32()), [pa.array([1, 2, 3])]
        )
    ),
}


def documented():
    lines = {}
    for line in DOCUMENT.read_text().splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) == 4 and cells[0] not in ("Arrow type", "---"):
            # A comma within brackets belongs to the type.
            for name in re.split(r", (?![^\[]*\])", cells[0]):
                lines[name] = cells[1:]
    return lines


LINES = documented()


def test_every_type_has_a_line_and_every_line_a_type():
    assert LINES.keys() == COLUMNS.keys()


def write(runtime, directory, table):
    (result,) = runtime.write_cache(drt.ArrowSource("words", table), directory, writer_config=QUIET)
    return result


@pytest.mark.parametrize("name", COLUMNS)
def test_a_stored_column_becomes_what_its_line_says(runtime, tmp_path, name):
    expected = LINES[name][1]
    table = pa.table({"v": COLUMNS[name], "payload": [b""] * ROWS})
    result = write(runtime, tmp_path, table)
    if expected == "refused":
        assert isinstance(result.exception, drt.UnsupportedError), result
        assert 'column "v"' in result.message
        assert re.search("cast|store|make|encode|convert|decode", result.message)
        assert not list(tmp_path.iterdir())
        return
    kind = drt.open_cache(result.path).manifest["columns"][0]["type"]
    assert kind == (name if expected == "the same" else expected)
    dataset = opened(runtime, result.path)
    dataset.update_metadata(dataset.get_metadata().reverse())
    assert len(list(dataset)) == ROWS


@pytest.mark.parametrize("name", COLUMNS)
def test_a_payload_is_taken_or_refused_as_its_line_says(runtime, tmp_path, name):
    result = write(runtime, tmp_path, pa.table({"payload": COLUMNS[name]}))
    if LINES[name][0] == "refused":
        assert isinstance(result.exception, drt.InvalidInputError), result
        assert '"payload"' in result.message
        return
    data = [sample.data for sample in opened(runtime, result.path)]
    shown = COLUMNS[name]
    shown = shown.storage if isinstance(shown, pa.ExtensionArray) else shown
    assert data == shown.to_pylist()


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    with drt.DatasetRuntime(num_workers=1) as runtime:
        yield opened(runtime, written(runtime, tmp_path_factory.mktemp("caches"), numbered(ROWS)))


@pytest.mark.parametrize("name", COLUMNS)
def test_an_extra_column_is_taken_or_refused_as_its_line_says(dataset, name):
    table = dataset.get_metadata().to_arrow()
    table = table.select([n for n in table.column_names if n != "extra"])
    extended = table.append_column("extra", COLUMNS[name])
    if LINES[name][2] == "refused":
        with pytest.raises(drt.UnsupportedError, match="extra"):
            dataset.update_metadata(extended)
        return
    dataset.update_metadata(extended)
    assert len(dataset.get_metadata()["extra"]) == ROWS
    assert all("extra" in sample.metadata for sample in dataset)
    dataset.update_metadata(dataset.get_metadata())
