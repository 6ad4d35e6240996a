"""What a number in a config may be; knows no config."""

from __future__ import annotations

import operator
from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

U64_END = 2**64
"""One past the largest unsigned 64-bit number."""


class FrozenConfig(BaseModel):
    """Settings that cannot change after they were made; an unknown field is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


def _to_plain_int(value: object) -> object:
    """Turn NumPy and other integers into `int`; leave everything else to strict validation."""
    if type(value) is int or isinstance(value, bool):
        return value
    try:
        return operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        return value


# Strict validation alone would refuse numpy.int64, which is what a seed drawn from NumPy is.
_Integer = Annotated[int, BeforeValidator(_to_plain_int)]

Seed = Annotated[_Integer, Field(ge=0, lt=U64_END)]
"""0 <= seed < 2**64; bool, float and str are refused."""

# 2**62 leaves room for sums of such numbers in 64 bits.
PositiveCount = Annotated[_Integer, Field(ge=1, le=2**62)]
"""A number of samples or bytes, at least one."""

Level = Annotated[_Integer, Field(ge=1, le=22)]
"""A zstd compression level."""

Bytes = Annotated[_Integer, Field(ge=0, le=2**62)]
"""A number of bytes, zero allowed."""
