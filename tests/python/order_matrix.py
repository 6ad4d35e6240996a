"""Every way to read an order through PyTorch, compared id by id with one process.

    python tests/python/order_matrix.py [fork|spawn|forkserver ...]

Faces (loader, map-style, iterable) x workers 0, 1, 2, 4 x start methods x persistent or not x
ranks 1, 2, 3, 8, two epochs each; then the loader stopped at every position and resumed with other
workers and ranks. Prints what was compared. Minutes with spawn: each worker imports PyTorch.
"""

import itertools
import multiprocessing
import sys
import tempfile
import time
import warnings
from collections import Counter
from pathlib import Path

from torch.utils.data import DataLoader

import dataset_rt as drt

COUNT = 11
WORKERS = (0, 1, 2, 4)
WORLDS = (1, 2, 3, 8)
EPOCHS = 2
TIMEOUT = 120


class Numbers:
    """A few samples, weighted below."""

    name = "numbers"

    def __iter__(self):
        for i in range(COUNT):
            yield drt.CacheInput(bytes([i]) * i, {"number": i})


def opened(path):
    dataset = drt.open_dataset(path, seed=9, shuffle=True)
    table = dataset.get_metadata()
    dataset.update_metadata(table.with_columns(weight=table["number"] + 1.0))
    return dataset


def ids(samples):
    return [(sample.cache_id, sample.sample_id) for sample in samples]


def options_of(method, workers, persistent):
    if workers == 0:
        return {"num_workers": 0}
    return {
        "num_workers": workers,
        "multiprocessing_context": method,
        "persistent_workers": persistent,
        "timeout": TIMEOUT,
    }


def faces(share, options):
    """Name, loader and whether the epoch must be set, of each face."""
    stream = share.to_torch_iterable_dataset(2)
    yield "loader", share.to_torch_dataloader(batch_size=2, collate_fn=ids, **options), False
    yield "map-style", DataLoader(share, batch_size=2, collate_fn=ids, **options), True
    yield "iterable", DataLoader(stream, batch_size=None, collate_fn=ids, **options), True


def merged(batches_of_ranks):
    """All ranks together, step by step; map-style ranks have no empty batches at the end."""
    found = []
    for batches in itertools.zip_longest(*batches_of_ranks, fillvalue=[]):
        for i in range(max(map(len, batches))):
            found += [batch[i] for batch in batches if i < len(batch)]
    return found


def combinations(method):
    for workers, persistent, world in itertools.product(WORKERS, (False, True), WORLDS):
        if workers == 0 and (persistent or method != "fork"):
            continue
        # Started workers take seconds each: those that persist serve for all.
        if method != "fork" and not persistent and world != 1:
            continue
        yield workers, persistent, world


def compare_orders(dataset, expected, method, counts):
    for workers, persistent, world in combinations(method):
        read = {}
        for rank in range(world):
            share = dataset.partition(rank, world)
            for name, loader, is_set in faces(share, options_of(method, workers, persistent)):
                # So do the other faces of one rank.
                if method == "spawn" and world > 1 and name != "loader":
                    continue
                for epoch in range(EPOCHS):
                    if is_set:
                        share.set_epoch(epoch)
                    read.setdefault((name, epoch), []).append(list(loader))
        for (name, epoch), batches in read.items():
            found = merged(batches)
            assert found == expected[epoch], (name, method, workers, persistent, world, epoch)
            if name != "map-style":
                assert len({len(batch) for batch in batches}) == 1, (name, world)
            counts[f"{name}: orders"] += 1
            counts["identities"] += len(found)


def compare_resumed(dataset, expected, method, counts):
    """Stop at every position; go on with other workers and ranks."""
    stream = expected[0] + expected[1]
    changes = [(0, 2), (2, 0), (1, 4), (4, 1)] if method == "fork" else [(2, 0), (0, 2)]
    for (first, second), world in itertools.product(changes, (1, 2, 3, 8)):
        if method != "fork" and world > 1:
            continue
        for taken in range(COUNT + 1):
            loader = dataset.to_torch_dataloader(
                batch_size=1, collate_fn=ids, **options_of(method, first, False)
            )
            read = list(itertools.chain(*itertools.islice(loader, taken)))
            state = loader.state_dict()
            rest = []
            for rank in range(world):
                # Several ranks of many workers are tried where they are cheap.
                workers = second if world < 3 else 0
                part = dataset.to_torch_dataloader(
                    batch_size=2,
                    collate_fn=ids,
                    rank=rank,
                    world_size=world,
                    **options_of(method, workers, False),
                )
                part.load_state_dict(state)
                rest.append(list(part))
            read += merged(rest)
            assert read == stream[: len(read)], (method, first, second, world, taken)
            assert len(read) == (2 * COUNT if taken == COUNT else COUNT), (world, taken)
            counts["resumed runs"] += 1
            counts["identities"] += len(read)


def main(methods):
    warnings.filterwarnings("ignore", "This DataLoader will create")
    multiprocessing.set_forkserver_preload(["torch.utils.data", "dataset_rt.torch_faces.methods"])
    counts = Counter()
    with tempfile.TemporaryDirectory() as directory:
        with drt.DatasetRuntime(num_workers=2) as runtime:
            quiet = drt.WriterConfig(show_progress=False)
            (written,) = runtime.write_cache(Numbers(), Path(directory), writer_config=quiet)
        dataset = opened(written.path)
        expected = [ids(dataset) for _ in range(EPOCHS)]
        dataset.set_epoch(0)
        for method in methods:
            started = time.monotonic()
            compare_orders(dataset, expected, method, counts)
            compare_resumed(dataset, expected, method, counts)
            print(f"{method}: {time.monotonic() - started:.0f} s", flush=True)
    for name, count in sorted(counts.items()):
        print(f"{name}: {count} equal")


if __name__ == "__main__":
    main(sys.argv[1:] or ["fork", "spawn", "forkserver"])
