"""Turns the arguments of `to_torch_dataloader` into a loader, or says what is wrong with them."""

from __future__ import annotations

import multiprocessing
import pickle
import warnings
from collections.abc import Callable
from multiprocessing.context import BaseContext
from multiprocessing.reduction import ForkingPickler
from typing import TYPE_CHECKING, Any, TypedDict

from dataset_rt.arguments import to_count
from dataset_rt.config import ReaderConfig
from dataset_rt.errors import InvalidInputError
from dataset_rt.launcher import launched_world
from dataset_rt.runtime import DatasetRuntime
from dataset_rt.torch_faces.batch_maker import BatchMaker
from dataset_rt.torch_faces.dataset_loader import DatasetLoader
from dataset_rt.torch_faces.loader_dataset import LoaderDataset
from dataset_rt.torch_faces.stack_level import level_of_caller
from dataset_rt.torch_faces.worker_counts import process_count, thread_count

if TYPE_CHECKING:
    from dataset_rt.dataset import CachedDataset


class LoaderOptions(TypedDict, total=False):
    """Arguments of `torch.utils.data.DataLoader` that a loader passes on as they are."""

    pin_memory: bool
    pin_memory_device: str
    timeout: float
    worker_init_fn: Callable[[int], None] | None
    multiprocessing_context: str | BaseContext | None
    generator: Any
    prefetch_factor: int | None
    persistent_workers: bool
    in_order: bool


_REFUSED = {
    "dataset": "it is this one",
    "sampler": "the order is the dataset's: change its table, seed or sampling",
    "batch_sampler": "the order is the dataset's: choose batch_size and drop_last",
}
# What only worker processes have: whoever sets it wants some.
_OF_PROCESSES = ("timeout", "multiprocessing_context", "prefetch_factor", "persistent_workers")


def make_loader(
    source: CachedDataset,
    *,
    batch_size: int,
    transform: Callable[..., Any] | None,
    collate_fn: Callable[[list[Any]], Any] | None,
    samples_per_epoch: int | None,
    shuffle: bool | None,
    seed: int | None,
    drop_last: bool,
    num_workers: object,
    native_num_workers: object,
    rank: int | None,
    world_size: int | None,
    position_seeds: bool,
    options: dict[str, Any],
) -> DatasetLoader:
    """Make a loader over a dataset of its own; arguments are those of `to_torch_dataloader`."""
    for name, reason in _REFUSED.items():
        if options.get(name) is not None:
            raise InvalidInputError(f"{name} cannot be chosen for this loader: {reason}")
        options.pop(name, None)
    size = to_count(batch_size, "batch_size", minimum=1)
    functions = {
        "transform": transform,
        "collate_fn": collate_fn,
        "worker_init_fn": options.get("worker_init_fn"),
    }
    for name, function in functions.items():
        if function is not None and not callable(function):
            raise TypeError(f"{name} must be callable, found {type(function).__name__}")
    if position_seeds and transform is None:
        raise InvalidInputError(
            "position_seeds=True needs a transform(sample, seed) to give them to"
        )
    processes = process_count(
        num_workers,
        has_python_work=transform is not None or collate_fn is not None,
        needs_processes=any(options.get(name) for name in _OF_PROCESSES),
    )
    if processes == 0:
        for name in _OF_PROCESSES:
            if options.get(name):
                raise InvalidInputError(
                    f"{name}={options[name]!r} needs worker processes, but num_workers is 0"
                )
    else:
        _refuse_unsendable(options.get("multiprocessing_context"), functions)
    threads = thread_count(native_num_workers, processes)
    own = source._derived(
        runtime=None if threads is None else DatasetRuntime(threads),
        config=_config_of(source, seed, shuffle),
        rank=_rank_of(source, rank, world_size, drop_last),
    )
    dataset = LoaderDataset.of(own, has_seeds=position_seeds, samples_per_epoch=samples_per_epoch)
    loader = DatasetLoader(
        source,
        dataset,
        batch_size=size,
        num_workers=processes,
        maker=BatchMaker(transform, collate_fn),
        options=options,
    )
    len(loader)  # refuses a batch size that the partition has no use for
    source._said_before_loader = source._said
    _warn_of_whole_dataset(dataset)
    return loader


def _config_of(source: CachedDataset, seed: int | None, shuffle: bool | None) -> ReaderConfig:
    fields = source.reader_config.model_dump()
    if seed is not None:
        fields["seed"] = seed
    if shuffle is not None:
        fields["shuffle"] = shuffle
        if not shuffle:
            # Table order is no sampling.
            del fields["sampling"]
    return ReaderConfig(**fields)


def _rank_of(
    source: CachedDataset, rank: int | None, world_size: int | None, drop_last: bool
) -> tuple[int, int, int | None, bool]:
    found = source._native.rank
    if rank is None and world_size is None:
        return (*found[:3], found[3] or bool(drop_last))
    part = source.partition(rank, world_size, drop_last=bool(drop_last))
    return part._native.rank


def _refuse_unsendable(context: object, functions: dict[str, Any]) -> None:
    """Say which function cannot be sent, before PyTorch fails with all of them in hand."""
    method = context if isinstance(context, str) else None
    if isinstance(context, BaseContext):
        method = context.get_start_method()
    method = method or multiprocessing.get_start_method()
    if method == "fork":
        return
    for name, function in functions.items():
        try:
            ForkingPickler.dumps(function)
        except (pickle.PicklingError, AttributeError, TypeError) as error:
            raise InvalidInputError(
                f"{name} cannot be sent to workers started by {method!r} ({error}): define it at "
                "the top level of a module, not as a lambda or inside a function, or pass "
                "multiprocessing_context='fork'"
            ) from error


def _warn_of_whole_dataset(dataset: LoaderDataset) -> None:
    try:
        world = launched_world()
    except InvalidInputError:
        return
    if world.world_size == 1 or dataset._native.rank[1] > 1:
        return
    warnings.warn(
        f"there are {world.world_size} ranks, but this loader is not divided between them: every "
        "rank reads everything. Pass rank and world_size, or make it of dataset.partition(), "
        "which asks torch.distributed or the launcher's variables",
        stacklevel=level_of_caller(),
    )
