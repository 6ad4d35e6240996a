"""What tests of importers share: interrupted writes, applied transforms, small inputs."""

import io
import json
import pickle
import random
import tarfile

import pyarrow as pa
from conftest import directory_digest

import dataset_rt as drt

# Small shards, so that interrupted writes have finished ones.
SMALL = drt.WriterConfig(show_progress=False, max_shard_bytes=4096)


class Delegate:
    """A source that answers as another one does."""

    def __init__(self, source):
        self.source = source
        self.name = source.name
        self.fingerprint = source.fingerprint
        self.schema = source.schema
        self.provenance = source.provenance


class Applied(Delegate):
    """The samples of a source with a transform, made in this process."""

    def __iter__(self):
        return self.iter_from(0)

    def iter_from(self, start):
        return map(self.source.transform, self.source.iter_from(start))


def with_samples(source):
    """The source itself, or its samples where it has a transform."""
    return source if source.transform is None else Applied(source)


class Interrupted(Delegate):
    """Raises behind the first `count` samples."""

    def __init__(self, source, count):
        super().__init__(source)
        self.count = count

    def __iter__(self):
        left = self.count
        for item in self.source:
            if isinstance(item, pa.RecordBatch):
                yield item.slice(0, left)
                left -= min(left, item.num_rows)
            else:
                yield item
                left -= 1
            if left == 0:
                raise RuntimeError("the power went")


class Watched(Delegate):
    """Remembers where it was asked to begin."""

    started = None

    def __iter__(self):
        raise AssertionError("the write begins again")

    def iter_from(self, start):
        self.started = start
        return self.source.iter_from(start)


def write(runtime, source, directory, config=SMALL):
    (result,) = runtime.write_cache(source, directory, writer_config=config)
    return result


def assert_resumes(runtime, make, directory, total, seed=7):
    """Interrupted at random places and gone on with, a cache is the same to the byte."""
    source = make()
    # Sources go to processes that write them side by side.
    again = pickle.loads(pickle.dumps(source))
    assert (again.fingerprint, again.schema) == (source.fingerprint, source.schema)
    whole = write(runtime, with_samples(again), directory / "whole")
    assert isinstance(whole, drt.CacheWriteSuccess), whole
    assert drt.open_cache(whole.path).num_samples == total
    assert drt.verify_cache(whole.path, "deep").ok
    places = random.Random(seed).sample(range(total // 2, total), 3)
    for place in places:
        there = directory / f"at-{place}"
        failed = write(runtime, Interrupted(with_samples(make()), place), there)
        assert "the power went" in failed.message
        watched = Watched(with_samples(make()))
        result = write(runtime, watched, there)
        assert result.status == "resumed", result
        assert 0 < watched.started <= place, (watched.started, place)
        assert directory_digest(result.path) == directory_digest(whole.path)
    return drt.open_cache(whole.path)


def assert_begins_anywhere(make, places):
    """From any number on, a source yields what it yields behind as many samples."""
    everything = samples_of(make())
    for place in places:
        found = samples_of(make(), place)
        assert found == everything[place:], place


def refused(runtime, source, directory):
    """The message of a source that cannot be written."""
    result = write(runtime, source, directory)
    assert isinstance(result, drt.CacheWriteError), result
    return result.message


def is_stale(runtime, source, directory):
    """Whether the cache in `directory` was made from other files or options."""
    result = runtime.from_cache_sources(
        source, directory, reader_config=drt.ReaderConfig(seed=0), writer_config=SMALL
    ).results[0]
    if isinstance(result, drt.CacheWriteSuccess):
        assert result.status == "reused"
        return False
    assert "stale" in result.message or "fingerprint" in result.message, result.message
    return True


def samples_of(source, start=0):
    """Samples from number `start` on as (payload, metadata)."""
    found = []
    for item in with_samples(source).iter_from(start):
        if isinstance(item, pa.RecordBatch):
            rows = item.to_pylist()
            found += [(bytes(row.pop("payload")), row) for row in rows]
        else:
            found.append((bytes(item.data), dict(item.metadata)))
    return found


def shout(sample):
    """A transform at module level, as processes need it."""
    return drt.CacheInput(bytes(sample.data).upper(), {**sample.metadata, "loud": True})


def stumble(sample):
    """A transform that fails where the payload says so."""
    data = bytes(sample.data)
    if data == b"bad":
        raise OSError("truncated")
    return None if data == b"nothing" else drt.CacheInput(data, sample.metadata)


def put_tar(path, members, mode="w", **options):
    """Write a tar archive of (name, bytes)."""
    with tarfile.open(path, mode, **options) as archive:
        for name, data in members:
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
    return path


def pets(count, first=0):
    """Members of `count` samples with an image, a class and JSON."""
    for i in range(first, first + count):
        yield f"{i:04}.jpg", f"jpg-{i}".encode() * (i % 5 + 1)
        yield f"{i:04}.cls", str(i % 3).encode()
        yield f"{i:04}.json", json.dumps({"score": i / 4, "who": f"w{i}"}).encode()
