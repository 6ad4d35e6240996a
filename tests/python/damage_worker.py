"""Damages one cache in every way there is, reads it each time, and prints what it did as JSON.

`python damage_worker.py TASK COMPRESSION DIRECTORY` is a process of its own: a signal, an abort or
memory without bound must end this process and not the test. Any wrong datum, untyped error or
unnoticed damage ends it with a traceback.
"""

import json
import os
import random
import re
import resource
import struct
import sys
import time
from collections import Counter
from contextlib import contextmanager
from pathlib import Path

import polars as pl
from conftest import ListSource, sealed

import dataset_rt as drt

BLOCK_BYTES = 65_536
MANIFEST, DIGESTS = "manifest.json", "digests.bin"
COMPRESSIONS = {
    "none": drt.ShardCompression(),
    "lz4": drt.ShardCompression(algo="lz4"),
    "zstd": drt.ShardCompression(algo="zstd"),
    "zstd dictionary": drt.ShardCompression(algo="zstd", dictionary_bytes=256),
    "zstd buffer": drt.ShardCompression(algo="zstd", scope="buffer"),
}
# Address space beyond what is taken at the start: an allocation sized by a lie fails for certain.
ADDRESS_SPACE_BYTES = 1 << 30
SAMPLED_FLIPS = 700
PLAIN = drt.ReaderConfig(seed=0, shuffle=False)
COPIED = drt.ReaderConfig(seed=0, shuffle=False, io="pread")
VALIDATED = drt.ReaderConfig(seed=0, shuffle=False, validate_cache=True)
UNVERIFIED = drt.ReaderConfig(seed=0, shuffle=False, verify=False)


def small_samples(compression, salt=0):
    """A few samples, one empty and one with a null; a dictionary needs more of them."""
    count = 24 if "dictionary" in compression else 4
    return [
        (
            b"" if i == 1 else f"payload {salt + i:02} of the cache; ".encode() * (1 + i % 3),
            {"n": (salt + i) * 1000, "s": None if i == 2 else f"row {salt + i:02}"},
        )
        for i in range(count)
    ]


def large_samples():
    """Payloads and cells that make shards and metadata several blocks long."""
    source = random.Random(11)
    return [
        (
            source.randbytes(source.randrange(30_000)) + b"text" * 500,
            {"n": i, "s": f"row {i} " + source.randbytes(2000).hex()},
        )
        for i in range(60)
    ]


class Bench:
    """A good cache, what it holds, and ways to damage and to read it."""

    def __init__(self, runtime, path, compression, samples, max_shard_bytes):
        self.runtime, self.samples, self.path = runtime, samples, path
        self.cases = Counter()
        config = drt.WriterConfig(
            show_progress=False,
            max_shard_bytes=max_shard_bytes,
            shard_compression=COMPRESSIONS[compression],
        )
        source = ListSource(path.name, samples)
        (result,) = runtime.write_cache(source, path.parent, writer_config=config)
        assert isinstance(result, drt.CacheWriteSuccess), result
        files = [file for file in sorted(path.rglob("*")) if file.is_file()]
        self.content = {str(file.relative_to(path)): file.read_bytes() for file in files}
        self.shards = [name for name in self.content if name.startswith("shards/")]
        assert len(self.shards) > 1
        assert ("dictionary.bin" in self.content) == ("dictionary" in compression)
        self.shard_tables = [shard.to_arrow() for shard in drt.open_cache(path).shards()]
        self.table = self.open(PLAIN).get_metadata()
        stored = pl.DataFrame([metadata for _, metadata in samples])
        assert self.table.select(stored.columns).equals(stored)
        assert self.read(PLAIN) == ([], "")

    def open(self, config):
        return self.runtime.cached_dataset([self.path], reader_config=config)

    def put(self, name, content):
        """Put another file in its place: abandoned readers still have the old one mapped."""
        new = self.path.parent / "new"
        new.write_bytes(content)
        new.replace(self.path / name)

    def restore(self, *names):
        for name in names:
            self.put(name, self.content[name])

    def read(self, config, refusals=drt.CorruptError):
        """Read everything; whatever comes must be right.

        Returns:
            The refused rows (None when the cache did not open) and the texts of all errors.
        """
        try:
            dataset = self.open(config)
        except refusals as error:
            return None, str(error)
        iterator, refused, texts = iter(dataset), [], []
        for row, (payload, metadata) in enumerate(self.samples):
            try:
                sample = next(iterator)
            except refusals as error:
                refused.append(row)
                texts.append(str(error))
            else:
                assert (sample.data, sample.metadata) == (payload, metadata), f"sample {row}"
        try:
            assert dataset.get_metadata().equals(self.table), "the table"
        except refusals as error:
            texts.append(str(error))
        return refused, "\n".join(texts)

    def read_shard(self, name):
        """Inspect one shard; the text of the error if it is refused."""
        number = self.shards.index(name)
        try:
            found = drt.open_cache(self.path).shards()[number].to_arrow()
        except drt.CorruptError as error:
            return str(error)
        assert found.equals(self.shard_tables[number]), "the shard"
        return ""

    def check(self, names, is_used=True):
        """The damage is refused by `validate_cache`, and nobody gets anything wrong.

        Args:
            names: The errors name one of these files.
            is_used: Whether reading by default has a use for what is damaged.
        """
        text = self.read(VALIDATED)
        assert text[0] is None, "validate_cache accepted it"
        assert any(name in text[1] for name in names), text[1]
        _, text = self.read(PLAIN)
        text += "".join(self.read_shard(name) for name in names if name in self.shards)
        assert not is_used or any(name in text for name in names), f"not noticed: {text}"

    def check_unverified(self):
        """Without verification anything typed may happen."""
        try:
            dataset = self.open(UNVERIFIED)
            dataset.get_metadata()
            list(dataset)
        except drt.InternalError:
            raise
        except drt.DatasetRTError:
            pass

    def damaged(self, kind, name, content, detail, is_used=True):
        """Try one file with other contents."""
        self.put(name, content)
        with case(f"{kind} of {name}: {detail}"):
            self.check([name], is_used)
            self.cases[kind] += 1


