"""Parquet and CSV as sources: payload columns, files that columns name, staleness, damage."""

import gzip
import json
import os
import pickle
import subprocess
import sys

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from conftest import run_script
from source_tools import (
    assert_begins_anywhere,
    assert_resumes,
    is_stale,
    refused,
    samples_of,
    shout,
    write,
)

import dataset_rt as drt
from dataset_rt.sources import CsvSource, ParquetSource


def images(count, first=0):
    return pa.table(
        {
            "image": [f"image {i}".encode() * (i % 5 + 1) for i in range(first, first + count)],
            "label": pa.array([i % 7 for i in range(first, first + count)], pa.int16()),
            "split": pa.array(["train", "test"] * (count // 2)).dictionary_encode(),
        }
    )


@pytest.fixture
def parquet(tmp_path):
    """Three files of 300 rows in small row groups."""
    folder = tmp_path / "tables"
    folder.mkdir()
    for part in range(3):
        table = images(100, part * 100)
        pq.write_table(table, folder / f"part-{part}.parquet", row_group_size=17)
    (folder / "_metadata.parquet").write_bytes(b"left out")
    return folder


@pytest.fixture
def labels(tmp_path):
    """A CSV that names 300 files."""
    folder = tmp_path / "labelled"
    (folder / "files").mkdir(parents=True)
    lines = ["file,label,note"]
    for i in range(300):
        (folder / "files" / f"{i}.bin").write_bytes(f"file {i}".encode() * (i % 5 + 1))
        lines.append(f'files/{i}.bin,{i % 7},"line one\nline, two {i}"')
    (folder / "labels.csv").write_text("\n".join(lines) + "\n")
    return folder / "labels.csv"


def test_an_interrupted_parquet_goes_on(parquet, tmp_path, runtime):
    cache = assert_resumes(
        runtime, lambda: ParquetSource("p", parquet, payload="image"), tmp_path, 300
    )
    assert cache.schema.names == ["label", "split"]
    assert cache.metadata()["label"].dtype == pl.Int16
    assert bytes(cache.payload(123)) == b"image 123" * 4


def test_a_transformed_parquet_goes_on(parquet, tmp_path, runtime):
    def make():
        return ParquetSource("p", parquet, payload="image", transform=shout, transform_version="1")

    assert make().schema is None
    cache = assert_resumes(runtime, make, tmp_path, 300)
    assert bytes(cache.payload(299)) == b"IMAGE 299" * 5
    item = next(iter(make()))
    assert pickle.loads(pickle.dumps(item)).sample.data == b"image 0"


def test_an_interrupted_csv_goes_on(labels, tmp_path, runtime):
    cache = assert_resumes(
        runtime, lambda: CsvSource("c", labels, payload_files="file"), tmp_path, 300
    )
    assert cache.metadata()["note"][299] == "line one\nline, two 299"
    assert bytes(cache.payload(299)) == b"file 299" * 5


def test_a_transformed_csv_reads_files_where_it_transforms(labels, tmp_path, runtime):
    def make():
        return CsvSource("c", labels, payload_files="file", transform=shout, transform_version="1")

    item = next(iter(make()))
    assert b"file 0" not in pickle.dumps(item)
    assert pickle.loads(pickle.dumps(make().transform))(item).data == b"FILE 0"
    assert_resumes(runtime, make, tmp_path, 300)


def test_tables_begin_anywhere(parquet, tmp_path, monkeypatch):
    places = [0, 1, 16, 17, 99, 100, 101, 199, 200, 299, 300]
    assert_begins_anywhere(lambda: ParquetSource("p", parquet, payload="image"), places)
    # Blocks that end within cells.
    monkeypatch.setattr("dataset_rt.sources.csv_files._BLOCK_BYTES", 701)
    for part in range(3):
        lines = [f'"text\nof, {i}",{i}' for i in range(part * 100, part * 100 + 100)]
        (tmp_path / f"{part}.csv").write_text("text,n\n" + "\n".join(lines))

    def csv():
        return CsvSource("c", sorted(tmp_path.glob("*.csv")), payload="text")

    assert samples_of(csv()) == [(b"text\nof, %d" % i, {"n": i}) for i in range(300)]
    assert_begins_anywhere(csv, places)


def test_several_csvs_in_order_and_compressed(tmp_path):
    (tmp_path / "a.csv").write_text("text,n\nx,1\n")
    with gzip.open(tmp_path / "b.csv.gz", "wt") as file:
        file.write("n,text\n2,y\n")
    source = CsvSource("c", tmp_path, payload="text")
    assert samples_of(source) == [(b"x", {"n": 1}), (b"y", {"n": 2})]
    backwards = [tmp_path / "b.csv.gz", tmp_path / "a.csv"]
    assert samples_of(CsvSource("c", backwards, payload="text"))[0] == (b"y", {"n": 2})


def test_globs_directories_and_lists_name_the_same_files(parquet):
    names = [parquet / f"part-{i}.parquet" for i in range(3)]
    of_list = ParquetSource("p", names, payload="image")
    of_glob = ParquetSource("p", parquet / "part-*.parquet", payload="image")
    of_folder = ParquetSource("p", parquet, payload="image")
    assert of_list.fingerprint == of_glob.fingerprint == of_folder.fingerprint
    assert len(of_folder) == 300
    reversed_ = ParquetSource("p", names[::-1], payload="image")
    assert reversed_.fingerprint != of_list.fingerprint
    with pytest.raises(drt.InvalidInputError, match="found twice"):
        ParquetSource("p", [names[0], parquet], payload="image")
    with pytest.raises(drt.NotFoundError, match="pattern that matches"):
        ParquetSource("p", parquet / "none-*.parquet", payload="image")


def test_structs_of_hugging_face_are_payloads(tmp_path):
    rows = [{"bytes": b"a", "path": "a.png"}, {"bytes": b"b", "path": None}]
    pq.write_table(pa.table({"image": rows, "y": [1, 2]}), tmp_path / "a.parquet")
    source = ParquetSource("p", tmp_path / "a.parquet", payload="image")
    assert samples_of(source) == [(b"a", {"y": 1}), (b"b", {"y": 2})]
    rows[1]["bytes"] = None
    pq.write_table(pa.table({"image": rows, "y": [1, 2]}), tmp_path / "a.parquet")
    with pytest.raises(drt.InvalidInputError, match=r"a\.parquet, row 1: expected bytes"):
        samples_of(ParquetSource("p", tmp_path / "a.parquet", payload="image"))


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.string_view()])
def test_text_becomes_its_utf8(tmp_path, kind):
    pq.write_table(pa.table({"t": pa.array(["ä", ""], kind)}), tmp_path / "a.parquet")
    found = samples_of(ParquetSource("p", tmp_path / "a.parquet", payload="t"))
    assert found == [("ä".encode(), {}), (b"", {})]


