"""What a worker process does: items in, samples out, in the order in which they came."""

from __future__ import annotations

import datetime as dt
import pickle
import struct
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final, cast

from dataset_rt.processes.failures import encode, load, text_of
from dataset_rt.processes.messages import Message, Part
from dataset_rt.processes.parent import Parent
from dataset_rt.processes.spawned import NOTHING, enter_directory, leave_interrupts_to_parent

# From the parent.
TRANSFORM: Final = 0
"""What the chunks behind it are for: the pickled callable, and where relative paths begin."""
CHUNK: Final = 1
"""Items, a pickle each; the number is that of the first sample."""

# To the parent.
SAMPLES: Final = 2
"""Payload and metadata in turn, then the seconds they took (`SECONDS`).

A sample that has no metadata part has instead of its payload a text: why it cannot be sent.
"""
FAILED: Final = 3
"""An exception of the sample with this number; nothing comes behind it."""

SECONDS: Final = struct.Struct("<d")
"""The last part of `SAMPLES`."""

# Samples go on their way when they are this many bytes or this old: memory, and a parent that
# waits for the first of a slow chunk.
_SEND_BYTES = 1024 * 1024
_SEND_SECONDS = 0.05


def run(connection: Any, hand: Any) -> None:
    """Serve the parent until it hangs up.

    Args:
        connection: Socket to the parent.
        hand: Shared memory, where the parent sees which sample is being made.
    """
    leave_interrupts_to_parent()
    parent = Parent(connection)
    hand.value = NOTHING
    pickled: Part = b""
    transform: Callable[[Any], Any] | None = None
    for message in parent.messages():
        if message.kind == TRANSFORM:
            # Loaded with the first chunk, so that a failure has a sample.
            pickled, transform = message.parts[0], None
            enter_directory(bytes(message.parts[1]))
            continue
        try:
            if transform is None:
                # Nothing in hand: what it imports takes no sample's time.
                transform = load(pickled, "transform")
            _make(message, transform, hand, parent)
        except BaseException as error:  # noqa: BLE001 - the parent raises it
            parent.send(FAILED, max(hand.value, message.number), encode(error))
            break
        finally:
            hand.value = NOTHING
    # What was sent before the failure is of no use any more.
    for _ in parent.messages():
        pass


def _make(message: Message, transform: Callable[[Any], Any], hand: Any, parent: Parent) -> None:
    """Send the samples of one chunk; those before one that fails, too."""
    parts: list[Part] = []
    first = message.number
    size_bytes = 0
    since = time.perf_counter()

    def send(behind: int) -> None:
        nonlocal parts, first, size_bytes, since
        if len(parts) > 0:
            hand.value = NOTHING
            now = time.perf_counter()
            parent.send(SAMPLES, first, *parts, SECONDS.pack(now - since))
            parts, first, size_bytes, since = [], behind, 0, time.perf_counter()

    for number, item in enumerate(message.parts, message.number):
        hand.value = number
        try:
            sample = transform(load(item, f"item {number}"))
            payload, metadata = _to_parts(sample)
        except BaseException:
            send(number)
            hand.value = number
            raise
        parts.extend((payload, metadata))
        size_bytes += len(payload) + len(metadata)
        if size_bytes >= _SEND_BYTES or time.perf_counter() - since >= _SEND_SECONDS:
            send(number + 1)
    send(0)


class _NotPlainError(Exception):
    """A sample that would not arrive as it is."""


def _to_parts(sample: Any) -> tuple[Part, bytes]:
    """Return payload and pickled metadata, or why not and nothing.

    Only what certainly arrives as a writer in this process would have seen it is sent. All else
    the parent makes again for itself, so that result and error are those of a serial write.
    """
    try:
        if not isinstance(sample, tuple) or type(sample).__len__ is not tuple.__len__:
            raise _NotPlainError(f"transform returned {type(sample).__name__}")
        # Items as the writer takes them, whatever a subclass says.
        data, metadata = (tuple.__getitem__(sample, index) for index in range(len(sample)))
        return _to_payload(data), _to_metadata(metadata)
    except _NotPlainError as error:
        return str(error).encode(errors="replace"), b""
    except Exception as error:  # noqa: BLE001 - the parent finds out for itself
        return f"{type(error).__name__}: {text_of(error)}".encode(errors="replace"), b""


