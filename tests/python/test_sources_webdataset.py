"""WebDataset shards as sources: grouping, metadata, damage, and what the library itself reads."""

import gzip
import itertools
import json
import os
import random
import re
import tarfile

import pyarrow as pa
import pytest
from conftest import run_script
from source_tools import (
    assert_begins_anywhere,
    assert_resumes,
    is_stale,
    pets,
    put_tar,
    refused,
    samples_of,
    shout,
    write,
)

import dataset_rt as drt
from dataset_rt.sources import WebDatasetSource
from dataset_rt.sources.webdataset import expand_braces


@pytest.fixture
def shards(tmp_path):
    """Three shards of 300 samples, one of them compressed."""
    folder = tmp_path / "shards"
    folder.mkdir()
    put_tar(folder / "pets-00.tar", pets(100))
    put_tar(folder / "pets-01.tar.gz", pets(100, 100), "w:gz")
    put_tar(folder / "pets-02.tar", pets(100, 200))
    return folder


def source_of(shards, **options):
    return WebDatasetSource("pets", shards, **{"payload": "jpg;png", **options})


def test_samples_are_grouped_by_key(shards):
    found = samples_of(source_of(shards))
    assert len(found) == 300
    assert found[101] == (
        b"jpg-101jpg-101",
        {"__key__": "0101", "cls": 2, "score": 25.25, "who": "w101"},
    )


def test_interrupted_shards_go_on(shards, tmp_path, runtime):
    cache = assert_resumes(runtime, lambda: source_of(shards), tmp_path, 300)
    assert cache.schema.names == ["__key__", "cls", "score", "who"]


def test_shards_begin_anywhere(shards):
    assert_begins_anywhere(lambda: source_of(shards), [0, 1, 99, 100, 101, 150, 299, 300])


def test_transformed_shards_go_on(shards, tmp_path, runtime):
    def make():
        return source_of(shards, transform=shout, transform_version="1")

    cache = assert_resumes(runtime, make, tmp_path, 300)
    assert bytes(cache.payload(299)) == b"JPG-299" * 5


def test_endings_and_keys_are_those_of_the_library(tmp_path):
    members = [
        ("./a/b.c/x.JPG", b"1"),
        ("./a/b.c/x.meta.json", b'{"k": null}'),
        ("./a/b.c/x.caption.txt", "ä".encode()),
        ("__about__/x.json", b"of the archive"),
        ("README", b"of nobody"),
        (".hidden", b"of nobody"),
        ("./a/b.c/y.jpg", b"2"),
        ("./a/b.c/y.meta.json", b'{"k": 1}'),
        ("./a/b.c/y.caption.txt", b"t"),
    ]
    put_tar(tmp_path / "a.tar", members)
    with pytest.raises(drt.InvalidInputError, match=r"'README'.*ignore=\['README'\]"):
        samples_of(source_of(tmp_path / "a.tar"))
    with pytest.raises(drt.InvalidInputError, match=r"'\.hidden'.*ignore=\['\.'\]"):
        samples_of(source_of(tmp_path / "a.tar", ignore=["README"]))
    found = samples_of(source_of(tmp_path / "a.tar", ignore=["."]))
    assert found == samples_of(source_of(tmp_path / "a.tar", ignore=["README", ".hidden"]))
    assert found == [
        (b"1", {"__key__": "./a/b.c/x", "meta.k": None, "caption.txt": "ä"}),
        (b"2", {"__key__": "./a/b.c/y", "meta.k": 1, "caption.txt": "t"}),
    ]


def test_braces_name_shards_in_order():
    assert expand_braces("a-{008..010}.tar") == ["a-008.tar", "a-009.tar", "a-010.tar"]
    assert expand_braces("{b,a}{1..2}") == ["b1", "b2", "a1", "a2"]
    assert expand_braces("{9..10}") == ["9", "10"]
    assert expand_braces("plain{x}") == ["plain{x}"]


