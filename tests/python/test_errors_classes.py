"""The exception classes: kinds, built-in bases, messages and pickling; needs no cache."""

import errno
import inspect
import pickle

import pytest

import dataset_rt
from dataset_rt import errors

CLASSES = [
    cls
    for _, cls in inspect.getmembers(errors, inspect.isclass)
    if issubclass(cls, errors.DatasetRTError) and cls is not errors.DatasetRTError
]

# Kinds are API: this table is added to, never edited.
KINDS = {
    "InvalidInputError": "InvalidInput",
    "SourceError": "InvalidInput",
    "FailedResultError": "InvalidInput",
    "CorruptError": "Corrupt",
    "NotFoundError": "NotFound",
    "SampleNotFoundError": "NotFound",
    "UnsupportedError": "Unsupported",
    "ConflictError": "Conflict",
    "UnavailableError": "Unavailable",
    "ExhaustedError": "Exhausted",
    "InternalError": "Internal",
    "FileUnsupportedError": "Unsupported",
    "FileConflictError": "Conflict",
    "FileUnavailableError": "Unavailable",
    "FileExhaustedError": "Exhausted",
}

BUILTIN_BASES = {
    "InvalidInputError": {ValueError},
    "SourceError": {RuntimeError},
    "FailedResultError": {AttributeError},
    "CorruptError": {ValueError},
    "NotFoundError": {OSError, FileNotFoundError},
    "SampleNotFoundError": {LookupError, IndexError},
    "UnsupportedError": {RuntimeError},
    "ConflictError": {RuntimeError},
    "UnavailableError": {RuntimeError},
    "ExhaustedError": {RuntimeError},
    "InternalError": {RuntimeError},
    "FileUnsupportedError": {RuntimeError, OSError},
    "FileConflictError": {RuntimeError, OSError},
    "FileUnavailableError": {RuntimeError, OSError},
    "FileExhaustedError": {RuntimeError, OSError},
}

every_class = pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)


def test_each_class_has_the_kind_of_the_table():
    assert {cls.__name__: cls.kind for cls in CLASSES} == KINDS


def test_each_class_has_the_builtin_bases_of_the_table():
    found = {
        cls.__name__: {
            base
            for base in cls.__mro__
            if base.__module__ == "builtins" and base not in (Exception, BaseException, object)
        }
        for cls in CLASSES
    }
    assert found == BUILTIN_BASES


@every_class
def test_each_class_is_exported_and_documented(cls):
    assert getattr(dataset_rt, cls.__name__) is cls
    assert cls.__name__ in dataset_rt.__all__
    assert cls.__doc__


@every_class
def test_the_text_is_exactly_the_message(cls):
    message = "shard 3: expected 7 rows, found 'äöü'\nsecond line"
    error = cls(message)
    assert str(error) == message
    if isinstance(error, OSError):
        error.errno = errno.ENOSPC
        error.filename = "somewhere"
        assert str(error) == message
    assert str(cls()) == ""


@every_class
def test_errors_survive_pickling(cls):
    error = cls("message")
    error.row = 7
    if isinstance(error, OSError):
        error.errno = errno.EIO
    loaded = pickle.loads(pickle.dumps(error))
    assert type(loaded) is cls
    assert str(loaded) == "message"
    assert loaded.row == 7
    if isinstance(error, OSError):
        assert loaded.errno == errno.EIO


def test_a_missing_cache_has_the_error_number_of_a_missing_file():
    error = errors.NotFoundError("no cache at x")
    assert (error.errno, str(error), error.args) == (errno.ENOENT, "no cache at x", (str(error),))


def test_file_twins_are_caught_as_their_kind_and_as_os_errors():
    for twin, kind in [
        (errors.FileConflictError, errors.ConflictError),
        (errors.FileUnavailableError, errors.UnavailableError),
        (errors.FileExhaustedError, errors.ExhaustedError),
        (errors.FileUnsupportedError, errors.UnsupportedError),
    ]:
        assert issubclass(twin, kind)
        assert issubclass(twin, OSError)
        assert not issubclass(kind, OSError)


def test_the_kinds_are_listed_in_the_module_documentation():
    for kind in set(KINDS.values()):
        assert f"| `{kind}` |" in errors.__doc__
