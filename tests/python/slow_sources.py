"""Sources that spawned processes can import; each is told by its arguments what to do."""

import ctypes
import datetime as dt
import os
import random
import signal
import sys
import threading
import time
import types
import zoneinfo
from pathlib import Path

import numpy as np
import pyarrow as pa

import dataset_rt as drt


def sample(number):
    """A sample that tells its number everywhere."""
    return drt.CacheInput(
        b"payload-%06d" % number * (number % 7), {"number": number, "half": number / 2}
    )


class Numbers:
    """Items 0 to count - 1; `at(number)` runs in `transform`."""

    fingerprint = "v1"

    def __init__(self, name, count, at=None):
        self.name, self.count, self.at = name, count, at

    def __len__(self):
        return self.count

    def __iter__(self):
        return iter(range(self.count))

    def iter_from(self, start):
        return iter(range(start, self.count))

    def transform(self, number):
        if self.at is not None:
            changed = self.at(number)
            if changed is not None:
                return changed
        return sample(number)


class SlowToLoad(Numbers):
    """Takes its time where it is unpickled, as imports do."""

    def __setstate__(self, state):
        time.sleep(2.5)
        self.__dict__.update(state)


class Plain:
    """The same samples from `__iter__`; `at(number)` runs there."""

    def __init__(self, name, count, at=None, fingerprint="v1"):
        self.name, self.count, self.at, self.fingerprint = name, count, at, fingerprint

    def __iter__(self):
        for number in range(self.count):
            if self.at is not None:
                self.at(number)
            yield sample(number)


class At:
    """Does something to one sample, only once if there is a file to remember it by."""

    def __init__(self, number, what, *arguments, marker=None):
        self.number, self.what, self.arguments, self.marker = number, what, arguments, marker

    def __call__(self, number):
        if number != self.number:
            return None
        if self.marker is not None:
            if Path(self.marker).exists():
                return None
            Path(self.marker).touch()
        return self.what(*self.arguments)


class CustomError(Exception):
    """Its arguments are not those of its constructor: it does not come back from a pickle."""

    def __init__(self, one, two):
        super().__init__(f"{one} and {two}")


class HalfPickled:
    """A value that can be pickled, but not be unpickled."""

    def __reduce__(self):
        return fail, (ValueError("not to be unpickled"),)


class OtherInt(int):
    def __reduce__(self):
        return int, (int(self) + 1,)


class OtherFloat(float):
    def __reduce__(self):
        return float, (1.25,)


class OtherText(str):
    __slots__ = ()

    def __reduce__(self):
        return str, ("other",)


class OtherBytes(bytes):
    def __reduce__(self):
        return bytes, (b"other",)


class OtherMoment(dt.datetime):
    def __reduce_ex__(self, protocol):
        return dt.datetime, (2001, 1, 1)


class OtherZone(dt.tzinfo):
    """Is another zone once it was pickled."""

    def __init__(self, key="Europe/Zurich"):
        self.key = key

    def utcoffset(self, moment):
        return dt.timedelta(hours=1)

    def dst(self, moment):
        return dt.timedelta(0)

    def __reduce__(self):
        return OtherZone, ("Asia/Tokyo",)


class HalfPickledInt(int):
    """A number that can be pickled, but not be unpickled."""

    def __reduce__(self):
        return fail, (ValueError("not to be unpickled"),)


def fail(error):
    raise error


class ExitError(Exception):
    """Ends the program when it is pickled."""

    def __reduce__(self):
        sys.exit(3)


class ExitTextError(Exception):
    """Ends the program when it is shown."""

    def __str__(self):
        raise SystemExit(4)


class ExitElsewhereError(Exception):
    """Ends the program where it did not come from."""

    def __init__(self, pid=None):
        super().__init__("of one process")
        self.pid = pid or os.getpid()
        if self.pid != os.getpid():
            sys.exit(5)

    def __reduce__(self):
        return type(self), (self.pid,)


def fail_as(error):
    raise error()


def fail_custom():
    raise CustomError("one", "two")


def fail_locked():
    error = ValueError("with a lock")
    error.lock = threading.Lock()
    raise error


def die(number=signal.SIGKILL):
    os.kill(os.getpid(), number)
    time.sleep(60)


def interrupt():
    os.kill(os.getpid(), signal.SIGINT)


def wait_for(path):
    while not Path(path).exists():
        time.sleep(0.01)


def end_when(path):
    wait_for(path)
    raise SystemExit(3)


def begin_and_wait(path):
    Path(path).touch()
    time.sleep(60)


def leave(code):
    os._exit(code)


def leave_with(number, _connection, hand):
    """What a process does that dies with this sample in hand."""
    hand.value = number
    os._exit(0)


def skewed(number):
    """Some samples take a hundred times what others take."""
    end = time.perf_counter() + (0.1 if number % 50 == 3 else 0.001)
    while time.perf_counter() < end:
        pass


def large(number):
    return drt.CacheInput(bytes([number % 251]) * 256 * 1024, {"number": number})


def large_behind_a_slow_one(number):
    if number == 0:
        time.sleep(1.0)
    return large(number)


_REUSED = bytearray(8)


def in_one_buffer(number):
    """The payload of every sample is in the same buffer, and so are the metadata."""
    _REUSED[:] = b"%08d" % number
    _SHARED["number"] = number
    return drt.CacheInput(_REUSED, _SHARED)


_SHARED = {"number": 0}


class ReusedItems(Numbers):
    """Yields the same list again and again."""

    def __iter__(self):
        item = [0]
        for number in range(self.count):
            item[0] = number
            yield item

    iter_from = None

    def transform(self, item):
        return sample(item[0])


