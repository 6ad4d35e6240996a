"""How each Arrow tool reads one of our files: path to `pa.Table`. Knows no cache.

docs/tools.md shows the same calls to users.
"""

import io

import datafusion
import duckdb
import nanoarrow
import nanoarrow.ipc
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.dataset
import pyarrow.feather


def pyarrow_file(path):
    return pa.ipc.open_file(pa.OSFile(str(path))).read_all()


def pyarrow_mmap(path):
    return pa.ipc.open_file(pa.memory_map(str(path))).read_all()


def pyarrow_feather(path):
    return pa.feather.read_table(path)


def pyarrow_dataset(path):
    return pa.dataset.dataset(path, format="ipc").to_table()


def polars_read(path):
    return pl.read_ipc(path).to_arrow()


def polars_scan(path):
    return pl.scan_ipc(path).collect().to_arrow()


def polars_from_pyarrow(path):
    return pl.from_arrow(pyarrow_mmap(path)).to_arrow()


def duckdb_over_dataset(path):
    data = pa.dataset.dataset(path, format="ipc")  # noqa: F841 - DuckDB finds it by its name
    return duckdb.sql("SELECT * FROM data").to_arrow_table()


def duckdb_over_table(path):
    data = pyarrow_mmap(path)  # noqa: F841 - DuckDB finds it by its name
    return duckdb.sql("SELECT * FROM data").to_arrow_table()


def datafusion_file(path):
    context = datafusion.SessionContext()
    context.register_arrow("data", str(path))
    return context.sql("SELECT * FROM data").to_arrow_table()


def pandas_feather(path):
    frame = pd.read_feather(path, dtype_backend="pyarrow")
    return pa.Table.from_pandas(frame, preserve_index=False)


def nanoarrow_capsule(path):
    return pa.table(nanoarrow.ArrayStream(pyarrow_mmap(path)))


def nanoarrow_ipc(path):
    # It reads streams; a file is a stream behind eight bytes, and its footer goes unread.
    stream = io.BytesIO(path.read_bytes()[8:])
    return pa.table(nanoarrow.ArrayStream(nanoarrow.ipc.InputStream.from_readable(stream)))


TOOLS = {
    name: reader
    for name, reader in list(globals().items())
    if callable(reader) and getattr(reader, "__module__", "") == __name__
}