def test_extension_types_are_their_bytes(tmp_path):
    table = pa.table({"id": pa.array([b"0" * 16], pa.uuid()), "n": [1]})
    pq.write_table(table, tmp_path / "a.parquet")
    assert samples_of(ParquetSource("p", tmp_path / "a.parquet", payload="id"))[0][0] == b"0" * 16
    options = {"transform": shout, "transform_version": "1", "payload": "id"}
    assert samples_of(ParquetSource("p", tmp_path / "a.parquet", **options))[0][0] == b"0" * 16


def test_no_payload_column_says_the_ways(parquet, tmp_path, runtime):
    with pytest.raises(drt.InvalidInputError) as raised:
        ParquetSource("p", parquet)
    for way in ("payload='image'", "payload_files=", "payload=None"):
        assert way in str(raised.value)
    source = ParquetSource("p", parquet, payload=None, columns=["label"])
    path = write(runtime, source, tmp_path / "c").path
    assert drt.open_cache(path).payload(0).size == 0


@pytest.mark.parametrize(
    ("column", "message"),
    [
        (pa.array([[1]]), "has type list"),
        (pa.array([{"a": 1}]), "has type struct"),
        (pa.array([1], pa.duration("s")), "has type duration"),
        (pa.array([1]).cast(pa.decimal128(20, 1)), "has type decimal128"),
    ],
)
def test_columns_that_cannot_be_stored_are_named(tmp_path, column, message):
    table = pa.table({"payload": [b"a"], "bad": column, "good": [1]})
    pq.write_table(table, tmp_path / "a.parquet")
    with pytest.raises(drt.InvalidInputError, match=rf"column 'bad' {message}.*columns=\["):
        ParquetSource("p", tmp_path / "a.parquet")
    found = samples_of(ParquetSource("p", tmp_path / "a.parquet", columns=["good"]))
    assert found == [(b"a", {"good": 1})]


def as_text(sample):
    metadata = {name: json.dumps(value, default=str) for name, value in sample.metadata.items()}
    return drt.CacheInput(sample.data, metadata)


