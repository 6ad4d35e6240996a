"""What update_metadata refuses: the message names column, row and values, and nothing changes."""

import math

import polars as pl
import pyarrow as pa
import pytest
from conftest import QUIET, numbered, opened, written

import dataset_rt as drt


@pytest.fixture
def dataset(runtime, cache):
    return opened(runtime, cache)


@pytest.fixture
def table(dataset):
    return dataset.get_metadata()


def replaced(table, column, row, value, dtype=None):
    """The table with one cell changed."""
    values = table[column].to_list()
    values[row] = value
    return table.with_columns(pl.Series(column, values, dtype=dtype or table[column].dtype))


def refused(dataset, table, *parts, kind=drt.InvalidInputError, **options):
    """Pass a table that must be refused for a reason naming `parts`; nothing may change."""
    dataset.update_metadata(dataset.get_metadata().head(20))
    before, epoch = dataset.get_metadata(), dataset.epoch
    with pytest.raises(kind) as caught:
        dataset.update_metadata(table, **options)
    assert dataset.get_metadata().equals(before)
    assert (len(dataset), dataset.epoch) == (20, epoch)
    assert [sample.sample_id for sample in dataset] == list(range(20))
    message = str(caught.value)
    for part in parts:
        assert str(part) in message, message


@pytest.mark.parametrize("column", ["cache_id", "sample_id", "weight", "number", "label"])
def test_a_missing_column_is_refused(dataset, table, column):
    refused(dataset, table.drop(column), column)


def test_a_repeated_column_is_refused(dataset, table):
    arrow = table.to_arrow()
    refused(dataset, arrow.append_column("label", arrow["label"]), "label")


def test_a_payload_column_is_refused(dataset, table):
    refused(dataset, table.with_columns(payload=pl.lit(b"")), "payload")


def test_a_table_without_rows_is_refused(dataset, table):
    refused(dataset, table.head(0), "row")


BAD_WEIGHTS = {
    "zero": 0.0,
    "negative zero": -0.0,
    "negative": -1.5,
    "nan": math.nan,
    "infinite": math.inf,
    "minus infinite": -math.inf,
    "null": None,
}


@pytest.mark.parametrize("kind", BAD_WEIGHTS)
def test_a_weight_that_is_no_positive_number_is_refused(dataset, table, kind):
    refused(dataset, replaced(table, "weight", 7, BAD_WEIGHTS[kind]), "weight", "row 7")


def test_a_weight_of_zero_is_refused_with_the_advice_to_filter(dataset, table):
    refused(dataset, replaced(table, "weight", 7, 0.0), "filter")


@pytest.mark.parametrize(
    "value", [pl.lit("1"), pl.lit(True), pl.lit(1).cast(pl.Date), pl.concat_list(1.0)], ids=str
)
def test_weights_that_are_no_numbers_are_refused(dataset, table, value):
    refused(dataset, table.with_columns(weight=value), "weight")


@pytest.mark.parametrize("column", ["cache_id", "sample_id"])
def test_a_null_identity_is_refused(dataset, table, column):
    refused(dataset, replaced(table, column, 7, None), column, "row 7")


@pytest.mark.parametrize("column", ["cache_id", "sample_id"])
@pytest.mark.parametrize("value", [0.5, -1.0, math.nan, math.inf, 2.0**53, 1e300])
def test_a_float_identity_that_is_no_exact_integer_is_refused(dataset, table, column, value):
    refused(dataset, replaced(table, column, 7, value, pl.Float64), column, "row 7")


def test_a_negative_identity_is_refused(dataset, table):
    refused(dataset, replaced(table, "sample_id", 7, -1, pl.Int64), "sample_id", "row 7", -1)


@pytest.mark.parametrize("row_id", [50, 2**32, 2**64 - 1])
def test_an_unknown_row_is_refused(dataset, table, row_id):
    refused(dataset, replaced(table, "sample_id", 7, row_id), "row 7", row_id)


def test_an_unknown_cache_is_refused(dataset, table):
    refused(dataset, replaced(table, "cache_id", 7, 5), "row 7", "cache_id", 5)


def test_identities_as_text_are_refused(dataset, table):
    refused(dataset, table.with_columns(pl.col("sample_id").cast(pl.String)), "sample_id")


def test_a_table_saved_with_another_cache_is_refused(runtime, dataset, tmp_path):
    other = written(runtime, tmp_path, numbered(49), name="other")
    refused(dataset, opened(runtime, other).get_metadata(), "cache_id")


CHANGED_CELLS = [
    ("number", 12, -5),
    ("number", 12, None),
    ("score", 12, 0.125),
    ("score", 12, math.nan),
    ("label", 12, "other"),
    ("label", 12, None),
]


@pytest.mark.parametrize(("column", "row", "value"), CHANGED_CELLS)
def test_a_changed_stored_value_is_refused_with_both_ways_out(dataset, table, column, row, value):
    changed = replaced(table, column, row, value)
    refused(dataset, changed, column, f"row {row}", "edited", "column", table[column][row])


def test_a_shifted_column_is_refused(dataset, table):
    refused(dataset, table.with_columns(pl.col("label").shift(1, fill_value="l0")), "label")


def test_the_row_named_is_the_row_of_the_table_passed(dataset, table):
    changed = replaced(table.reverse(), "number", 3, -5)
    refused(dataset, changed, "row 3", 46, -5)


