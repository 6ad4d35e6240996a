"""Two ranks of DistributedDataParallel: together they read the one order that one process reads.

What it shows: `torchrun` starts two processes (gloo, no GPU). Each asks the dataset for its share,
and trains. What both delivered is compared with the global order, step by step, and the model with
that of one process alone.

What to take away: `dataset.partition()` is all there is to it: no sampler, no `set_epoch`. Weights
and order are global, no rank draws for itself, and every rank gets equally many batches, so that
none waits for another at the end.

The samples are the handwritten digits that come with scikit-learn.

Run it with `python examples/two_ranks.py [directory]`; it needs PyTorch.
"""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import dataset_rt as drt

try:
    import torch
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel
except ImportError:
    sys.exit("this example needs PyTorch: pip install torch")

RANKS = 2
BATCH_SIZE = 16  # on each rank
EPOCHS = 2
SEED = 9


class Digits:
    """A source: 8 x 8 pixels of 0 to 16 as bytes, with their label."""

    name = "digits"
    fingerprint = "digits-uint8-1"

    def __iter__(self) -> Iterator[drt.CacheInput]:
        """Yield the digits in scikit-learn's order."""
        # Here, because a process that finds the cache does not need it.
        from sklearn.datasets import load_digits  # noqa: PLC0415

        digits = load_digits()
        for image, label in zip(digits.images.astype(np.uint8), digits.target, strict=True):
            yield drt.CacheInput(image, {"label": int(label)})


def decode(sample: drt.CachedSample) -> tuple[torch.Tensor, int, int]:
    """Return pixels `(64,)`, 0 to 1, the label, and the sample's number for the proof."""
    pixels = drt.payload_tensor(sample.data, torch.uint8) / 16
    return pixels, int(sample.metadata["label"]), sample.sample_id


def train(cache: Path) -> tuple[list[list[int]], torch.Tensor]:
    """Train on this rank's share; return the ids of each step and the weights."""
    dataset = drt.open_dataset(cache, seed=SEED, shuffle=True)
    model: Any = torch.nn.Linear(64, 10)
    torch.nn.init.zeros_(model.weight)
    torch.nn.init.zeros_(model.bias)
    batch_size = BATCH_SIZE * RANKS
    if dist.is_initialized():
        dataset = dataset.partition()  # asks torch.distributed which rank this is
        model = DistributedDataParallel(model)
        batch_size = BATCH_SIZE
    loader = dataset.to_torch_dataloader(batch_size=batch_size, transform=decode, num_workers=0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    steps: list[list[int]] = []
    for _ in range(EPOCHS):
        for batch in loader:
            # A rank without a sample in an epoch's last step gets an empty batch.
            pixels, labels, ids = batch or (torch.zeros(0, 64),) + (torch.zeros(0).long(),) * 2
            loss = torch.nn.functional.cross_entropy(model(pixels), labels, reduction="sum")
            optimizer.zero_grad()
            (loss / batch_size).backward()  # DDP takes the mean over the ranks
            optimizer.step()
            steps.append(ids.tolist())
    return steps, next(iter(model.parameters())).detach()


def rank_main(cache: Path, output: Path) -> None:
    """Be one rank: train, and write down what came."""
    dist.init_process_group("gloo")
    steps, weights = train(cache)
    content = {"steps": steps, "weights": weights.tolist()}
    (output / f"rank-{dist.get_rank()}.json").write_text(json.dumps(content))
    dist.destroy_process_group()


def main(output: Path) -> None:
    """Train on two ranks and on one, and compare."""
    with drt.DatasetRuntime() as runtime:
        config = drt.ReaderConfig(seed=SEED)
        match runtime.from_cache_sources(Digits(), output / "caches", reader_config=config):
            case drt.CacheSourcesDatasetError(_, message):
                raise SystemExit(message)
            case drt.CacheSourcesDatasetSuccess(dataset, _):
                (cache,) = dataset.cache_paths

    launcher = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={RANKS}"]
    command = [sys.executable, *launcher, __file__, "--rank", str(cache), str(output)]
    subprocess.run(command, check=True, env={"OMP_NUM_THREADS": "1", **os.environ})  # noqa: S603
    ranks = [json.loads((output / f"rank-{r}.json").read_text()) for r in range(RANKS)]
    order, weights = train(cache)

    for number, rank in enumerate(ranks):
        count = sum(len(ids) for ids in rank["steps"])
        print(f"rank {number}: {len(rank['steps'])} steps, {count} samples")
    together = [
        [number for row in itertools.zip_longest(*parts) for number in row if number is not None]
        for parts in zip(*(rank["steps"] for rank in ranks), strict=True)
    ]
    print("their steps put together are those of one process:", together == order)
    print("weights on both ranks are equal:", ranks[0]["weights"] == ranks[1]["weights"])
    difference = (torch.tensor(ranks[0]["weights"]) - weights).abs().max()
    print(f"and differ from those of one process by less than 1e-5: {bool(difference < 1e-5)}")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--rank"]:
        rank_main(Path(sys.argv[2]), Path(sys.argv[3]))
    else:
        main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path("demo_output/two_ranks"))
