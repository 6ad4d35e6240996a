"""A directory of files as a source, labelled by its folders; knows nothing of images."""

from __future__ import annotations

import os
import stat
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, Unpack

import pyarrow as pa

from dataset_rt.arguments import AnyPath, to_path
from dataset_rt.errors import InvalidInputError, NotFoundError
from dataset_rt.samples import CacheInput
from dataset_rt.sources.inputs.files import FingerprintMaker, InputFile
from dataset_rt.sources.inputs.importer import (
    Importer,
    ImporterOptions,
    LoadThenTransform,
    Placed,
)

IMAGE_EXTENSIONS = (
    *(".jpg", ".jpeg", ".png", ".webp", ".gif", ".bmp", ".tif", ".tiff"),
    *(".jp2", ".avif", ".heic", ".ppm", ".pgm", ".pbm"),
)
"""What is taken for an image when nothing else is said."""


class _Item(NamedTuple):
    """A file that is not read yet."""

    name: str
    size_bytes: int
    mtime_ns: int
    label_id: int | None


class _Listed(NamedTuple):
    """What was found in a directory."""

    files: list[InputFile]
    left_out: dict[str, int]


class ImageFolderSource(Importer):
    """The files below `root / label / ...`, one sample each: payload is the file as it is.

    Metadata columns are `path` (relative to `root`, with `/`), `label` (the first directory of
    it) and `label_id` (its number among the sorted labels). Samples are sorted by the bytes of
    `path`. Files and directories whose names begin with `.` are left out, and files with other
    extensions; directories without files have no label. Links are followed. A dangling link, a
    circle of links, a name that is not UTF-8 and a file without label are errors that name it.

    The fingerprint is made of relative names, sizes and modification times: nothing is read. The
    files may move, but copies keep it only when they keep the times (`cp -a`, `rsync -a`).

    Args:
        root: The directory.
        name: Name of the source; that of the directory by default.
        extensions: Taken files, compared without case; `None` takes every file.
        labels: Whether directories are labels. Without, only `path` is stored, and files may lie
            in `root` itself.
        **options: See `ImporterOptions`. Files are read where `transform` runs.

    Raises:
        NotFoundError: `root` is no directory.
        InvalidInputError: On first use, for what is said above, or when there are no such files.

    Example:
        >>> from dataset_rt.sources import ImageFolderSource
        >>> (tmp_path / "pets" / "cat").mkdir(parents=True)
        >>> _ = (tmp_path / "pets" / "cat" / "1.jpg").write_bytes(b"...")
        >>> source = ImageFolderSource(tmp_path / "pets")
        >>> source.name, len(source), next(iter(source)).metadata
        ('pets', 1, {'path': 'cat/1.jpg', 'label': 'cat', 'label_id': 0})
    """

    kind = "image_folder"

    def __init__(
        self,
        root: AnyPath,
        *,
        name: str | None = None,
        extensions: Iterable[str] | None = IMAGE_EXTENSIONS,
        labels: bool = True,
        **options: Unpack[ImporterOptions],
    ) -> None:
        """See the class."""
        self._root = to_path(root, "root")
        super().__init__(Path(self._root).resolve().name if name is None else name, **options)
        if not os.path.isdir(self._root):
            raise NotFoundError(
                f"{self._root}: expected a directory of images, found none; correct the path"
            )
        if isinstance(extensions, str):
            raise TypeError(f"extensions must be a list: pass [{extensions!r}]")
        self._extensions = (
            None
            if extensions is None
            else tuple(sorted("." + e.lower().removeprefix(".") for e in extensions))
        )
        self._labels = labels

    def __len__(self) -> int:
        """Return the number of files; the directory is listed once."""
        return len(self._files)

    def iter_from(self, start: int) -> Iterator[Any]:
        """Yield samples, or the items of `transform`, from number `start` on."""
        numbers = {label: number for number, label in enumerate(self.labels)}
        load = _LoadFile(self._root)
        for file in self._files[start:]:
            label_id = numbers[_label_of(file.name)] if self._labels else None
            item = _Item(file.name, file.size_bytes, file.mtime_ns, label_id)
            yield load(item).sample if self._transform is None else item

    @property
    def transform(self) -> LoadThenTransform[_Item] | None:
        """Reads one file and makes its sample, `None` when nothing is transformed."""
        if self._transform is None:
            return None
        return LoadThenTransform(_LoadFile(self._root), self._transform)

    @cached_property
    def labels(self) -> list[str]:
        """The labels; their positions are `label_id`."""
        if not self._labels:
            return []
        return sorted({_label_of(file.name) for file in self._files}, key=str.encode)

    @property
    def _known_schema(self) -> pa.Schema:
        columns = [("path", pa.large_string())]
        if self._labels:
            columns += [("label", pa.large_string()), ("label_id", pa.int64())]
        return pa.schema(columns)

    def _computed_fingerprint(self, options: dict[str, object]) -> str:
        options |= {"extensions": self._extensions, "labels": self._labels}
        maker = FingerprintMaker(self.kind, options)
        for file in self._files:
            maker.add_file(file.name, file.size_bytes, file.mtime_ns)
        return maker.text()

    def _origin(self) -> Mapping[str, str]:
        return {"root": os.path.abspath(self._root)}

    @property
    def left_out(self) -> Mapping[str, int]:
        """Files that `extensions` leaves out, by their extensions, `""` for none.

        What begins with `.` is not counted.
        """
        return self._listed.left_out

    @property
    def _files(self) -> list[InputFile]:
        return self._listed.files

    @cached_property
    def _listed(self) -> _Listed:
        other = Counter[str]()
        files = []
        for name, found in _files_below(self._root):
            extension = os.path.splitext(name)[1].lower()
            if self._extensions is not None and extension not in self._extensions:
                other[extension] += 1
                continue
            self._check_name(name)
            # Paths are made when files are read: there may be millions.
            files.append(InputFile("", name, found.st_size, found.st_mtime_ns))
        if not files:
            expected = "files" if self._extensions is None else " ".join(self._extensions)
            raise InvalidInputError(
                f"{self._root}: expected {expected}, found none of them"
                + (f" but {' '.join(sorted(other))}; say which with extensions=" if other else "")
            )
        files.sort(key=lambda file: file.name.encode())
        return _Listed(files, dict(sorted(other.items())))

    def _check_name(self, name: str) -> None:
        try:
            name.encode()
        except UnicodeEncodeError:
            raise InvalidInputError(
                f"{self._root}: the name {os.fsencode(name)!r} is not UTF-8; rename the file"
            ) from None
        if self._labels and "/" not in name:
            raise InvalidInputError(
                f"{self._root}: {name} lies in no directory that gives its label; expected "
                "root/label/file: move it, or pass labels=False"
            )