@contextmanager
def case(description):
    """Says of an exception in which case it came."""
    try:
        yield
    except BaseException as error:
        error.add_note(description)
        raise


def other_bytes(name, at, byte):
    """Values to put in the place of a byte; digits of the manifest stay digits for one of them."""
    if name not in (MANIFEST, DIGESTS):
        return [byte ^ 1 << at % 8]
    others = {byte ^ 1, byte ^ 0x80, byte ^ 1 << at % 8}
    if name == MANIFEST and chr(byte).isdigit():
        others.add(ord("0") + (byte - ord("0") + 1 + at % 9) % 10)
    return sorted(others)


def flip_every_byte(bench):
    for name, content in bench.content.items():
        for at, byte in enumerate(content):
            for other in other_bytes(name, at, byte):
                changed = content[:at] + bytes([other]) + content[at + 1 :]
                # Files of one block have no block digests: nobody needs this one.
                bench.damaged(
                    "flips", name, changed, f"byte {at} {byte} -> {other}", name != DIGESTS
                )
                if at % 4 == 0:
                    bench.check_unverified()
                    bench.cases["flips read unverified"] += 1
        bench.restore(name)


def cut_and_extend(bench):
    for name, content in bench.content.items():
        for size in range(len(content)):
            bench.damaged("truncations", name, content[:size], f"{size} bytes left")
        for more in (b"\0", b"\n", b"}", bytes(65_536), os.urandom(65_536)):
            bench.damaged("extensions", name, content + more, f"{len(more)} bytes more")
        bench.restore(name)


def move_files(bench, other):
    """Missing files, files in each other's place, files of a cache of equal shape."""
    for name, content in bench.content.items():
        (bench.path / name).unlink()
        with case(f"{name} missing"):
            for config in (PLAIN, VALIDATED):
                rows, text = bench.read(config, (drt.CorruptError, drt.NotFoundError))
                assert rows is None
                assert name in text
            bench.cases["missing files"] += 1
        bench.put(name, content)
    for first, content in bench.content.items():
        for second in [name for name in bench.content if name > first]:
            bench.put(second, content)
            bench.put(first, bench.content[second])
            with case(f"{first} and {second} exchanged"):
                bench.check([first, second])
                bench.cases["exchanged files"] += 1
            bench.restore(second)
        bench.restore(first)
    for name, content in other.content.items():
        if content != bench.content[name]:
            bench.put(name, content)
            # A foreign manifest is right in itself: then the files beside it are wrong.
            names = bench.content if name == MANIFEST else [name]
            with case(f"{name} of another cache"):
                bench.check(names)
                bench.cases["foreign files"] += 1
        bench.restore(name)