def test_braces_read_those_shards(shards):
    (shards / "pets-01.tar.gz").rename(shards / "pets-01.tar")
    found = samples_of(source_of(shards / "pets-{02,00}.tar"))
    assert [m["__key__"] for _, m in found][:101:100] == ["0200", "0000"]
    # What a file is, its first bytes say.
    assert len(samples_of(source_of(shards / "pets-{00..02}.tar"))) == 300
    with pytest.raises(drt.NotFoundError, match="pets-03"):
        source_of(shards / "pets-{00..03}.tar")


def test_columns_choose_and_lacking_ones_are_null(tmp_path):
    put_tar(
        tmp_path / "a.tar",
        [
            ("a.jpg", b"1"),
            ("a.json", b'{"x": 1, "boxes": [1, 2]}'),
            ("b.jpg", b"2"),
        ],
    )
    found = samples_of(source_of(tmp_path / "a.tar", columns=["x"]))
    assert found == [(b"1", {"x": 1}), (b"2", {"x": None})]


def boxes_as_text(sample):
    metadata = {**sample.metadata, "boxes": json.dumps(sample.metadata.get("boxes"))}
    return drt.CacheInput(sample.data, metadata)


def test_nested_json_is_left_out_or_made_text(tmp_path, runtime):
    shards = tmp_path / "a.tar"
    members = [("a.jpg", b"1"), ("a.json", b'{"x": 1, "boxes": [[1, 2]], "y": "t", "o": {}}')]
    put_tar(shards, members)
    found = r"a\.json.*'boxes'.*JSON list.*columns={}, or keep it as text: a transform="
    kept = re.escape("['__key__', 'x', 'y']")
    with pytest.raises(drt.InvalidInputError, match=found.format(kept)):
        samples_of(source_of(shards))
    chosen = {"columns": ["y", "boxes", "o"]}
    with pytest.raises(drt.InvalidInputError, match=found.format(re.escape("['y']"))):
        samples_of(source_of(shards, **chosen))
    schema = pa.schema([("x", pa.int64()), ("y", pa.string())])
    with pytest.raises(drt.InvalidInputError, match=found.format(re.escape("['x', 'y']"))):
        samples_of(source_of(shards, schema=schema))
    assert samples_of(source_of(shards, schema=schema, columns=["x", "y"])) == [
        (b"1", {"x": 1, "y": "t"})
    ]
    schema = pa.schema([("x", pa.int64()), ("boxes", pa.string())])
    source = source_of(
        shards,
        columns=["x", "boxes"],
        schema=schema,
        transform=boxes_as_text,
        transform_version="1",
    )
    assert samples_of(source) == [(b"1", {"x": 1, "boxes": "[[1, 2]]"})]
    config = drt.WriterConfig(num_processes=2)
    (result,) = runtime.write_cache(source, tmp_path / "caches", writer_config=config)
    assert drt.open_cache(result.path).metadata()["boxes"].to_list() == ["[[1, 2]]"]
    # What a transform leaves nested is refused where it is stored.
    source = source_of(shards, transform=shout, transform_version="1")
    assert "boxes" in refused(runtime, source, tmp_path / "other")


def test_members_are_never_dropped_silently(tmp_path):
    put_tar(tmp_path / "a.tar", [("a.jpg", b"1"), ("a.seg.png", b"2")])
    with pytest.raises(drt.InvalidInputError, match=r"a\.seg\.png.*ignore=\['seg.png'\]"):
        samples_of(source_of(tmp_path / "a.tar"))
    ignoring = source_of(tmp_path / "a.tar", ignore=["seg.png"])
    assert samples_of(ignoring) == [(b"1", {"__key__": "a"})]