@dataclass(frozen=True, slots=True)
class _LoadFile:
    """Reads the file of an item; goes to other processes, so it is small."""

    root: str

    def __call__(self, item: _Item) -> Placed:
        path = os.path.join(self.root, item.name)
        data = InputFile(path, item.name, item.size_bytes, item.mtime_ns).read()
        metadata: dict[str, Any] = {"path": item.name}
        if item.label_id is not None:
            metadata |= {"label": _label_of(item.name), "label_id": item.label_id}
        return Placed(path, CacheInput(data, metadata))


def _label_of(name: str) -> str:
    return name.partition("/")[0]


def _files_below(root: str) -> Iterator[tuple[str, os.stat_result]]:
    """Yield relative names of the files below a directory, their sizes and times; links followed.

    Directories wait on a list: a tree may be deeper than Python's stack.
    """
    waiting: list[tuple[str, frozenset[tuple[int, int]]]] = [("", frozenset())]
    while waiting:
        folder, above = waiting.pop()
        directory = os.path.join(root, folder)
        try:
            here = os.stat(directory)
            with os.scandir(directory) as found:
                entries = [entry for entry in found if not entry.name.startswith(".")]
        except OSError as error:
            raise InvalidInputError(
                f"{directory}: cannot be listed: {error.strerror}; mend its permissions"
            ) from error
        identity = (here.st_dev, here.st_ino)
        if identity in above:
            raise InvalidInputError(
                f"{directory}: a link back to a directory that holds it; remove the link"
            )
        for entry in entries:
            try:
                status = entry.stat()
            except OSError as error:
                raise InvalidInputError(
                    f"{entry.path!r}: expected a file, found a link to nothing "
                    f"({error.strerror}); remove it"
                ) from error
            if stat.S_ISDIR(status.st_mode):
                waiting.append((f"{folder}{entry.name}/", above | {identity}))
            elif stat.S_ISREG(status.st_mode):
                yield f"{folder}{entry.name}", status
