"""Every exception this library raises on its own; knows nothing of the code that raises them.

The kind of an error tells the caller what to do:

| kind | what to do |
| --- | --- |
| `InvalidInput` | fix the call or the source |
| `NotFound` | build the cache, or correct the path or identity |
| `Unsupported` | upgrade the library, or choose another option |
| `Corrupt` | rebuild the cache |
| `Conflict` | reopen, or choose another name |
| `Unavailable` | try again |
| `Exhausted` | make room (disk, memory, descriptors) |
| `Internal` | report it: a bug in this library |

Every message says what failed, what was expected, what was found, and where.
"""

from __future__ import annotations

import errno
from typing import Any, ClassVar


class DatasetRTError(Exception):
    """Root of all errors of this library; never raised itself.

    Attributes:
        kind: What the caller should do about it, see the table of this module.
    """

    kind: ClassVar[str]

    def __str__(self) -> str:
        """Return exactly the message, also for the classes that are `OSError` too."""
        return str(self.args[0]) if self.args else ""

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle message and attributes; `errno` is kept, which plain `OSError` would lose."""
        state = dict(self.__dict__)
        number = getattr(self, "errno", None)
        if number is not None:
            state["errno"] = number
        return (type(self), self.args, state)


class InvalidInputError(DatasetRTError, ValueError):
    """An argument, a source or a table breaks a rule: fix the call."""

    kind = "InvalidInput"


class SourceError(DatasetRTError, RuntimeError):
    """A source raised while it was iterated; `__cause__` is the source's own exception.

    The message names the source, the exception and the number of samples taken before it.
    """

    kind = "InvalidInput"


class FailedResultError(DatasetRTError, AttributeError):
    """`.dataset` or `.path` was asked of a result that is a failure: fix what its message says.

    It is an `AttributeError`, so that `hasattr` is false.
    """

    kind = "InvalidInput"


class CorruptError(DatasetRTError, ValueError):
    """A cache does not contain what its manifest promises: rebuild it."""

    kind = "Corrupt"


class NotFoundError(DatasetRTError, FileNotFoundError):
    """There is no cache at this path: build it, or correct the path. `errno` is `ENOENT`."""

    kind = "NotFound"

    def __init__(self, *args: object) -> None:
        super().__init__(*args)
        # Callers that catch FileNotFoundError may look at it.
        self.errno = errno.ENOENT


class SampleNotFoundError(DatasetRTError, IndexError):
    """No sample has this identity or position: take one that exists."""

    kind = "NotFound"


class UnsupportedError(DatasetRTError, RuntimeError):
    """A newer format or an option this version or machine lacks: upgrade, or choose another."""

    kind = "Unsupported"


class ConflictError(DatasetRTError, RuntimeError):
    """Something else stands there already, or was replaced meanwhile: reopen, or rename."""

    kind = "Conflict"


class UnavailableError(DatasetRTError, RuntimeError):
    """Not possible at this moment, for example a lock held by another writer: try again."""

    kind = "Unavailable"


class ExhaustedError(DatasetRTError, RuntimeError):
    """Disk, memory, descriptors or a stated limit ran out: make room."""

    kind = "Exhausted"


class InternalError(DatasetRTError, RuntimeError):
    """A bug in this library: please report it with the message."""

    kind = "Internal"


class FileUnsupportedError(UnsupportedError, OSError):
    """An `UnsupportedError` that came from the file system; `errno` is set."""


class FileConflictError(ConflictError, OSError):
    """A `ConflictError` that came from the file system; `errno` is set."""


class FileUnavailableError(UnavailableError, OSError):
    """An `UnavailableError` that came from the file system; `errno` is set."""


class FileExhaustedError(ExhaustedError, OSError):
    """An `ExhaustedError` that came from the file system; `errno` is set."""