ZURICH = zoneinfo.ZoneInfo("Europe/Zurich")
COLUMNS = ("flag", "count", "score", "text", "day", "moment", "local", "small", "single")


def any_sample(number):
    """A sample of random bytes in any buffer, and any values that may be stored."""
    draw = random.Random(number)
    data = draw.randbytes(draw.choice([0, 1, 7, 100, 5000]))
    even = data[: len(data) // 4 * 4]
    payload = draw.choice(
        [
            data,
            bytearray(data),
            memoryview(data),
            np.frombuffer(data, np.uint8),
            np.frombuffer(even, np.float32).reshape(-1, 1),
            pa.py_buffer(data),
            np.bytes_(data),
        ]
    )
    moment = dt.datetime(2020, 1, 1) + dt.timedelta(microseconds=draw.getrandbits(50))
    values = {
        "flag": draw.choice([True, False, np.True_, None]),
        "count": draw.choice([draw.getrandbits(62), np.int16(-5), np.uint8(200), -(2**63), None]),
        "score": draw.choice([draw.random(), np.float32(0.1), float("nan"), -0.0, None]),
        "text": draw.choice(["", "wörter", "日本" * draw.randrange(9), np.str_("numpy"), None]),
        "day": draw.choice([moment.date(), None]),
        "moment": draw.choice([moment, None]),
        "local": draw.choice([moment.replace(tzinfo=ZURICH), None]),
        "small": np.int8(draw.randrange(-100, 100)),
        "single": np.float64(draw.random()),
    }
    metadata = {key: values[key] for key in COLUMNS}
    if number == 0:
        metadata = {key: values[key] if values[key] is not None else FIRST[key] for key in COLUMNS}
    return drt.CacheInput(payload, draw.choice([dict, types.MappingProxyType])(metadata))


FIRST = {
    "flag": True,
    "count": 1,
    "score": 0.5,
    "text": "first",
    "day": dt.date(2020, 2, 29),
    "moment": dt.datetime(2020, 2, 29, 12),
    "local": dt.datetime(2020, 2, 29, 12, tzinfo=ZURICH),
}

# What a transform may return by mistake: what happens then is what happens without processes.
ODD = {
    "not a sample": lambda: [b"", {}],
    "nothing": lambda: False,
    "a batch": lambda: pa.record_batch({"payload": [b"a", b"b"], "number": [1, 2]}),
    "payload of text": lambda: drt.CacheInput("text", sample(3).metadata),
    "payload of a number": lambda: drt.CacheInput(np.int64(3), sample(3).metadata),
    "payload of numpy text": lambda: drt.CacheInput(np.str_("x"), sample(3).metadata),
    "payload with gaps": lambda: drt.CacheInput(np.arange(8)[::2], sample(3).metadata),
    "payload of objects": lambda: drt.CacheInput(np.array([None]), sample(3).metadata),
    "payload of one number": lambda: drt.CacheInput(np.array(7), sample(3).metadata),
    "no mapping": lambda: drt.CacheInput(b"", 5),
    "a missing key": lambda: drt.CacheInput(b"", {"number": 3}),
    "another type": lambda: drt.CacheInput(b"", {"number": "3", "half": 1.5}),
    "a value of no known type": lambda: drt.CacheInput(b"", {"number": [3], "half": 1.5}),
    "a value that cannot be pickled": lambda: drt.CacheInput(
        b"", {"number": threading.Lock(), "half": 1.5}
    ),
    "a value that cannot be unpickled": lambda: drt.CacheInput(
        b"", {"number": HalfPickled(), "half": 1.5}
    ),
    "a key that cannot be unpickled": lambda: drt.CacheInput(b"", {HalfPickledInt(3): 1}),
    "a lone surrogate": lambda: drt.CacheInput(b"", {"number": 3, "half": "\ud800"}),
}


# What may be stored, but would be something else on the other side of a pickle or of a view.
OTHER = {
    "a whole number": lambda: drt.CacheInput(b"", {"value": OtherInt(5)}),
    "a number": lambda: drt.CacheInput(b"", {"value": OtherFloat(2.5)}),
    "a text": lambda: drt.CacheInput(b"", {"value": OtherText("mine")}),
    "a moment": lambda: drt.CacheInput(b"", {"value": OtherMoment(2020, 2, 2)}),
    "a zone": lambda: drt.CacheInput(b"", {"value": dt.datetime(2020, 1, 1, tzinfo=OtherZone())}),
    "a key": lambda: drt.CacheInput(b"", {OtherText("mine"): 1}),
    "a payload": lambda: drt.CacheInput(OtherBytes(b"mine"), {"value": 1}),
    "pointers": lambda: drt.CacheInput((ctypes.c_char_p * 2)(b"a", b"b"), {"value": 1}),
    "numbers of C": lambda: drt.CacheInput((ctypes.c_int * 2)(5, 6), {"value": 1}),
}


class Others(Numbers):
    """Samples of one kind of `OTHER`."""

    def __init__(self, kind):
        super().__init__(kind, 3)

    def transform(self, _number):
        return OTHER[self.name]()


def odd(kind):
    return ODD[kind]()


class Nested(Plain):
    """Writes a cache of its own while it is iterated, by two processes."""

    def __init__(self, name, directory):
        super().__init__(name, 5)
        self.directory = directory

    def __iter__(self):
        config = drt.WriterConfig(num_processes=2, show_progress=False)
        with drt.DatasetRuntime(1) as runtime:
            results = runtime.write_cache(
                Numbers("a", 50),
                self.directory,
                writer_config=config,
            )
        assert all(isinstance(result, drt.CacheWriteSuccess) for result in results), results
        yield from super().__iter__()
