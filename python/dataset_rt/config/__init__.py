"""Door to the frozen settings of writing and reading.

fields.py   what a number in a config may be
writer.py   WriterConfig and its parts
reader.py   ReaderConfig
"""

from dataset_rt.config.reader import ReaderConfig, ReaderOptions
from dataset_rt.config.writer import (
    CompressionAlgo,
    ShardCompression,
    WriterConfig,
    WriterProfilerConfig,
)

__all__ = [
    "CompressionAlgo",
    "ReaderConfig",
    "ReaderOptions",
    "ShardCompression",
    "WriterConfig",
    "WriterProfilerConfig",
]
