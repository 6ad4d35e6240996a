"""What is shown of weights: numbers whose sums are finite, and where weights do nothing."""

from __future__ import annotations

import math
from typing import TypeVar

import polars as pl

from dataset_rt.config import ReaderConfig

_Floats = TypeVar("_Floats", pl.Series, pl.Expr)


def relative(weights: _Floats, largest: float) -> _Floats:
    """Return weights times the power of two that brings `largest` to 1/2 or above, below 1.

    Sums of the largest floats would be infinite, and shares of the least ones could not be told:
    Polars divides by multiplying, and no float holds 1 over the least ones. Nor does one hold the
    power, which is therefore applied by halves.
    """
    exponent = math.frexp(largest)[1]
    half = exponent // 2
    return weights * 2.0**-half * 2.0 ** (half - exponent)


def why_unused(config: ReaderConfig) -> str:
    """Return why no weight changes how often a row is read; nothing where weights do."""
    if not config.shuffle:
        return "in table order (shuffle=False) weights do nothing"
    if config.sampling == "permutation":
        return 'sampling="permutation" reads each row once a cycle: weights do nothing'
    return ""
