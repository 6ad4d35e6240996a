"""The methods of CachedDataset that keep it in a directory; `saved_state` knows what is there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self, cast

from dataset_rt.arguments import AnyPath, to_directory, to_path

if TYPE_CHECKING:
    from dataset_rt._native import NativeDataset
    from dataset_rt.config import ReaderConfig
    from dataset_rt.dataset import CachedDataset
    from dataset_rt.runtime import DatasetRuntime


class Saving:
    """Places, tables and settings of a dataset as files."""

    if TYPE_CHECKING:

        @classmethod
        def _wrap(
            cls, native: NativeDataset, config: ReaderConfig, runtime: DatasetRuntime
        ) -> Self:
            """Return the dataset around a native one."""

    def save_state(self, path: AnyPath) -> None:
        """Save what `state_dict` returns, and an edited table with it, in a directory.

        A crash at any moment leaves what was saved before, or all of this. The untouched table is
        not saved: it is in the caches. With several ranks, let one of them save. A model saved
        by another call is of another moment: put it into one file with `state_dict` and an edited
        table, or save here into a new directory first, and let the model's file name it.

        Args:
            path: The directory, made when it is missing: `state.json` and one Arrow IPC stream,
                with digests of both.

        Raises:
            InvalidInputError: As `state_dict`, or `path` is a cache or lies in one.
            UnavailableError: Another process or thread is saving there, or nobody may write there
                (`FileUnavailableError`).
            ExhaustedError: The disk is full.

        Example:
            >>> dataset = open_dataset(cache)
            >>> first = next(iter(dataset))
            >>> dataset.save_state(tmp_path / "checkpoint")
            >>> again = open_dataset(cache)
            >>> again.load_state(tmp_path / "checkpoint")
            >>> [sample.data for sample in again]
            [b'b']
        """
        from dataset_rt import saved_state  # noqa: PLC0415 - imports pydantic

        saved_state.save_state(_as_dataset(self), to_directory(path, "path"))

    def load_state(self, path: AnyPath) -> None:
        """Take over table and place that `save_state` saved; the next iterator begins there.

        The table passes the checks of `update_metadata`, with the columns that were edited then.

        Args:
            path: The directory.

        Raises:
            NotFoundError: Nothing was saved there, or its table is missing.
            CorruptError: A file is not what was saved, to the byte.
            UnsupportedError: Another version of the format saved it.
            UnavailableError: Others save there all the time; one that saves meanwhile does no
                harm: it is the old state, or the new one.
            InvalidInputError: The state of another seed or sampling mode, or a table of other
                caches. Nothing was changed, whatever the error.
        """
        from dataset_rt import saved_state  # noqa: PLC0415 - imports pydantic

        dataset = _as_dataset(self)
        saved_state.load_state(dataset, to_path(path, "path"))
        dataset._note_said(tables=1, places=1)

    def dump_config(self, path: AnyPath) -> None:
        """Save everything but the position in a directory, for `from_config`.

        Args:
            path: The directory, made when it is missing: `config.json` with the paths and content
                digests of the caches, the settings, the epoch length and the share of ranks, and
                an edited table as an Arrow IPC stream. A crash leaves what was there before.

        Raises:
            InvalidInputError: `path` is a cache or lies in one.
            UnavailableError: Another process or thread is saving there, or nobody may write there
                (`FileUnavailableError`).
            ExhaustedError: The disk is full.

        Example:
            >>> open_dataset(cache, seed=7).dump_config(tmp_path / "config")
            >>> dataset = CachedDataset.from_config(tmp_path / "config")
            >>> dataset.reader_config.seed
            7
        """
        from dataset_rt import saved_state  # noqa: PLC0415 - imports pydantic

        saved_state.dump_config(_as_dataset(self), to_directory(path, "path"))

    @classmethod
    def from_config(cls, path: AnyPath, *, runtime: DatasetRuntime | None = None) -> Self:
        """Return a dataset equal to the one that `dump_config` saved, at the stream's beginning.

        A cache is taken from its absolute path when the contents saved are there, else from the
        place that has the same path relative to the directory: a moved tree works.

        Args:
            path: The directory.
            runtime: Whose threads it uses; by default those of a runtime of its own.

        Raises:
            NotFoundError: No configuration there, or a cache with these contents in neither place;
                the message names the digest and both.
            CorruptError: A file is not what was saved, to the byte.
            UnsupportedError: Another version of the format saved it.
            UnavailableError: Others save there all the time.
        """
        from dataset_rt import saved_state  # noqa: PLC0415 - imports pydantic
        from dataset_rt.runtime import DatasetRuntime  # noqa: PLC0415 - it imports this module

        threads = DatasetRuntime() if runtime is None else runtime
        native, config = saved_state.from_config(to_path(path, "path"), threads)
        return cls._wrap(native, config, threads)


def _as_dataset(saving: Saving) -> CachedDataset:
    """Nothing but a dataset has these methods."""
    return cast("CachedDataset", saving)
