"""One value for stores that know only bytes: a fixed header, then the payload.

A hand-made layout for these three columns is the cheapest that a user of such a store could write;
JSON or pickle would make those stores slower.
"""

from struct import Struct

HEADER = Struct("<qd8s")
SIZE = HEADER.size


def encode(data, metadata):
    split = metadata["split"].encode()
    return HEADER.pack(metadata["label"], metadata["score"], split) + data


def decode(value):
    """The sample of a value: `bytes`, or a memory view that is copied here."""
    label, score, split = HEADER.unpack_from(value)
    metadata = {"label": label, "score": score, "split": split.rstrip(b"\0").decode()}
    return bytes(value[SIZE:]), metadata
