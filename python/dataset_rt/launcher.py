"""Which rank this process is, as its launcher says; knows no dataset, and never imports PyTorch."""

from __future__ import annotations

import os
import sys
from typing import NamedTuple

from dataset_rt.errors import InvalidInputError


class World(NamedTuple):
    """One process among those that train together.

    Attributes:
        rank: Number of this process, from 0.
        world_size: Number of processes, at least 1.
    """

    rank: int
    world_size: int


def world_of(rank: int | None, world_size: int | None) -> World:
    """Return the rank and world size given, or those of the launcher where neither is.

    Raises:
        InvalidInputError: One is given without the other, or no launcher names them.
    """
    if rank is None and world_size is None:
        return launched_world()
    if rank is None or world_size is None:
        raise InvalidInputError(
            f"rank is {rank} and world_size is {world_size}; pass both, or neither to ask the "
            "launcher"
        )
    return World(rank, world_size)


def launched_world() -> World:
    """Return what `torch.distributed` says where it runs, else `RANK` and `WORLD_SIZE`.

    Raises:
        InvalidInputError: Neither says anything, or the variables make no sense.
    """
    world = distributed_world()
    if world is not None:
        return world
    rank = _variable("RANK", minimum=0)
    world_size = _variable("WORLD_SIZE", minimum=1)
    if rank is None or world_size is None:
        found = ", ".join(
            f"{name} is {'not set' if value is None else value}"
            for name, value in (("RANK", rank), ("WORLD_SIZE", world_size))
        )
        raise InvalidInputError(
            f"no rank was given and no launcher says which: {found}, and torch.distributed is not "
            "initialised. Pass rank and world_size, start with torchrun, or call "
            "torch.distributed.init_process_group first"
        )
    if rank >= world_size:
        raise InvalidInputError(
            f"the launcher's variables contradict each other: RANK={rank}, "
            f"WORLD_SIZE={world_size}; expected 0 <= RANK < WORLD_SIZE"
        )
    return World(rank, world_size)


def distributed_world() -> World | None:
    """Return the world of `torch.distributed`, if this process imported and initialised it."""
    distributed = sys.modules.get("torch.distributed")
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        return None
    return World(distributed.get_rank(), distributed.get_world_size())


def local_world_size() -> int:
    """Return how many processes of the job share this machine (`LOCAL_WORLD_SIZE`), else 1.

    Raises:
        InvalidInputError: The variable is no number from 1.
    """
    return _variable("LOCAL_WORLD_SIZE", minimum=1) or 1


def _variable(name: str, *, minimum: int) -> int | None:
    text = os.environ.get(name, "").strip()
    if not text:
        return None
    # int() would take "1_0" and "+1" too.
    if not (text.isascii() and text.isdigit()) or int(text) < minimum:
        raise InvalidInputError(
            f"the environment variable {name} is {text!r}; expected an integer from {minimum}"
        )
    return int(text)