@pytest.mark.parametrize(
    ("members", "message"),
    [
        ([("a.txt", b"x")], "sample 'a': expected a payload.*jpg or png, found \\['txt'\\]"),
        ([("a.jpg", b"x"), ("a.jpg", b"y")], "has a member 'jpg' already"),
        ([("a.jpg", b"x"), ("a.cls", b"seven")], "'a.cls': expected an integer .*'seven'"),
        ([("a.jpg", b"x"), ("a.cls", b"1_000")], "'a.cls': expected an integer .*'1_000'"),
        ([("a.jpg", b"x"), ("a.cls", "٣".encode())], "'a.cls': expected an integer .*digits 0"),
        ([("a.jpg", b"x"), ("a.json", b"{")], "'a.json': expected JSON .*line 1 column 2"),
        ([("a.jpg", b"x"), ("a.json", b"[" * 100_000)], "'a.json': expected JSON .*too deep"),
        ([("a.jpg", b"x"), ("a.json", b'{"k": ' + b"9" * 5000)], "'a.json': .*thousands of digits"),
        ([("a.jpg", b"x"), ("a.json", b'{"k": 1, "k": 2}')], "'a.json': .*the key 'k' twice"),
        ([("a.jpg", b"x"), ("a.txt", b"\xff")], "'a.txt': expected text .*byte 0xff at 0"),
        ([("a.jpg", b"x"), ("a.cls", b"1"), ("a.json", b'{"cls": 1}')], "'cls' comes from another"),
    ],
)
def test_broken_samples_are_named(tmp_path, members, message):
    put_tar(tmp_path / "a.tar", members)
    with pytest.raises(drt.InvalidInputError, match=rf"a\.tar: .*{message}"):
        samples_of(source_of(tmp_path / "a.tar"))


def test_links_are_refused(tmp_path):
    (tmp_path / "x").write_bytes(b"1")
    with tarfile.open(tmp_path / "a.tar", "w") as archive:
        entry = tarfile.TarInfo("a.jpg")
        entry.type, entry.linkname = tarfile.SYMTYPE, "x"
        archive.addfile(entry)
    with pytest.raises(drt.InvalidInputError, match=r"'a\.jpg': expected a file, found a link"):
        samples_of(source_of(tmp_path / "a.tar"))


def test_every_cut_of_a_shard_is_noticed(tmp_path):
    whole = put_tar(tmp_path / "whole.tar", pets(4)).read_bytes()
    end = len(whole.rstrip(b"\0"))
    places = [
        0,
        1,
        511,
        512,
        513,
        *range(512, end + 1, 512),
        *random.Random(1).sample(range(end), 20),
    ]
    for place in places:
        (tmp_path / "cut.tar").write_bytes(whole[:place])
        with pytest.raises(drt.InvalidInputError, match=r"cut\.tar"):
            samples_of(source_of(tmp_path / "cut.tar"))


def test_damaged_headers_are_no_early_end(tmp_path):
    whole = bytearray(put_tar(tmp_path / "whole.tar", pets(4)).read_bytes())
    headers = [at for at in range(0, len(whole), 512) if whole[at + 257 : at + 262] == b"ustar"]
    assert len(headers) == 12
    for at in headers:
        data = bytearray(whole)
        data[at + 150] ^= 1
        (tmp_path / "bad.tar").write_bytes(data)
        with pytest.raises(drt.InvalidInputError, match=r"bad\.tar"):
            samples_of(source_of(tmp_path / "bad.tar"))
    (tmp_path / "two.tar").write_bytes(bytes(whole) + bytes(whole))
    with pytest.raises(drt.InvalidInputError, match="joined with cat"):
        samples_of(source_of(tmp_path / "two.tar"))


