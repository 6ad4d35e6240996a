"""Exceptions on their way between processes, and what cannot be pickled; starts nothing."""

from __future__ import annotations

import pickle
import traceback
from typing import Any, NamedTuple

from dataset_rt.errors import InvalidInputError

IMPORTABLE = (
    "a process that is started imports what it needs by name: define it in a module, not in a "
    "notebook, a prompt or a function"
)


class WorkerException(RuntimeError):  # noqa: N818 - stands for exceptions of any name
    """Stands for an exception that could not be pickled; has its name and its text."""


def encode(error: BaseException) -> bytes:
    """Return an exception with its traceback and its cause as bytes; never fails."""
    described = _describe(error)
    try:
        trace = "".join(traceback.format_exception(error))
    except Exception:  # noqa: BLE001 - their own code may raise anything
        trace = f"{described.name}: {described.text}"
    cause = None if error.__cause__ is None else _describe(error.__cause__)
    # Lone surrogates are no reason to lose the rest.
    return pickle.dumps((described, trace, cause))


def decode(encoded: bytes | memoryview) -> BaseException:
    """Return the exception, its traceback as a note; a `WorkerException` where it is lost."""
    described, trace, cause = pickle.loads(encoded)  # noqa: S301 - our own process's
    error = _restore(described, trace)
    if cause is not None:
        # Its traceback is in the note already.
        error.__cause__ = _restore(cause)
    return error


class _Described(NamedTuple):
    """What goes from process to process of an exception."""

    pickled: bytes
    name: str
    text: str
    is_exception: bool


def _describe(error: BaseException) -> _Described:
    try:
        text = str(error)
    except Exception:  # noqa: BLE001 - their own code may raise anything
        text = "no text, since its __str__ failed"
    try:
        pickled = pickle.dumps(error)
        # The other side must not find out.
        if type(pickle.loads(pickled)) is not type(error):  # noqa: S301 - pickled here
            pickled = b""
    except Exception:  # noqa: BLE001 - as above
        pickled = b""
    return _Described(pickled, type(error).__name__, text, isinstance(error, Exception))


def _restore(described: _Described, trace: str | None = None) -> BaseException:
    error: BaseException
    try:
        error = pickle.loads(described.pickled)  # noqa: S301 - our own process's
        if trace is not None:
            error.add_note(f"raised in a worker process:\n{trace}")
    except Exception:  # noqa: BLE001 - their own code may raise anything
        base = WorkerException if described.is_exception else BaseException
        error = type(described.name, (base,), {"__module__": __name__})(described.text)
        if trace is not None:
            error.add_note(f"raised in a worker process, and cannot be pickled:\n{trace}")
    return error


def dump(value: object, what: str, advice: str) -> bytes:
    """Pickle something for a worker.

    Args:
        value: What to pickle.
        what: Its name in the error.
        advice: What to do where it cannot be pickled.

    Raises:
        InvalidInputError: It cannot be pickled.
    """
    try:
        return pickle.dumps(value, protocol=5)
    except Exception as error:
        raise InvalidInputError(
            f"{what} cannot be sent to a worker process: {type(error).__name__}: {error}; {advice}"
        ) from error


def load(pickled: bytes | memoryview, what: str) -> Any:
    """Unpickle something in a worker.

    Raises:
        InvalidInputError: It cannot be unpickled here.
    """
    try:
        return pickle.loads(pickled)  # noqa: S301 - the parent's own
    except Exception as error:
        raise InvalidInputError(
            f"{what} cannot be loaded in a worker process: {type(error).__name__}: {error}; "
            f"{IMPORTABLE}"
        ) from error
