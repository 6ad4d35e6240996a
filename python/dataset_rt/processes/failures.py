"""Exceptions on their way between processes, and what cannot be pickled; starts nothing."""

from __future__ import annotations

import logging
import pickle
import traceback
from typing import Any, NamedTuple

from dataset_rt.errors import InvalidInputError

IMPORTABLE = (
    "a process that is started imports what it needs by name: define it in a module, not in a "
    "notebook, a prompt or a function"
)


_LOGGER = logging.getLogger("dataset_rt")


def log_failure(text: str, *values: object) -> None:
    """Warn in the log of a source that failed.

    Its caller gets the failure itself: where nobody listens to the log, nothing is printed.
    """
    if _LOGGER.hasHandlers():
        _LOGGER.warning(text, *values)


class WorkerException(RuntimeError):  # noqa: N818 - stands for exceptions of any name
    """Stands for an exception that could not be pickled; has its name and its text."""


class AskedToEnd(SystemExit):
    """The parent wants this process to end, or is gone: raised by a signal, swallowed by nobody."""


def encode(error: BaseException) -> bytes:
    """Return an exception with its traceback and its cause as bytes; never fails."""
    described = _describe(error)
    try:
        trace = "".join(traceback.format_exception(error))
    except AskedToEnd:
        raise
    except BaseException:  # noqa: BLE001 - their own code may raise anything
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


def text_of(error: BaseException) -> str:
    """Return the text of an exception, whatever its `__str__` does."""
    try:
        # Plain, whatever class its text has.
        return str.__str__(str(error))
    except AskedToEnd:
        raise
    except BaseException:  # noqa: BLE001 - their own code may raise anything
        return "no text, since its __str__ failed"


class _Described(NamedTuple):
    """What goes from process to process of an exception."""

    pickled: bytes
    name: str
    text: str
    is_exception: bool


def _describe(error: BaseException) -> _Described:
    try:
        pickled = pickle.dumps(error)
        # The other side must not find out.
        if type(pickle.loads(pickled)) is not type(error):  # noqa: S301 - pickled here
            pickled = b""
    except AskedToEnd:
        raise
    except BaseException:  # noqa: BLE001 - their own code may raise anything
        pickled = b""
    name = str.__str__(type(error).__name__)
    return _Described(pickled, name, text_of(error), isinstance(error, Exception))


def _restore(described: _Described, trace: str | None = None) -> BaseException:
    error: BaseException
    try:
        error = pickle.loads(described.pickled)  # noqa: S301 - our own process's
        if not isinstance(error, BaseException):
            raise TypeError
        if trace is not None:
            error.add_note(f"raised in a worker process:\n{trace}")
    except (AskedToEnd, KeyboardInterrupt):
        # The caller's own.
        raise
    except BaseException:  # noqa: BLE001 - their own code may raise anything
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
        # No other: a signal handler of the caller may raise anything here.
        raise InvalidInputError(
            f"{what} cannot be sent to a worker process: {type(error).__name__}: {text_of(error)}; "
            f"{advice}"
        ) from error


def load(pickled: bytes | memoryview, what: str) -> Any:
    """Unpickle something in a worker.

    Raises:
        InvalidInputError: It cannot be unpickled here.
    """
    try:
        return pickle.loads(pickled)  # noqa: S301 - the parent's own
    except AskedToEnd:
        raise
    except BaseException as error:
        raise InvalidInputError(
            f"{what} cannot be loaded in a worker process: {type(error).__name__}: "
            f"{text_of(error)}; {IMPORTABLE}"
        ) from error
