"""A bad sample fails its source with a message that says where and what, and leaves nothing."""

import ctypes
from collections import OrderedDict
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from types import MappingProxyType
from zoneinfo import ZoneInfo

import numpy as np
import pytest
from conftest import ListSource, opened, refusal, written

import dataset_rt as drt

NAIVE = datetime(2020, 1, 1)
ZONED = datetime(2020, 1, 1, tzinfo=UTC)
BERLIN = datetime(2020, 1, 1, tzinfo=ZoneInfo("Europe/Berlin"))

# first value, bad value, word for the expected type, word for the found one
TYPE_CHANGES = {
    "int to str": (1, "x", "int64", "str"),
    "int to float": (1, 1.0, "int64", "float"),
    "int to bool": (1, True, "int64", "bool"),
    "bool to int": (True, 1, "bool", "int"),
    "bool to float": (True, 1.0, "bool", "float"),
    "float to bool": (1.0, True, "float64", "bool"),
    "float to str": (1.0, "1.0", "float64", "str"),
    "str to int": ("1", 1, "utf8", "int"),
    "date to datetime": (NAIVE.date(), NAIVE, "date32", "datetime"),
    "datetime to date": (NAIVE, NAIVE.date(), "timestamp", "date"),
    "naive to zoned": (NAIVE, ZONED, "timestamp", "UTC"),
    "zoned to naive": (ZONED, NAIVE, "UTC", "datetime"),
    "zone to zone": (ZONED, BERLIN, "UTC", "Europe/Berlin"),
}


def refusal_of_value(runtime, directory, *values):
    error = refusal(runtime, directory, [(b"", {"kept": 1, "v": value}) for value in values])
    assert isinstance(error.exception, drt.InvalidInputError), error
    assert '"words"' in error.message
    assert f"sample {len(values) - 1}" in error.message
    assert '"v"' in error.message
    return error.message


@pytest.mark.parametrize("change", TYPE_CHANGES)
def test_a_change_of_type_or_zone_is_refused(runtime, tmp_path, change):
    first, bad, expected, found = TYPE_CHANGES[change]
    message = refusal_of_value(runtime, tmp_path, first, None, bad)
    assert expected in message
    assert found in message


@pytest.mark.parametrize("exact", [0, -1, 2**53, 2**62, -(2**63)])
def test_an_int_that_float64_holds_is_accepted_in_a_float_column(runtime, tmp_path, exact):
    path = written(runtime, tmp_path, [(b"", {"v": 0.5}), (b"", {"v": exact})])
    value = opened(runtime, path)[1].metadata["v"]
    assert (type(value), value) == (float, exact)


@pytest.mark.parametrize("inexact", [2**53 + 1, 2**63 - 1, -(2**53) - 1])
def test_an_int_that_float64_cannot_hold_is_refused_in_a_float_column(runtime, tmp_path, inexact):
    assert str(inexact) in refusal_of_value(runtime, tmp_path, 0.5, inexact)


@pytest.mark.parametrize("value", [2**63, -(2**63) - 1, 10**40, np.uint64(2**63)], ids=str)
def test_an_int_outside_int64_is_refused(runtime, tmp_path, value):
    assert "int64" in refusal_of_value(runtime, tmp_path, value)


@pytest.mark.parametrize("position", [0, 1])
def test_a_lone_surrogate_is_refused(runtime, tmp_path, position):
    assert "surrogate" in refusal_of_value(runtime, tmp_path, *["fine"] * position, "a\ud800b")


UNSUPPORTED = {
    "bytes": b"x",
    "list": [1],
    "tuple": (1,),
    "dict": {"a": 1},
    "set": {1},
    "Decimal": Decimal(1),
    "complex": 1j,
    "timedelta": timedelta(1),
    "time": NAIVE.time(),
    "Path": Path("x"),
    "ndarray": np.zeros(1),
    "object": object(),
}


@pytest.mark.parametrize("kind", UNSUPPORTED)
def test_an_unsupported_type_is_refused_by_name(runtime, tmp_path, kind):
    value = UNSUPPORTED[kind]
    assert type(value).__name__ in refusal_of_value(runtime, tmp_path, value)


def test_a_missing_key_is_refused(runtime, tmp_path):
    error = refusal(runtime, tmp_path, [(b"", {"a": 1, "b": 2}), (b"", {"a": 1})])
    assert isinstance(error.exception, drt.InvalidInputError)
    assert all(part in error.message for part in ('"words"', "sample 1", '"b"'))


def test_an_unknown_key_is_refused(runtime, tmp_path):
    error = refusal(runtime, tmp_path, [(b"", {"a": 1}), (b"", {"a": 1, "b": 2})])
    assert isinstance(error.exception, drt.InvalidInputError)
    assert all(part in error.message for part in ('"words"', "sample 1", '"b"'))


def test_a_swapped_key_is_refused(runtime, tmp_path):
    error = refusal(runtime, tmp_path, [(b"", {"a": 1}), (b"", {"b": 1})])
    assert '"a"' in error.message or '"b"' in error.message