def test_a_transform_gets_columns_that_cannot_be_stored(tmp_path, runtime):
    table = pa.table(
        {
            "payload": [b"a"],
            "boxes": [[[1, 2], [3]]],
            "camera": [{"make": "x", "iso": None}],
            "price": pa.array([1]).cast(pa.decimal128(20, 1)),
        }
    )
    pq.write_table(table, tmp_path / "a.parquet")
    source = ParquetSource("p", tmp_path / "a.parquet", transform=as_text, transform_version="1")
    made = {"boxes": "[[1, 2], [3]]", "camera": '{"make": "x", "iso": null}', "price": '"1.0"'}
    assert samples_of(source) == [(b"a", made)]
    config = drt.WriterConfig(num_processes=2)
    (result,) = runtime.write_cache(source, tmp_path / "caches", writer_config=config)
    assert drt.open_cache(result.path).metadata().to_dicts() == [made]


def test_reserved_and_unknown_columns_are_named(tmp_path):
    table = pa.table({"payload": [b"a"], "weight": [1.0]})
    pq.write_table(table, tmp_path / "a.parquet")
    with pytest.raises(drt.InvalidInputError, match="'weight', the name is reserved"):
        ParquetSource("p", tmp_path / "a.parquet")
    with pytest.raises(drt.InvalidInputError, match="expected one column 'x', found 0"):
        ParquetSource("p", tmp_path / "a.parquet", columns=["x"])
    with pytest.raises(drt.InvalidInputError, match="is the payload already"):
        ParquetSource("p", tmp_path / "a.parquet", columns=["payload"])


def test_files_of_other_columns_are_refused(parquet, tmp_path, runtime):
    table = images(10).set_column(1, "label", pa.array(["x"] * 10))
    pq.write_table(table, parquet / "part-9.parquet")
    message = refused(runtime, ParquetSource("p", parquet, payload="image"), tmp_path / "c")
    assert "part-9.parquet: column 'label': expected int16" in message


def test_damaged_parquet_names_the_file(parquet, tmp_path, runtime):
    path = parquet / "part-1.parquet"
    table = images(100, 100)
    pq.write_table(table, path, row_group_size=17, compression="none", write_page_checksum=True)
    data = bytearray(path.read_bytes())
    data[data.index(b"image 150")] ^= 1
    path.write_bytes(data)
    with pytest.raises(drt.InvalidInputError, match=r"part-1.parquet: row group 2 .* at row 34"):
        samples_of(ParquetSource("p", parquet, payload="image"))
    path.write_bytes(b"PAR1 cut short")
    with pytest.raises(drt.InvalidInputError, match=r"part-1.parquet: expected a Parquet file"):
        samples_of(ParquetSource("p", parquet, payload="image"))


def test_a_csv_names_row_and_column_of_what_does_not_fit(tmp_path):
    lines = ["text,n"] + [f"t{i},{i}" for i in range(1000)]
    lines[700] = "t,seven"
    (tmp_path / "a.csv").write_text("\n".join(lines))
    (tmp_path / "b.csv").write_text("text,n\nx,many\n")
    found = samples_of(CsvSource("c", tmp_path / "a.csv", payload="text"))
    assert found[699] == (b"t", {"n": "seven"})
    lines[700] = "t,7,8"
    (tmp_path / "a.csv").write_text("\n".join(lines))
    with pytest.raises(drt.InvalidInputError, match=r"a\.csv.*Expected 2 columns, got 3"):
        CsvSource("c", tmp_path / "a.csv", payload="text")
    lines[700] = "t,7"
    (tmp_path / "a.csv").write_text("\n".join(lines))
    with pytest.raises(drt.InvalidInputError, match=r"(?s)b\.csv.*many.*column_types"):
        samples_of(CsvSource("c", tmp_path, payload="text"))
    typed = CsvSource("c", tmp_path, payload="text", column_types={"n": pa.string()})
    assert samples_of(typed)[-1] == (b"x", {"n": "many"})


@pytest.mark.parametrize(
    ("cell", "message"),
    [
        ("files/none.bin", "row 300, column 'file': .*none.bin.*found none"),
        ("../outside.bin", "expected a file below .*root="),
        ("/etc/hostname", "expected a file below .*root="),
        ("", "expected the name of a file"),
        ("files", "another kind of entry"),
    ],
)
def test_files_that_rows_name_wrongly_are_refused(labels, cell, message):
    with labels.open("a") as file:
        file.write(f"{cell},1,x\n")
    with pytest.raises(drt.InvalidInputError, match=rf"labels\.csv.*{message}"):
        samples_of(CsvSource("c", labels, payload_files="file"))