def test_damaged_gzip_is_noticed(tmp_path):
    data = bytearray(gzip.compress(put_tar(tmp_path / "a.tar", pets(50)).read_bytes()))
    for place in (len(data) // 2, len(data) - 4):
        broken = bytearray(data)
        broken[place] ^= 0xFF
        (tmp_path / "b.tar.gz").write_bytes(broken)
        with pytest.raises(drt.InvalidInputError, match=r"b\.tar\.gz"):
            samples_of(source_of(tmp_path / "b.tar.gz"))
    (tmp_path / "b.tar.gz").write_bytes(data[:-40])
    with pytest.raises(drt.InvalidInputError, match=r"b\.tar\.gz"):
        samples_of(source_of(tmp_path / "b.tar.gz"))
    # Behind long padding, too.
    whole = gzip.compress(padded((tmp_path / "a.tar").read_bytes() + bytes(200_000)))
    wrong_sum = whole[:-8] + bytes([whole[-8] ^ 1]) + whole[-7:]
    for data in (wrong_sum, whole[:-5], whole + b"garbage"):
        (tmp_path / "b.tar.gz").write_bytes(data)
        with pytest.raises(drt.InvalidInputError, match=r"b\.tar\.gz: damaged"):
            samples_of(source_of(tmp_path / "b.tar.gz"))


def padded(data, record=65536):
    """A tar as it is written in large records."""
    return data + bytes(-len(data) % record)


def test_data_behind_long_padding_are_noticed(tmp_path):
    whole = put_tar(tmp_path / "whole.tar", pets(10)).read_bytes()
    long = padded(whole)
    (tmp_path / "a.tar").write_bytes(long)
    assert len(samples_of(source_of(tmp_path / "a.tar"))) == 10
    (tmp_path / "a.tar").write_bytes(long + whole)
    with pytest.raises(drt.InvalidInputError, match=r"a\.tar.*at byte 65536 .*joined with cat"):
        samples_of(source_of(tmp_path / "a.tar"))
    # A hole of 11 KiB that begins at a header.
    hole = 6 * 1024
    (tmp_path / "a.tar").write_bytes(long[:hole] + bytes(11264) + long[hole + 11264 :])
    with pytest.raises(drt.InvalidInputError, match=rf"a\.tar.*at byte {hole + 11264} "):
        samples_of(source_of(tmp_path / "a.tar"))


def test_an_error_names_shard_and_member_through_the_writer(shards, tmp_path, runtime):
    data = bytearray((shards / "pets-02.tar").read_bytes())
    (shards / "pets-02.tar").write_bytes(data[: len(data) // 2])
    message = refused(runtime, source_of(shards), tmp_path / "c")
    assert "pets-02.tar" in message
    assert "member '02" in message


def header(kind, size, name="x.jpg"):
    entry = tarfile.TarInfo(name)
    entry.type, entry.size = kind, size
    return entry.tobuf(tarfile.GNU_FORMAT)


def pax(record):
    return header(tarfile.XHDTYPE, len(record)) + record.ljust(512, b"\0")


PLAIN = header(tarfile.REGTYPE, 2) + b"hi".ljust(512, b"\0") + bytes(1024)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (header(tarfile.GNUTYPE_LONGNAME, 2**50) + bytes(512), "member '0.jpg': .*no memory holds"),
        (header(tarfile.GNUTYPE_LONGNAME, 2**80) + bytes(512), "member '0.jpg': .*"),
        (header(tarfile.REGTYPE, 2**62), "member 'x.jpg': expected at most 2147483647"),
        (header(tarfile.REGTYPE, 2**31), "member 'x.jpg': expected at most 2147483647"),
        (header(tarfile.REGTYPE, 2**80) + bytes(512), "member 'x.jpg': "),
        (header(tarfile.REGTYPE, -1024) + bytes(512), "member 'x.jpg': "),
        (pax(b"20 path=abcdefghijk\n") * 3000, "member '0.jpg': .*too many headers"),
        (pax(b"30 size=99999999999999999999\n") + PLAIN, "member "),
        (pax(b"13 size=-512\n") + PLAIN, "member "),
        (pax(b"15 size=-1536\n") + PLAIN, "member "),
        (pax(b"999999999 path=a\n") + PLAIN, "member "),
        (pax(b"0 path=a\n") + PLAIN, "member "),
        (pax(b"20 GNU.sparse.size=x\n") + PLAIN, "member .*a number belongs"),
    ],
)
def test_headers_of_any_contents_are_damage(tmp_path, data, message):
    (tmp_path / "a.tar").write_bytes(header(tarfile.REGTYPE, 0, "0.jpg") + data)
    with pytest.raises(drt.InvalidInputError, match=rf"a\.tar: .*{message}"):
        samples_of(source_of(tmp_path / "a.tar"))


def test_members_of_negative_length_make_no_circle(tmp_path):
    back = header(tarfile.REGTYPE, 0, "0.jpg") + header(tarfile.REGTYPE, -1024, "1.jpg")
    (tmp_path / "a.tar").write_bytes(back + bytes(1024))
    source = source_of(tmp_path / "a.tar", payload=None, ignore=["jpg"])
    with pytest.raises(drt.InvalidInputError, match=r"'1\.jpg': a length of -1024"):
        list(itertools.islice(source, 10))


def test_shards_rewritten_while_they_are_read_are_refused(tmp_path):
    path = tmp_path / "a.tar"
    for late in (False, True):
        put_tar(path, [(f"{i}.jpg", b"old" * 10_000) for i in range(5)])
        os.utime(path, (1, 1))
        samples = iter(source_of(path))
        for _ in range(4 if late else 1):
            assert next(samples).data == b"old" * 10_000
        put_tar(path, [(f"{i}.jpg", b"new" * 10_000) for i in range(5)])
        with pytest.raises(drt.InvalidInputError, match=r"a\.tar: changed since it was listed"):
            next(samples)


def test_changed_shards_are_stale(shards, tmp_path, runtime):
    write(runtime, source_of(shards), tmp_path / "c")
    assert not is_stale(runtime, source_of(shards), tmp_path / "c")
    assert is_stale(runtime, source_of(shards, payload="jpg"), tmp_path / "c")
    put_tar(shards / "pets-03.tar", pets(1, 300))
    assert is_stale(runtime, source_of(shards), tmp_path / "c")


def test_large_shards_are_read_in_little_memory(tmp_path):
    """60,000 members: Python's reader would remember each."""
    script = """
        import sys, tarfile
        from dataset_rt.sources import WebDatasetSource
        with open(sys.argv[1], "wb") as file:
            for i in range(30_000):
                for ending in ("jpg", "cls"):
                    entry = tarfile.TarInfo(f"{i:07}.{ending}")
                    entry.size = 1
                    file.write(entry.tobuf(tarfile.USTAR_FORMAT) + b"1" + bytes(511))
            file.write(bytes(10240))
        def peak():
            # Of this program; rusage counts what the one that started it had.
            status = open("/proc/self/status").read()
            return int(status.split("VmHWM:")[1].split()[0])
        before = peak()
        count = sum(1 for _ in WebDatasetSource("w", sys.argv[1], payload="jpg"))
        assert count == 30_000
        print(peak() - before)
    """
    assert int(run_script(script, tmp_path / "large.tar")) < 8_000


def test_the_library_sees_the_same_samples(shards):
    pytest.importorskip("webdataset", reason="webdataset is not importable: see make torch")
    script = """
        import json, sys, webdataset
        for sample in webdataset.WebDataset(sys.argv[1:], shardshuffle=False):
            print(json.dumps([sample["jpg"].decode(), {
                "__key__": sample["__key__"],
                "cls": int(sample["cls"]),
                **json.loads(sample["json"]),
            }]))
    """
    # On its own: the library leaves files open, which is an error in our tests.
    theirs = [
        json.loads(line) for line in run_script(script, *sorted(shards.iterdir())).split("\n")[:-1]
    ]
    ours = [[payload.decode(), metadata] for payload, metadata in samples_of(source_of(shards))]
    assert theirs == ours
