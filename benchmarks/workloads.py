"""The four workloads: seeded, incompressible payloads with three metadata columns.

Every process makes the same samples from the same seeds, so what an engine delivers is checked
against the source itself. Knows no engine.
"""

from functools import cached_property
from itertools import chain

import numpy as np

COLUMNS = ("label", "score", "split")
POOL_BYTES = 64 << 20
# Neighbours start far apart in the pool: beyond the window of any compressor.
STRIDE = 40_503_001
DRAW_ROWS = 16_384

# name: samples, mean bytes of a payload, sigma of its lognormal distribution (0: all the same)
SHAPES = {
    "tiny": (1_000_000, 100, 0.0),
    "small": (200_000, 4096, 0.0),
    "image": (20_000, 110 << 10, 0.4),
    "large": (500, 4 << 20, 0.0),
}
# Samples of the quick mode: enough for two shards' worth of code paths, not for figures.
QUICK = {"tiny": 3000, "small": 600, "image": 60, "large": 4}


class Workload:
    """The first `count` samples of one shape; row `i` is the same whatever the count."""

    def __init__(self, name, count):
        _, mean, sigma = SHAPES[name]
        self.name = name
        self.count = count
        self.mean_bytes = mean
        self.epochs_drawn = 0
        # A lognormal variable has the mean exp(mu + sigma^2 / 2).
        mu = np.log(mean) - sigma**2 / 2
        spread = np.exp(np.random.default_rng(10).normal(mu, sigma, count))
        self.sizes = np.rint(spread).astype(np.int64)
        self.starts = np.arange(count) * STRIDE % (POOL_BYTES - self.sizes)

    @cached_property
    def pool(self):
        return np.random.default_rng(11).bytes(POOL_BYTES)

    @property
    def chunk(self):
        """Samples between two looks at the clock: at most 4 MiB, so that a look costs nothing."""
        return max(1, min(256, (4 << 20) // self.mean_bytes))

    def payload(self, row):
        return self.pool[self.starts[row] : self.starts[row] + self.sizes[row]]

    def metadata(self, row):
        return {"label": row % 10, "score": row * 0.5, "split": "valid" if row % 10 else "train"}

    def samples(self):
        """What every writer is given: `(bytes, dict)` row by row."""
        pool, metadata = self.pool, self.metadata
        stops = (self.starts + self.sizes).tolist()
        for row, (start, stop) in enumerate(zip(self.starts.tolist(), stops, strict=True)):
            yield pool[start:stop], metadata(row)

    @cached_property
    def weights(self):
        return np.random.default_rng(12).random(self.count) + 0.01

    def draw(self):
        """The next epoch of rows, drawn by weight with replacement.

        For engines without a sampler: all of them get the same epochs in the same order.
        """
        cumulated = np.cumsum(self.weights)
        generator = np.random.default_rng((13, self.epochs_drawn))
        self.epochs_drawn += 1

        def block(start):
            points = generator.random(min(DRAW_ROWS, self.count - start)) * cumulated[-1]
            return np.searchsorted(cumulated, points, side="right").tolist()

        # Block by block, so that a pass that is cut has not paid for rows it never read.
        return chain.from_iterable(map(block, range(0, self.count, DRAW_ROWS)))

    def random_rows(self):
        return (
            np.random.default_rng(14).integers(self.count, size=min(self.count, 200_000)).tolist()
        )


def row_of(metadata):
    """Which row a sample claims to be: its score tells."""
    return int(metadata["score"] * 2)
