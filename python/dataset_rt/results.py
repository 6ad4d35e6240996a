"""What writing returns, one value per source; knows nothing of how a source is written."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple, NoReturn, TypeAlias

from dataset_rt.errors import FailedResultError
from dataset_rt.field_docs import with_field_docs

if TYPE_CHECKING:
    from dataset_rt.dataset import CachedDataset


@with_field_docs
class CacheWriteSuccess(NamedTuple):
    """The cache of one source stands complete on disk.

    Attributes:
        source_name: Name of the source, NFC-normalised.
        path: The cache directory.
        status: `"written"` by this call, `"resumed"` behind what an interrupted call had stored,
            or `"reused"` as found, the source left untouched.
        samples_reused: Samples this call did not have to write again.
    """

    source_name: str
    path: Path
    status: Literal["written", "reused", "resumed"]
    samples_reused: int = 0

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        from dataset_rt.cards.writing import result_card  # noqa: PLC0415 - notebooks only

        return result_card(self)


@with_field_docs
class CacheWriteError(NamedTuple):
    """One source failed; the others went on, and no cache directory of this name was made.

    With `WriterConfig(resume=True)` its finished shards stay for the next call, see
    `unfinished_writes`.

    Attributes:
        source_name: Name of the source, NFC-normalised.
        message: What failed, what was expected, what was found, and where.
        exception: What was raised: the source's own exception when the source raised, else a
            `DatasetRTError`.
    """

    source_name: str
    message: str
    exception: BaseException | None = None

    @property
    def path(self) -> NoReturn:
        """There is none: a failure taken for a success says what failed.

        Raises:
            FailedResultError: Always; its cause is `exception`.
        """
        raise FailedResultError(
            f"a CacheWriteError has no 'path'; what failed: {self.message}"
        ) from self.exception

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        from dataset_rt.cards.writing import result_card  # noqa: PLC0415 - notebooks only

        return result_card(self)


CacheWriteResult: TypeAlias = CacheWriteSuccess | CacheWriteError
"""The outcome of one source."""


@with_field_docs
class CacheSourcesDatasetSuccess(NamedTuple):
    """At least one source has a cache, and the loaded caches form one dataset.

    Attributes:
        dataset: The dataset over every cache that loaded, in source order.
        results: One result per source, in source order; look here for sources that failed.
    """

    dataset: CachedDataset
    results: list[CacheWriteResult]

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        from dataset_rt.cards.writing import loaded_card  # noqa: PLC0415 - notebooks only

        return loaded_card(self)


@with_field_docs
class CacheSourcesDatasetError(NamedTuple):
    """No source has a cache, or the loaded caches cannot form one dataset.

    Attributes:
        results: One result per source, in source order.
        message: Why there is no dataset.
    """

    results: list[CacheWriteResult]
    message: str

    @property
    def dataset(self) -> NoReturn:
        """There is none: a failure taken for a success says what failed.

        So `from_cache_sources(...).dataset` is a `CachedDataset`, or raises.

        Raises:
            FailedResultError: Always; its cause is the exception of the first source that failed.
        """
        failed = (result for result in self.results if isinstance(result, CacheWriteError))
        first = next(failed, None)
        raise FailedResultError(
            f"a CacheSourcesDatasetError has no 'dataset'; what failed: {self.message}"
        ) from (None if first is None else first.exception)

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        from dataset_rt.cards.writing import failed_card  # noqa: PLC0415 - notebooks only

        return failed_card(self)


CacheSourcesDatasetResult: TypeAlias = CacheSourcesDatasetSuccess | CacheSourcesDatasetError
"""The outcome of `DatasetRuntime.from_cache_sources`, made for `match`."""
