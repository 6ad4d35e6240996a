"""A cache or dataset as one Parquet file; knows nothing of publishing."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Literal

from dataset_rt.arguments import AnyPath, to_flag, to_path
from dataset_rt.exporters.publishing import published_file
from dataset_rt.exporters.rows import PAYLOAD, AnyCache, open_rows

# Pages are cut between so many values: with payloads of 100 kB that is 6 MB, not a hundred.
_PAGE_ROWS_STEP = 64


def to_parquet(
    source: AnyCache,
    path: AnyPath,
    *,
    columns: Iterable[str] | None = None,
    compression: Literal["none", "snappy", "lz4", "zstd"] = "zstd",
    overwrite: bool = False,
) -> Path:
    """Write rows and payloads as a Parquet file, row group by row group.

    `ParquetSource(name, path)` makes a cache of the same contents, and so the same `cache_id`, of
    it; only `timestamp[s]`, which Parquet lacks, comes back in milliseconds. A row group holds at
    most 65,536 rows and about 32 MiB of payload; pages have checksums.

    Args:
        source: A dataset, whose active table is written in its order, a cache, or its directory.
        path: The file. It appears once it is whole; its directory is made when missing.
        columns: Names in order; by default all but `cache_id`, `sample_id` and `weight`.
        compression: Of columns and payloads; payloads that are compressed images stay as large.
        overwrite: Whether an existing file is replaced.

    Returns:
        `path`.

    Raises:
        TypeError: An argument has the wrong type.
        InvalidInputError: A column is unknown or named twice, or `path` lies in a cache.
        NotFoundError: There is no cache at a path.
        CorruptError: A sample is damaged; no file is left.
        ConflictError: There is a file already, or what is no file.
        FileExhaustedError: There is no room for the file.
        FileUnavailableError: No file can be written there.

    Example:
        >>> from dataset_rt.exporters import to_parquet
        >>> file = to_parquet(cache, tmp_path / "words.parquet")
        >>> pl.read_parquet(file).to_dicts()
        [{'position': 0, 'payload': b'a'}, {'position': 1, 'payload': b'b'}]
    """
    # Here, for those who import the package for something else.
    import pyarrow.parquet as pq  # noqa: PLC0415

    target = Path(to_path(path, "path"))
    overwrite = to_flag(overwrite, "overwrite")
    rows = open_rows(source, columns)
    with (
        published_file(target, overwrite=overwrite) as aside,
        # Opened here: pyarrow takes no name that is no UTF-8.
        aside.open("wb") as file,
        pq.ParquetWriter(
            file,
            rows.schema,
            compression=compression,
            # Payloads hardly repeat: a dictionary of them is memory for nothing.
            use_dictionary=[name for name in rows.schema.names if name != PAYLOAD],
            write_batch_size=_PAGE_ROWS_STEP,
            write_page_checksum=True,
        ) as writer,
    ):
        for batch in rows.batches:
            writer.write_batch(batch)
    return target