def test_the_row_named_is_right_in_a_later_chunk(dataset, table):
    arrow = replaced(table, "number", 33, -5).to_arrow()
    chunked = pa.concat_tables([arrow[:10], arrow[10:30], arrow[30:]])
    refused(dataset, chunked, "row 33")


def test_only_the_columns_named_in_edited_may_differ(dataset, table):
    both = replaced(replaced(table, "number", 3, -5), "label", 4, "x")
    refused(dataset, both, "label", "row 4", edited=["number"])


@pytest.mark.parametrize("name", ["unknown", "weight", "cache_id", "sample_id"])
def test_edited_must_name_stored_columns(dataset, table, name):
    refused(dataset, table, name, edited=[name])


def test_edited_must_be_a_list(dataset, table):
    refused(dataset, table, "edited", kind=TypeError, edited="label")


def test_an_edited_column_keeps_its_type(dataset, table):
    changed = table.with_columns(pl.col("number").cast(pl.String))
    refused(dataset, changed, "number", edited=["number"])


def test_nan_equals_nan_in_a_stored_column(runtime, tmp_path):
    path = written(runtime, tmp_path, [(b"", {"v": math.nan}), (b"", {"v": None})])
    dataset = opened(runtime, path)
    dataset.update_metadata(dataset.get_metadata().reverse())
    assert dataset[0].metadata == {"v": None}


def test_null_does_not_equal_nan_in_a_stored_column(runtime, tmp_path):
    path = written(runtime, tmp_path, [(b"", {"v": math.nan}), (b"", {"v": None})])
    dataset = opened(runtime, path)
    swapped = dataset.get_metadata().with_columns(v=pl.Series([None, math.nan]))
    with pytest.raises(drt.InvalidInputError, match='"v"'):
        dataset.update_metadata(swapped)


@pytest.mark.parametrize("dtype", [pl.Int8, pl.UInt8, pl.UInt64], ids=str)
def test_another_integer_width_is_accepted_when_lossless(dataset, table, dtype):
    dataset.update_metadata(table.with_columns(pl.col("number").cast(dtype)))
    assert dataset.get_metadata()["number"].to_list() == list(range(50))


def test_string_forms_of_other_libraries_are_the_same_type(dataset, table):
    arrow = table.to_arrow()
    place = arrow.schema.get_field_index("label")
    for kind in (pa.string(), pa.large_string(), pa.string_view()):
        dataset.update_metadata(arrow.set_column(place, "label", arrow["label"].cast(kind)))


OTHER_TYPES = [("number", pl.Float64), ("score", pl.String), ("number", pl.Boolean)]


@pytest.mark.parametrize(("column", "dtype"), OTHER_TYPES)
def test_another_type_of_a_stored_column_is_refused(dataset, table, column, dtype):
    refused(dataset, table.with_columns(pl.col(column).cast(dtype)), column)


NO_TABLES = [None, 5, "table", {"a": [1]}, [1, 2], pl.Series([1]), pl.DataFrame]


@pytest.mark.parametrize("value", NO_TABLES, ids=lambda value: type(value).__name__)
def test_what_is_no_table_is_a_type_error(dataset, value):
    refused(dataset, value, kind=TypeError)


def test_a_lazy_frame_is_refused_with_the_advice_to_collect(dataset, table):
    refused(dataset, table.lazy(), "collect", kind=TypeError)


def test_a_table_whose_reader_fails_changes_nothing(dataset, table):
    batches = table.to_arrow().to_batches()

    def failing():
        yield batches[0].slice(0, 5)
        raise OSError("network gone")

    reader = pa.RecordBatchReader.from_batches(batches[0].schema, failing())
    refused(dataset, reader, "network gone", kind=drt.DatasetRTError)


def test_a_running_iterator_survives_a_refused_table(dataset, table):
    iterator = iter(dataset)
    next(iterator)
    with pytest.raises(drt.InvalidInputError):
        dataset.update_metadata(table.drop("weight"))
    assert [sample.sample_id for sample in iterator] == list(range(1, 50))


def test_offsets_past_their_buffer_are_refused(runtime, tmp_path):
    dataset = opened(runtime, written(runtime, tmp_path, numbered(2)))
    table = dataset.get_metadata().to_arrow()
    offsets = bytearray(b"".join(n.to_bytes(8, "little") for n in (0, 1, 2)))
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(b"ab")]
    broken = pa.Array.from_buffers(pa.large_binary(), 2, buffers)
    offsets[16:] = (10**12).to_bytes(8, "little")
    with pytest.raises(drt.InvalidInputError):
        dataset.update_metadata(table.append_column("extra", broken))
    assert len(list(dataset)) == 2


def test_names_that_arrow_cannot_carry_are_refused(runtime, tmp_path):
    dataset = opened(runtime, written(runtime, tmp_path, numbered(3)))
    table = pa.table(dataset.get_metadata())
    for name, text in {"a\0b": "has a NUL in its name", "": "empty name"}.items():
        column = pa.array([1, 2, 3])
        with pytest.raises(drt.InvalidInputError, match=text):
            dataset.update_metadata(table.append_column(name, column))
        if name:
            source = drt.ArrowSource("nul", pa.table({"payload": [b"a"], name: [1]}))
            (result,) = runtime.write_cache(source, tmp_path, writer_config=QUIET)
            assert text in result.message
    with pytest.raises(drt.InvalidInputError, match="no Unicode text"):
        dataset.to_arrow(["\ud800"])