def test_root_says_where_files_are(labels, tmp_path):
    moved = labels.rename(tmp_path / "labels.csv")
    source = CsvSource("c", moved, payload_files="file", root=tmp_path / "labelled")
    assert samples_of(source)[0][0] == b"file 0"
    (tmp_path / "absolute.csv").write_text(f"file\n{tmp_path}/labelled/files/7.bin\n")
    absolute = CsvSource("c", tmp_path / "absolute.csv", payload_files="file", root="/")
    assert samples_of(absolute)[0][0] == b"file 7" * 3


def test_changed_tables_are_stale(parquet, tmp_path, runtime):
    def source():
        return ParquetSource("p", parquet, payload="image")

    write(runtime, source(), tmp_path / "c")
    assert not is_stale(runtime, source(), tmp_path / "c")
    pq.write_table(images(4), parquet / "part-3.parquet")
    assert is_stale(runtime, source(), tmp_path / "c")
    (parquet / "part-3.parquet").unlink()
    assert not is_stale(runtime, source(), tmp_path / "c")
    (parquet / "part-2.parquet").rename(parquet / "part-7.parquet")
    assert is_stale(runtime, source(), tmp_path / "c")


def test_changed_files_that_rows_name_are_stale(labels, tmp_path, runtime):
    def source():
        return CsvSource("c", labels, payload_files="file")

    write(runtime, source(), tmp_path / "c")
    assert not is_stale(runtime, source(), tmp_path / "c")
    (labels.parent / "files" / "9.bin").write_bytes(b"other!!")
    assert is_stale(runtime, source(), tmp_path / "c")


def test_a_table_replaced_while_it_is_imported_is_refused(parquet, tmp_path, runtime):
    source = ParquetSource("p", parquet, payload="image")
    pq.write_table(images(50), parquet / "part-1.parquet")
    assert "changed since it was listed" in refused(runtime, source, tmp_path / "c")


@pytest.mark.parametrize("kind", ["parquet", "csv"])
def test_a_table_rewritten_while_it_is_read_is_refused(tmp_path, monkeypatch, kind):
    monkeypatch.setattr("dataset_rt.sources.csv_files._BLOCK_BYTES", 10_000)
    path = tmp_path / f"a.{kind}"

    def put(letter):
        table = pa.table({"text": [letter * 100] * 20_000})
        if kind == "csv":
            path.write_text("text\n" + (letter * 100 + "\n") * 20_000)
        else:
            pq.write_table(table, path, row_group_size=1000, compression="none")

    put("a")
    os.utime(path, (1, 1))
    source = (ParquetSource if kind == "parquet" else CsvSource)("s", path, payload="text")
    batches = iter(source)
    assert next(batches).column("payload")[0].as_py() == b"a" * 100
    put("b")
    handed_on = []
    with pytest.raises(drt.InvalidInputError, match=rf"a\.{kind}: changed since it was listed"):
        handed_on.extend(batches)
    assert all(batch.column("payload")[0].as_py() == b"a" * 100 for batch in handed_on)


@pytest.mark.parametrize("options", [{}, {"transform": shout, "transform_version": "1"}])
def test_named_files_are_those_of_the_fingerprint(labels, options):
    source = CsvSource("c", labels, payload_files="file", **options)
    assert source.fingerprint
    assert len(samples_of(source, 290)) == 10
    (labels.parent / "files" / "299.bin").write_bytes(b"other!!")
    with pytest.raises(drt.InvalidInputError, match=r"row 299.*299\.bin: changed since"):
        samples_of(source, 290)


def csv_of(tmp_path, text, **options):
    (tmp_path / "a.csv").write_text(text)
    return CsvSource("c", tmp_path / "a.csv", **{"payload": None, **options})


def test_empty_cells_of_a_single_column_are_kept(tmp_path):
    def cells(text, **options):
        return samples_of(csv_of(tmp_path, text, **options))

    assert [p for p, _ in cells("t\nx\n\ny\n\n", payload="t")] == [b"x", b"", b"y", b""]
    assert [m["n"] for _, m in cells("n\n1\n\n3\n")] == [1, None, 3]
    assert [m["n"] for _, m in cells("n,m\n1,2\n\n3,4\n\n")] == [1, 3]


