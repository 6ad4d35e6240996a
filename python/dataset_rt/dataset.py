"""CachedDataset: what a training loop and a notebook hold in hand.

Knows nothing of files or of how order is drawn: it checks arguments and asks the native dataset.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import polars as pl
import pyarrow as pa

from dataset_rt import pickled
from dataset_rt.arguments import to_count, to_integer, to_json, to_names
from dataset_rt.errors import InvalidInputError, SampleNotFoundError
from dataset_rt.frames import AnyArrowTable, refuse_unsendable, to_stream_exporter
from dataset_rt.launcher import world_of
from dataset_rt.samples import CachedSample
from dataset_rt.saving import Saving
from dataset_rt.scan import scan_face
from dataset_rt.torch_faces.methods import TorchFaces

if TYPE_CHECKING:
    from dataset_rt._native import NativeDataset
    from dataset_rt.config import ReaderConfig
    from dataset_rt.plotting import DatasetPlots
    from dataset_rt.runtime import DatasetRuntime

_U64_MAX = 2**64 - 1


class CachedDataset(TorchFaces, Saving):
    """Caches as one dataset with an active table, read in a reproducible order.

    Made by `DatasetRuntime.cached_dataset`, `DatasetRuntime.from_cache_sources` or
    `open_dataset`, never directly. Order is a pure function of cache contents, active table,
    seed, sampling mode and position in one endless stream: not of workers, prefetch, shard layout
    or machine. Nothing here changes a file.

    Example:
        >>> dataset = open_dataset(cache)
        >>> dataset[0].metadata
        {'position': 0}
    """

    _native: NativeDataset
    _reader_config: ReaderConfig
    _runtime: DatasetRuntime

    def __init__(self) -> None:
        """Refuse: a dataset needs the threads of a runtime."""
        raise TypeError(
            "CachedDataset is not built directly: call DatasetRuntime().cached_dataset(paths, "
            "reader_config=ReaderConfig(seed=...)), from_cache_sources(...) or open_dataset(paths)"
        )

    @classmethod
    def _wrap(cls, native: NativeDataset, config: ReaderConfig, runtime: DatasetRuntime) -> Self:
        dataset = cls.__new__(cls)
        dataset._native = native
        dataset._reader_config = config
        dataset._runtime = runtime
        return dataset

    def __iter__(self) -> Iterator[CachedSample]:
        """Claim the next window of the stream and return an iterator over its samples.

        The iterator holds a snapshot of table, length and position; later updates touch only
        later iterators. After an early break the next iterator starts at the next window.
        """
        return iter(self._native)

    def iter_batches(
        self, batch_size: int, *, columns: Iterable[str] | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Claim the next window of the stream and return an iterator over it, as Arrow batches.

        Samples, order and snapshot are those of `__iter__`. Nothing is made per row, and payloads
        of uncompressed caches are not copied: they are views of the mapped shards, which stay
        mapped as long as a view lives.

        Args:
            batch_size: Rows of every batch but the last, at least 1.
            columns: Names of the columns wanted, in this order; all by default. What is not asked
                for is not read.

        Returns:
            Batches with `cache_id`, `sample_id`, stored columns, `weight`, extra columns and
            `payload` (binary_view).

        Raises:
            InvalidInputError: `batch_size` is below 1, or a column is unknown or named twice.
            CorruptError: While iterating, about a damaged sample, which the message names: the
                samples before it came as a shorter batch, the next batch begins behind it.
            ConflictError: While iterating, when a file changed while it was open.

        Example:
            >>> dataset = open_dataset(cache)
            >>> [batch.num_rows for batch in dataset.iter_batches(1, columns=["payload"])]
            [1, 1]
        """
        size = to_count(batch_size, "batch_size", minimum=1)
        names = None if columns is None else to_names(columns, "columns")
        return self._native.batches(size, names)

    def __len__(self) -> int:
        """Return the samples per epoch: active rows, or what `set_epoch_len` said since.

        For a share made by `partition`: those of its rank.
        """
        return len(self._native)

    def __getitem__(self, index: int) -> CachedSample:
        """Return the sample at one position of the epoch that the next iterator would read.

        Args:
            index: `0 <= index < len(dataset)`; any integer type.

        Returns:
            What `list(dataset)[index]` would hold; no stream is moved.

        Raises:
            TypeError: `index` is not an integer, for example a slice.
            SampleNotFoundError: It is out of range (an `IndexError`); negative positions do not
                count from the end.
        """
        sample = self._native.sample_at_hand(index)
        if sample is None:
            sample = self._native.sample_at(self._to_position(index))
        return sample

    def __getitems__(self, indices: Iterable[int]) -> list[CachedSample]:
        """Return the samples at several positions, in the order asked for.

        PyTorch's `DataLoader` calls this once per batch.

        Args:
            indices: As in `__getitem__`, repeats allowed.

        Raises:
            TypeError: Something is not an integer.
            SampleNotFoundError: A position is out of range (an `IndexError`).
        """
        positions = [i if type(i) is int else to_integer(i, "position") for i in indices]
        if positions:
            self._to_position(min(positions))
            self._to_position(max(positions))
        return self._native.samples_at(positions)

    def get_item(self, cache_id: int, sample_id: int) -> CachedSample:
        """Return one physical sample with its stored columns; no stream is moved.

        Args:
            cache_id: Identity of the cache, as in the table.
            sample_id: Row in that cache.

        Raises:
            TypeError: An argument is not an integer.
            SampleNotFoundError: No sample has this identity (an `IndexError`).

        Example:
            >>> dataset = open_dataset(cache)
            >>> sample = dataset[1]
            >>> dataset.get_item(sample.cache_id, sample.sample_id) == sample
            True
        """
        found = self._native.item_at_hand(cache_id, sample_id)
        if found is not None:
            return found
        cache = to_integer(cache_id, "cache_id")
        sample = to_integer(sample_id, "sample_id")
        if not (0 <= cache <= _U64_MAX and 0 <= sample <= _U64_MAX):
            raise SampleNotFoundError(
                f"no sample with cache_id={cache}, sample_id={sample}: identities are not "
                "negative and fit 64 bits; take them from get_metadata()"
            )
        return self._native.get_item(cache, sample)

    def get_metadata(self) -> pl.DataFrame:
        """Return the active table, never its payloads.

        Returns:
            `(active rows, columns)`: `cache_id` (UInt64), `sample_id` (UInt64), stored columns in
            source order, `weight` (Float64), extra columns. Fixed-width stored columns share the
            buffers of the caches; strings cost Polars 16 bytes a row.

        Example:
            >>> open_dataset(cache).get_metadata().drop("cache_id").rows(named=True)[1]
            {'sample_id': 1, 'position': 1, 'weight': 1.0}
        """
        return pl.DataFrame(self._native.table())

    def payload_sizes(self) -> pl.Series:
        """Return the size of every payload of the active table, in table order.

        Sizes come from the indices of the caches, 16 bytes a sample; no payload is read.

        Returns:
            `payload_bytes` (UInt64), one value per active row: bytes before compression.

        Raises:
            CorruptError: An index is damaged.
            ConflictError: A cache was replaced or changed since the dataset was opened.
            FileUnavailableError: An index cannot be read.

        Example:
            >>> dataset = open_dataset(cache)
            >>> dataset.payload_sizes().to_list()
            [1, 1]
            >>> largest = dataset.get_metadata().with_columns(dataset.payload_sizes())
        """
        from dataset_rt.inspection.active_sizes import ActiveSizes  # noqa: PLC0415 - when used

        return pl.concat(list(ActiveSizes(self))).alias("payload_bytes")

    def to_arrow(self, columns: Iterable[str] | None = None) -> pa.RecordBatchReader:
        """Return the active table with its payloads, in table order, batch by batch.

        No stream is moved. Batches hold at most 65,536 rows and, one larger payload aside, 32 MiB
        of payload; workers read ahead and verify. Any Arrow library also takes the dataset itself,
        as often as it likes: `pa.table(dataset)`, `pl.DataFrame(dataset)`,
        `duckdb.sql("select ... from dataset")`; all columns are read then. There is no
        `__arrow_c_array__`: it would be one batch of everything.

        Args:
            columns: Names of the columns wanted, in this order; all by default. Without `payload`
                no payload is read.

        Returns:
            A reader that can be read once. Its table is that of this moment.

        Raises:
            InvalidInputError: A column is unknown or named twice.
            CorruptError: Metadata that is shared as a whole is damaged. Damaged payloads end the
                reader with an error of pyarrow that has our message.

        Example:
            >>> dataset = open_dataset(cache)
            >>> dataset.to_arrow(["position", "payload"]).read_all()["payload"].to_pylist()
            [b'a', b'b']
        """
        names = None if columns is None else to_names(columns, "columns")
        return pa.RecordBatchReader.from_stream(self._native.face().select(names))

    def __arrow_c_schema__(self) -> object:
        """Return the schema of `to_arrow()` as an Arrow PyCapsule."""
        return self._native.face().__arrow_c_schema__()

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Return `to_arrow()` as an Arrow PyCapsule, a fresh one at each call.

        Args:
            requested_schema: A schema capsule: some of the columns in another order, and text and
                bytes in their normal, large or view forms. Nothing else is converted.

        Raises:
            InvalidInputError: Something else was requested; the message says what can be had.
        """
        return self._native.face().__arrow_c_stream__(requested_schema)

    def scan(self) -> pl.LazyFrame:
        """Return the active table with its payloads as a lazy Polars frame.

        Predicates on metadata are evaluated first; payloads are read only for the rows that
        survive, and only if the query uses them. The table is that of this moment.

        Example:
            >>> dataset = open_dataset(cache)
            >>> query = dataset.scan().filter(pl.col("position") == 1).select("payload")
            >>> query.collect()["payload"].to_list()
            [b'b']
        """
        return scan_face(self._native.face())

    def update_metadata(self, df: AnyArrowTable, *, edited: Iterable[str] = ()) -> None:
        """Replace the active table after full validation, in memory only.

        Rows may be dropped, repeated and reordered, weights changed and columns added. The length
        becomes the row count, the epoch number stays; iterators that run already go on with their
        table.

        What is stored is checked row by row. What is not, nobody can check: a weight or a new
        column beside the wrong row is accepted. Compute it on the table itself, or join it by
        `cache_id` and `sample_id`.

        Args:
            df: A Polars DataFrame or any other Arrow table with `cache_id`, `sample_id`, `weight`
                and every stored column.
            edited: Stored columns whose values were changed on purpose; samples carry the new
                values. In all others each value must equal the cache's own.

        Raises:
            TypeError: `df` is no table, or `edited` no list of names.
            InvalidInputError: A rule is broken; the message names column, row, expected and
                found. Nothing was changed.

        Example:
            >>> dataset = open_dataset(cache, shuffle=True)
            >>> table = dataset.get_metadata()
            >>> dataset.update_metadata(table.with_columns(weight=pl.col("position") + 0.5))
        """
        refuse_unsendable(df)
        self._native.update_table(to_stream_exporter(df, "df"), to_names(edited, "edited"))

    def set_epoch_len(self, n: int) -> None:
        """Give later windows this many samples; the stream continues where it is.

        Args:
            n: Samples per epoch, of all ranks together: at least 1, also more than there are rows.

        Raises:
            TypeError: `n` is not an integer.
            InvalidInputError: It is below 1.

        Example:
            >>> dataset = open_dataset(cache, shuffle=True)
            >>> dataset.set_epoch_len(5)
            >>> len(list(dataset))
            5
        """
        self._native.set_epoch_len(to_count(n, "epoch length n", minimum=1))

    @property
    def epoch(self) -> int:
        """Number of the epoch that the next iterator reads, from 0."""
        return self._native.epoch

    def set_epoch(self, e: int) -> None:
        """Jump to position `e * n` of the stream, `n` the samples per epoch of all ranks.

        Args:
            e: Number of the next iterator's epoch, from 0.

        Raises:
            TypeError: `e` is not an integer.
            InvalidInputError: It is negative.

        Example:
            >>> dataset = open_dataset(cache, shuffle=True)
            >>> dataset.set_epoch(3)
            >>> dataset.epoch
            3
        """
        self._native.set_epoch(to_count(e, "epoch number e", minimum=0))

    def partition(
        self,
        rank: int | None = None,
        world_size: int | None = None,
        *,
        global_batch_size: int | None = None,
        drop_last: bool = False,
    ) -> CachedDataset:
        """Return one rank's share: a dataset of its own with this table, position and epoch.

        Global batch `t` is positions `[t * G, (t + 1) * G)` of an epoch, of which each rank takes
        a contiguous part (the first `G % world_size` ranks one sample more): all ranks together
        read what one process reads, in its order, whatever their number. `iter_batches(b)` gives
        every rank equally many batches, of which the last may have fewer rows, or none.

        Args:
            rank: Number of this rank, `0 <= rank < world_size`. Without both, the launcher is
                asked: `torch.distributed` where it is initialised, else the variables `RANK` and
                `WORLD_SIZE`.
            world_size: Number of ranks.
            global_batch_size: `G`, samples of a step on all ranks together. Then the batches of a
                rank have `ceil(G / world_size)` rows. By default one sample for each rank, and
                `iter_batches(b)` takes `b` such steps at a time.
            drop_last: Leave out a short global batch at the end of an epoch, on all ranks.

        Raises:
            TypeError: A number is not an integer.
            InvalidInputError: The rank is not in the world, no launcher names one, a batch is
                empty, or this dataset is a share already.

        Example:
            >>> dataset = open_dataset(cache)
            >>> [sample.data for sample in dataset.partition(1, 2)]
            [b'b']
        """
        size = global_batch_size
        rank, world_size = world_of(rank, world_size)
        native = self._native.partition(
            to_count(rank, "rank", minimum=0),
            to_count(world_size, "world_size", minimum=1),
            None if size is None else to_count(size, "global_batch_size", minimum=1),
            bool(drop_last),
        )
        return CachedDataset._wrap(native, self._reader_config, self._runtime)

    def state_dict(self) -> dict[str, int | str | bool]:
        """Return where the newest iterator of this process stands, to go on exactly there.

        Counts the samples that were taken, not those read ahead. Before an iterator, and after
        `set_epoch`, `set_epoch_len`, `update_metadata` or `load_state_dict`, it is where the next
        one begins. A few hundred bytes of JSON types, the same on every rank at the end of a
        global batch, and independent of the number of ranks and workers. Contents and table are
        in it as a digest: keep the table yourself, or use `save_state`.

        Raises:
            InvalidInputError: The iterator of a share stands inside a global batch.

        Example:
            >>> dataset = open_dataset(cache)
            >>> first = next(iter(dataset))
            >>> dataset.load_state_dict(dataset.state_dict())
            >>> [sample.data for sample in dataset]
            [b'b']
        """
        state: dict[str, int | str | bool] = json.loads(self._native.state())
        return state

    def load_state_dict(self, state: Mapping[str, object]) -> None:
        """Make the next iterator begin where a saved state says.

        Inside an epoch `len`, `dataset[i]` and the epoch number stay those of the whole epoch;
        only iteration begins at the saved position. Iterators that run already go on unchanged.

        Args:
            state: What `state_dict` returned, on any number of ranks and workers.

        Raises:
            TypeError: `state` is no mapping.
            InvalidInputError: It is no state, or that of another table, seed, sampling mode or
                version; the message names both values. Nothing was changed.

        Example:
            >>> dataset, again = open_dataset(cache), open_dataset(cache)
            >>> first = next(iter(dataset))
            >>> again.load_state_dict(dataset.state_dict())
            >>> next(iter(again)).data
            b'b'
        """
        self._native.load_state(to_json(state, "state"))

    @property
    def order_fingerprint(self) -> str:
        """BLAKE3, as hex, of everything the order depends on, the position excluded."""
        return self._native.order_fingerprint()

    def order_digest(self, start: int, stop: int) -> str:
        """Return the BLAKE3, as hex, of the identities at stream positions `[start, stop)`.

        Equal digests mean the same samples in the same order; cost grows with `stop - start`.

        Args:
            start: First position, from 0.
            stop: Position behind the last, also beyond an epoch.

        Raises:
            TypeError: A position is not an integer.
            InvalidInputError: `stop` is before `start`, or one of them is negative.

        Example:
            >>> dataset = open_dataset(cache, seed=7, shuffle=True)
            >>> copy = open_dataset(cache, seed=7, shuffle=True)
            >>> dataset.order_digest(0, 100) == copy.order_digest(0, 100)
            True
        """
        first = to_count(start, "start", minimum=0)
        end = to_count(stop, "stop", minimum=0)
        if end < first:
            raise InvalidInputError(f"expected start <= stop, found [{first}, {end})")
        return self._native.order_digest(first, end)

    def position_seed(self, k: int) -> int:
        """Return a seed for augmentations at stream position `k`, below 2**64.

        It depends on the position alone, so augmentations survive another number of workers.

        Args:
            k: Position in the stream, from 0: `epoch * len(dataset)` and on.

        Raises:
            TypeError: `k` is not an integer.
            InvalidInputError: It is negative.

        Example:
            >>> dataset = open_dataset(cache, seed=7, shuffle=True)
            >>> dataset.position_seed(3) == open_dataset(cache, seed=7).position_seed(3)
            False
        """
        return self._native.position_seed(to_count(k, "position k", minimum=0))

    @property
    def plot(self) -> DatasetPlots:
        """Altair charts: `weights()`, `class_balance(column)`, `payload_sizes()`, `draws(column)`.

        They need Altair, which the extra `plot` installs.
        """
        from dataset_rt.plotting import DatasetPlots  # noqa: PLC0415 - imported when used

        return DatasetPlots(self)

    @property
    def cache_paths(self) -> tuple[Path, ...]:
        """The cache directories, in the order given."""
        return tuple(Path(path) for path in self._native.cache_paths)

    @property
    def reader_config(self) -> ReaderConfig:
        """The settings it was made with."""
        return self._reader_config

    @property
    def runtime(self) -> DatasetRuntime:
        """The runtime it was made with."""
        return self._runtime

    def __reduce__(self) -> tuple[Callable[..., CachedDataset], tuple[Any, ...]]:
        """Pickle paths, content digests, settings and position: small whatever the row count.

        Unpickling opens the same caches. An edited table and its order go once to memory that the
        processes share; it lives as long as this dataset keeps its table, and a process that is
        started by `multiprocessing` keeps it for itself. Such a process also reads the epoch that
        `set_epoch` sets here later, until it moves its own position.

        Raises:
            ExhaustedError: There is no memory for the table.
        """
        return pickled.reduced(self)

    def __copy__(self) -> CachedDataset:
        """Return an independent dataset with this one's table and position, over its runtime."""
        return CachedDataset._wrap(self._native.copy(), self._reader_config, self._runtime)

    def __deepcopy__(self, memo: dict[int, object]) -> CachedDataset:
        """Return `copy.copy(self)`: files, table and threads never change."""
        return self.__copy__()

    def _repr_html_(self) -> str:
        """What a notebook shows: rows, order, weights, columns; bounded in cost, never raises."""
        from dataset_rt.cards.dataset import dataset_card  # noqa: PLC0415 - notebooks only

        return dataset_card(self)

    def __repr__(self) -> str:
        """Length, epoch, caches and the settings that touch the order."""
        config = self._reader_config
        return (
            f"CachedDataset({len(self)} samples per epoch, epoch={self.epoch}, "
            f"caches={len(self._native.cache_paths)}, seed={config.seed}, "
            f"shuffle={config.shuffle}, sampling={config.sampling!r}{self._rank_text()})"
        )

    def _derived(
        self,
        runtime: DatasetRuntime | None,
        config: ReaderConfig,
        rank: tuple[int, int, int | None, bool],
    ) -> CachedDataset:
        """A dataset of its own, with this table and place, and perhaps other threads and order."""
        threads = None if runtime is None else runtime._native
        native = self._native.derived(threads, config._native_options(), rank)
        return CachedDataset._wrap(native, config, runtime or self._runtime)

    def _rank_text(self) -> str:
        rank, world_size, global_batch, drop_last = self._native.rank
        if (world_size, global_batch, drop_last) == (1, None, False):
            return ""
        return (
            f", rank={rank} of {world_size}, global_batch_size={global_batch}, "
            f"drop_last={drop_last}"
        )

    def _to_position(self, index: object) -> int:
        if isinstance(index, slice):
            raise TypeError(
                "a CachedDataset has no slices: iterate over it, pass positions to "
                "__getitems__, or filter rows with update_metadata"
            )
        position = to_integer(index, "position")
        length = len(self._native)
        if not 0 <= position < length:
            raise SampleNotFoundError(
                f"position {position} is out of range: 0 <= position < {length} (epoch length)"
            )
        return position
