"""Settings of reading a dataset; knows nothing of how they are carried out."""

from __future__ import annotations

from typing import Any, Literal, Self, TypeAlias, TypedDict

from pydantic import model_validator

from dataset_rt.config.fields import FrozenConfig, PositiveCount, Seed

Sampling: TypeAlias = Literal["multinomial", "permutation", "weighted_without_replacement"]
"""How positions of the stream become rows where rows are shuffled."""


class ReaderConfig(FrozenConfig):
    """Settings of a `CachedDataset`; together with contents and table they fix its order.

    Only `seed`, `shuffle` and `sampling` touch the order. All others decide cost alone.

    Attributes:
        seed: 0 <= seed < 2**64; bool and float are refused.
        shuffle: `True` draws rows by `sampling`; the default there is with replacement, so that an
            epoch leaves rows out. `False` reads the active table in its order, each row once,
            whatever its weight, and takes no other `sampling` than the default.
        prefetch_size: Upper bound on samples not yet returned, the block in hand included.
        prefetch_bytes: The same in bytes; `None` chooses from the memory this process may use.
            One larger sample alone is allowed.
        sampling: `"multinomial"` draws with replacement, each row in proportion to its weight.
            `"permutation"` reads each row once in as many samples as there are rows, in an order
            drawn anew each time, whatever the weights. `"weighted_without_replacement"` does so
            too, heavier rows earlier: each time in the order of successive draws in proportion to
            the weights of the rows left. It keeps 12 bytes for each row, and works out an order
            of 10^7 rows in seconds, with 20 bytes for each row meanwhile.
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
    sampling: Sampling = "multinomial"
    validate_cache: bool = False
    verify: bool = True
    io: Literal["auto", "mmap", "pread"] = "auto"
    zero_copy: bool = False

    @model_validator(mode="after")
    def _check_combination(self) -> Self:
        if not self.shuffle and self.sampling != "multinomial":
            raise ValueError(
                f"sampling={self.sampling!r} needs shuffle=True, found shuffle=False: "
                "set shuffle=True, or leave sampling out to read the table in its order"
            )
        return self

    def _native_options(self) -> dict[str, Any]:
        """Return the options of the compiled module's `open_dataset`."""
        return self.model_dump()


class ReaderOptions(TypedDict, total=False):
    """The fields of `ReaderConfig` that `open_dataset` passes on by keyword."""

    prefetch_size: int
    prefetch_bytes: int | None
    sampling: Sampling
    validate_cache: bool
    verify: bool
    io: Literal["auto", "mmap", "pread"]
    zero_copy: bool