# Exact types only: a subclass may show one thing to pickle or to a view, another to the writer.
_PLAIN = frozenset({bool, int, float, str, type(None), dt.date})
_BUFFERS = frozenset({bytearray, memoryview})
# Of modules that are not imported for the question.
_NAMED_BUFFERS = frozenset(
    {
        ("array", "array"),
        ("mmap", "mmap"),
        ("numpy", "bytes_"),
        ("numpy", "memmap"),
        ("numpy", "ndarray"),
        ("pyarrow.lib", "Buffer"),
        ("pyarrow.lib", "ResizableBuffer"),
    }
)
_NAMED_VALUES = frozenset(
    ("numpy", name)
    for name in (
        *("bool", "bool_", "str_", "datetime64", "float16", "float32", "float64"),
        *(f"{sign}{size}" for sign in ("int", "uint") for size in (8, 16, 32, 64)),
        *("longlong", "ulonglong"),
    )
)
_NAMED_ZONES = frozenset({("zoneinfo", "ZoneInfo")})


def _is_one_of(kind: type, names: frozenset[tuple[str, str]]) -> bool:
    """Whether this is a class of such a module and name, and no other that says so."""
    module, name = kind.__module__, kind.__name__
    return (module, name) in names and getattr(sys.modules.get(module), name, None) is kind


def _to_payload(data: Any) -> bytes:
    kind = type(data)
    if kind is bytes:
        return cast("bytes", data)
    if kind not in _BUFFERS and not _is_one_of(kind, _NAMED_BUFFERS):
        raise _NotPlainError(f"the payload is a {kind.__name__}")
    with memoryview(data) as view:
        if view.ndim == 0 or not view.c_contiguous or not set(view.format).isdisjoint("OP&"):
            raise _NotPlainError(f"the payload is a {kind.__name__} of another layout")
        # A copy: transform may use its buffer again for the next sample.
        return view.tobytes()


def _to_metadata(metadata: Any) -> bytes:
    if type(metadata) is not dict:
        # As the writer reads them.
        is_dict = isinstance(metadata, dict)
        pairs = list(dict.items(metadata) if is_dict else metadata.items())
        if not all(type(pair) is tuple and len(pair) == 2 for pair in pairs):
            raise _NotPlainError("the metadata are no pairs")
        _check_keys([key for key, _ in pairs])
        metadata = dict(pairs)
        if len(metadata) != len(pairs):
            raise _NotPlainError("the metadata have a key twice")
    _check_keys(metadata)
    for key, value in metadata.items():
        if type(value) not in _PLAIN and not _arrives(value):
            raise _NotPlainError(f"the value of {key!r} is a {type(value).__name__}")
    return pickle.dumps(metadata, protocol=5)


def _check_keys(keys: Iterable[Any]) -> None:
    for key in keys:
        if type(key) is not str:
            raise _NotPlainError(f"a key of the metadata is a {type(key).__name__}")


def _arrives(value: Any) -> bool:
    """Whether a value that is not plain is the same on the other side."""
    kind = type(value)
    if kind is dt.datetime:
        zone = type(value.tzinfo)
        return zone in {type(None), dt.timezone} or _is_one_of(zone, _NAMED_ZONES)
    return _is_one_of(kind, _NAMED_VALUES)


def to_samples(parts: Sequence[Part]) -> Iterator[tuple[Part, Part]]:
    """Yield payload and metadata of `SAMPLES`, seconds left out."""
    return zip(parts[0:-1:2], parts[1:-1:2], strict=True)