def test_later_samples_may_order_their_keys_differently(runtime, tmp_path):
    path = written(runtime, tmp_path, [(b"", {"a": 1, "b": 2}), (b"", {"b": 4, "a": 3})])
    assert list(opened(runtime, path)[1].metadata.items()) == [("a", 3), ("b", 4)]


@pytest.mark.parametrize("mapping", [OrderedDict, MappingProxyType])
def test_any_mapping_is_accepted_as_metadata(runtime, tmp_path, mapping):
    path = written(runtime, tmp_path, [(b"", mapping({"a": 1}))])
    assert opened(runtime, path)[0].metadata == {"a": 1}


@pytest.mark.parametrize("metadata", [None, [("a", 1)], "a", 1])
def test_metadata_that_is_no_mapping_is_refused(runtime, tmp_path, metadata):
    error = refusal(runtime, tmp_path, [(b"", metadata)])
    assert isinstance(error.exception, drt.InvalidInputError)
    assert "sample 0" in error.message


@pytest.mark.parametrize("key", ["cache_id", "sample_id", "weight", "payload"])
def test_a_reserved_column_name_is_refused(runtime, tmp_path, key):
    error = refusal(runtime, tmp_path, [(b"", {key: 1})])
    assert isinstance(error.exception, drt.InvalidInputError)
    assert f'"{key}"' in error.message
    assert "reserved" in error.message


def test_a_key_that_is_no_str_is_named_by_type_and_place(runtime, tmp_path):
    error = refusal(runtime, tmp_path, [(b"", {"label": 1, 7: 2})])
    assert "of type int, number 1 of its mapping; expected a str" in error.message


@pytest.mark.parametrize("key", ["", 1, None, b"a", "a\ud800"])
def test_a_column_name_that_is_no_text_is_refused(runtime, tmp_path, key):
    error = refusal(runtime, tmp_path, [(b"", {key: 1})])
    assert isinstance(error.exception, drt.InvalidInputError)
    assert "sample 0" in error.message


ODD_NAMES = ["a.b", " a ", "a/b", "..", "🎉", "é", "e\u0301", "A", "a", "x" * 1000, "Weight", "\n"]


def test_column_names_are_kept_exactly(runtime, tmp_path):
    path = written(runtime, tmp_path, [(b"", dict.fromkeys(ODD_NAMES, 1))])
    assert drt.open_cache(path).metadata().columns == ODD_NAMES
    assert list(opened(runtime, path)[0].metadata) == ODD_NAMES


NO_SAMPLES = [5, None, b"bytes", {"data": b"", "metadata": {}}, (b"",), (b"", {}, 1), "ab"]


@pytest.mark.parametrize("item", NO_SAMPLES, ids=repr)
def test_what_is_no_sample_is_refused(runtime, tmp_path, item):
    class Yielding(ListSource):
        def __iter__(self):
            yield item

    (error,) = runtime.write_cache(Yielding("words", []), tmp_path)
    assert isinstance(error.exception, drt.InvalidInputError), error
    assert "sample 0" in error.message
    assert list(tmp_path.iterdir()) == []


def test_a_failure_after_many_shards_leaves_nothing(runtime, tmp_path):
    config = drt.WriterConfig(max_shard_bytes=4096, show_progress=False, resume=False)
    samples = [(b"x" * 1000, {"i": i}) for i in range(200)] + [(b"", {"i": "text"})]
    (error,) = runtime.write_cache(ListSource("words", samples), tmp_path, writer_config=config)
    assert "sample 200" in error.message
    assert list(tmp_path.iterdir()) == []


def test_a_source_without_samples_is_refused(runtime, tmp_path):
    error = refusal(runtime, tmp_path, [])
    assert isinstance(error.exception, drt.InvalidInputError)
    assert '"words"' in error.message


def test_a_mapping_that_raises_is_the_sources_own_failure(runtime, tmp_path):
    class Broken(dict):
        def items(self):
            raise OSError("disk gone")

        keys = __iter__ = __getitem__ = items

    error = refusal(runtime, tmp_path, [(b"", MappingProxyType(Broken(a=1)))])
    assert "disk gone" in error.message


POINTERS = {
    "strings of C": (ctypes.c_char_p * 2)(b"a", b"b"),
    "wide strings": (ctypes.c_wchar_p * 1)("a"),
    "void pointers": (ctypes.c_void_p * 1)(1),
    "functions": (ctypes.CFUNCTYPE(None) * 1)(),
    "a field": np.zeros(1, dtype=[("a", "i4"), ("b", "O")]),
}


@pytest.mark.parametrize("kind", POINTERS)
def test_addresses_are_no_payload(runtime, tmp_path, kind):
    error = refusal(runtime, tmp_path, [(memoryview(POINTERS[kind]), {})])
    assert isinstance(error.exception, drt.InvalidInputError), error
    assert "of pointers" in error.message
