"""Settings of reading a dataset; knows nothing of how they are carried out."""

from __future__ import annotations

from typing import Any, Literal, TypedDict

from dataset_rt.config.fields import FrozenConfig, PositiveCount, Seed


class ReaderConfig(FrozenConfig):
    """Settings of a `CachedDataset`; together with contents and table they fix its order.

    Only `seed`, `shuffle` and `sampling` touch the order. All others decide cost alone.

    Attributes:
        seed: 0 <= seed < 2**64; bool and float are refused.
        shuffle: `True` draws rows by `sampling`, with replacement: an epoch leaves rows out.
            `False` reads the active table in its order, each row once, whatever its weight.
        prefetch_size: Upper bound on samples not yet returned, the block in hand included.
        prefetch_bytes: The same in bytes; `None` chooses from the memory this process may use.
            One larger sample alone is allowed.
        sampling: `"multinomial"` draws with replacement, each row in proportion to its weight.
        validate_cache: Check every byte of every cache when it is opened.
        verify: Check each block of a file on first touch, before anything in it is used.
        io: `"mmap"` maps the files, `"pread"` reads copies, `"auto"` chooses. Only copies are safe
            from changes to the file after they were made; views of a mapped file are not.
        zero_copy: Deliver payloads as read-only `memoryview` over the mapped shard.

    Example:
        >>> ReaderConfig(seed=7).sampling
        'multinomial'
    """

    seed: Seed
    shuffle: bool = True
    prefetch_size: PositiveCount = 256
    prefetch_bytes: PositiveCount | None = None
    sampling: Literal["multinomial"] = "multinomial"
    validate_cache: bool = False
    verify: bool = True
    io: Literal["auto", "mmap", "pread"] = "auto"
    zero_copy: bool = False

    def _native_options(self) -> dict[str, Any]:
        """Return the options of the compiled module's `open_dataset`."""
        return self.model_dump()


class ReaderOptions(TypedDict, total=False):
    """The fields of `ReaderConfig` that `open_dataset` passes on by keyword."""

    prefetch_size: int
    prefetch_bytes: int | None
    sampling: Literal["multinomial"]
    validate_cache: bool
    verify: bool
    io: Literal["auto", "mmap", "pread"]
    zero_copy: bool