def test_numbers_of_a_csv_lose_no_digits(tmp_path, monkeypatch):
    monkeypatch.setattr("dataset_rt.sources.csv_files._BLOCK_BYTES", 1000)

    def column(*cells):
        source = csv_of(tmp_path, "n,m\n" + "".join(f"{cell},x\n" for cell in cells))
        return [metadata["n"] for _, metadata in samples_of(source)]

    assert column("00123", "7") == ["00123", "7"]
    assert column("18446744073709551615", "", "1") == ["18446744073709551615", "", "1"]
    assert column("1.5", "9007199254740993") == ["1.5", "9007199254740993"]
    assert column("0x1A", "1") == ["0x1A", "1"]
    plain = ["0", "-0.5", "0.25", "10", "", "9007199254740992", "1e3"]
    assert column(*plain) == [0.0, -0.5, 0.25, 10.0, None, 2.0**53, 1000.0]
    assert column("0", "-10", "9223372036854775807") == [0, -10, 2**63 - 1]
    for late in ("007", "0x7"):
        with pytest.raises(drt.InvalidInputError, match=rf"a\.csv, row 1000, .*'n': '{late}'"):
            column(*["1"] * 1000, late)
    assert column(*["1"] * 2000) == [1] * 2000
    told = csv_of(tmp_path, "n,m\n007,1\n", column_types={"n": pa.int64()})
    assert samples_of(told) == [(b"", {"n": 7, "m": 1})]


@pytest.mark.parametrize(
    "options",
    [
        *({"delimiter": text} for text in ("", "ab", "é", '"', "\n", "\0")),
        *({"encoding": text} for text in ("nonesuch", "base64", "", "utf8\0")),
    ],
)
def test_no_delimiters_and_encodings_are_told(tmp_path, options):
    with pytest.raises(drt.InvalidInputError, match=rf"{next(iter(options))} must be"):
        csv_of(tmp_path, "a,b\n1,2\n", **options)
    odd = csv_of(tmp_path, "a;b\n1;x\n", delimiter=";", encoding="latin-1")
    assert samples_of(odd) == [(b"", {"a": 1, "b": "x"})]


def test_a_csv_may_end_in_any_type(tmp_path):
    for cell in ("5000000000000", "0.5", "true", "2024-01-31", "2024-01-31 12:00:00", "", "x"):
        assert len(samples_of(csv_of(tmp_path, f"a,b\n1,{cell}\n"))) == 1
    with pytest.raises(drt.InvalidInputError, match=r"a\.csv: expected one column 'a', found 2"):
        csv_of(tmp_path, "a,a\n1,2\n")


def test_quotes_that_stay_open_are_refused(tmp_path):
    open_quote = 'a,b\n1,"abc\n2,def\n3,ghi\n'
    with pytest.raises(drt.InvalidInputError, match=r"a\.csv, row 0, column 'b': a quote"):
        samples_of(csv_of(tmp_path, open_quote))
    closed = csv_of(tmp_path, 'a,b\n1,"abc\n2,def\n3,""ghi"""\n\n')
    assert samples_of(closed) == [(b"", {"a": 1, "b": 'abc\n2,def\n3,"ghi"'})]


def test_large_tables_are_read_in_little_memory(tmp_path):
    """One row group of 200 MB, its rows of 100 kB."""
    path = tmp_path / "large.parquet"
    script = """
        import sys, pyarrow as pa, pyarrow.parquet as pq
        block = bytes(range(256)) * 400
        rows = [i.to_bytes(8, "little") + block for i in range(2000)]
        table = pa.table({"payload": rows, "n": range(2000)})
        pq.write_table(table, sys.argv[1], write_batch_size=8, use_dictionary=False,
                       compression="none")
        assert pq.ParquetFile(sys.argv[1]).num_row_groups == 1
    """
    run_script(script, path)
    read = """
        import sys
        from dataset_rt.sources import ParquetSource
        import pyarrow.parquet
        source = ParquetSource("p", sys.argv[1])
        def peak():
            # Of this program; rusage counts what the one that started it had.
            status = open("/proc/self/status").read()
            return int(status.split("VmHWM:")[1].split()[0])
        before = peak()
        rows = sum(batch.num_rows for batch in source)
        assert rows == 2000
        print(peak() - before)
    """
    assert int(run_script(read, path)) < 80_000


def test_importing_the_package_imports_no_importer():
    code = (
        "import sys, dataset_rt\n"
        "names = ['parquet', 'csv_files', 'image_folder', 'webdataset', 'huggingface']\n"
        "print([n for n in names if f'dataset_rt.sources.{n}' in sys.modules],"
        " 'pyarrow.parquet' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[] False\n"