def craft_numbers(bench):
    """Every number of the manifest replaced, with its digest as it was and with the right one."""
    text = bench.content[MANIFEST].decode()
    refusals = (drt.CorruptError, drt.UnsupportedError)
    for number in re.finditer(r"(?<=: )\d+(?=,?\n)", text):
        line = text[text.rindex("\n", 0, number.start()) : number.start()].strip()
        for value in ("0", "-1", str(1 << 32), str(1 << 63), str((1 << 64) - 1), "1e308"):
            changed = text[: number.start()] + value + text[number.end() :]
            if value == number[0]:
                continue
            bench.damaged("numbers", MANIFEST, changed.encode(), f"{line} {value}")
            bench.put(MANIFEST, sealed(changed).encode())
            with case(f"sealed: {line} {value}"):
                rows, met = bench.read(VALIDATED, refusals)
                assert rows is None, "validate_cache accepted it"
                # The number is right for this digest: what disagrees with it may be named instead.
                assert any(name in met for name in [*bench.content, "format version"]), met
                bench.read(PLAIN, refusals)
                bench.check_unverified()
                bench.cases["numbers under a right digest"] += 1
    bench.restore(MANIFEST)


def flip_large(bench, compression):
    """Sampled flips; what does not lie in the damaged block reads on."""
    places = [(name, size) for name, size in sizes(bench).items() if name != MANIFEST]
    chooser = random.Random(5)
    for number in range(SAMPLED_FLIPS):
        name, size = chooser.choices(places, [size for _, size in places])[0]
        at = chooser.randrange(size)
        content = bench.content[name]
        bench.put(name, content[:at] + bytes([content[at] ^ 1 << number % 8]) + content[at + 1 :])
        with case(f"byte {at} of {name}"):
            refused, text = bench.read(COPIED if number % 2 else PLAIN)
            assert refused is not None, text
            check_rest_reads_on(bench, compression, name, at, refused)
            if number % 10 == 0:
                bench.check([name])
            bench.cases["sampled flips over many blocks"] += 1
        bench.restore(name)


def sizes(bench):
    return {name: len(content) for name, content in bench.content.items()}


def check_rest_reads_on(bench, compression, name, at, refused):
    block = at // BLOCK_BYTES * BLOCK_BYTES
    if name in bench.shards:
        rows = bench.shard_tables[bench.shards.index(name)]["sample_id"].to_pylist()
        if compression == "zstd buffer":
            assert set(refused) <= set(rows)
            return
        touched = []
        for row in rows:
            offset, stored, _ = struct.unpack_from(
                "<QII", bench.content["index.bin"], 64 + 16 * row
            )
            if offset < block + BLOCK_BYTES and offset + stored > block:
                touched.append(row)
        assert refused == touched
    elif name == "metadata.arrow" and 0 < block < len(bench.content[name]) - BLOCK_BYTES:
        assert 0 < len(refused) < len(bench.samples)


def peak_rss_bytes():
    """The peak of this process; `ru_maxrss` would remember its parent's."""
    return status_bytes("VmHWM")


def status_bytes(key):
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith(key)).split()[1]) * 1024


def main(task, compression, directory):
    directory = Path(directory)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with drt.DatasetRuntime(num_workers=1) as runtime:
        if task == "small":
            limit = 700 if "dictionary" in compression else 80
            benches = [
                Bench(runtime, directory / part / "words", compression, samples, limit)
                for part, samples in {
                    "one": small_samples(compression),
                    "two": small_samples(compression, 50),
                }.items()
            ]
            steps = [
                lambda: flip_every_byte(benches[0]),
                lambda: cut_and_extend(benches[0]),
                lambda: move_files(*benches),
                lambda: craft_numbers(benches[0]),
            ]
        else:
            benches = [Bench(runtime, directory / "words", compression, large_samples(), 300_000)]
            steps = [lambda: flip_large(benches[0], compression)]
        limit = status_bytes("VmSize") + ADDRESS_SPACE_BYTES
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
        before, seconds = peak_rss_bytes(), {}
        for name, step in zip(("flips", "cuts", "moves", "numbers"), steps, strict=False):
            begun = time.monotonic()
            step()
            seconds[name] = round(time.monotonic() - begun, 1)
        assert benches[0].read(PLAIN) == ([], ""), "the cache was not put together again"
        outcome = {
            "cases": benches[0].cases,
            "bytes": sum(sizes(benches[0]).values()),
            "grown_bytes": peak_rss_bytes() - before,
            "seconds": seconds,
        }
    print(json.dumps(outcome))


if __name__ == "__main__":
    main(*sys.argv[1:])
