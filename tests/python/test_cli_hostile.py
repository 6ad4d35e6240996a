"""Nothing that stands in a cache drives the terminal, whatever it is."""

import pytest

pytest.importorskip("typer", reason="the command line needs the extra `cli`")

from cli_tools import Terminal, call
from conftest import put, written

from dataset_rt.inspection.payload_kind import payload_kind
from dataset_rt.progress import cells
from dataset_rt.text import cut, json_value, ranges_text, safe, size, value_text

EVIL = "\x1b[2J\x1b]0;owned\x07\r\n\t\x00\x7f\x9b31m\u202e\u2028\ud83d[red]:smile:"
NAMES = ["[bold]x[/bold]", "a\x1b[31mred", "line\nbreak", "right\u202eleft", "{task.total}"]
COMMANDS = (["inspect"], ["inspect", "--all"], ["head"], ["stats"], ["sample", "--by", NAMES[1]])


@pytest.fixture
def hostile(runtime, tmp_path):
    text = EVIL.replace("\ud83d", "")
    samples = [
        (text.encode() * 3, {name: text + str(i % 2) for name in NAMES} | {"long": "x" * 100_000})
        for i in range(6)
    ]
    return written(
        runtime,
        tmp_path / "caches",
        samples,
        name="[red]name[red] :smile:",
        fingerprint=text,
        provenance={text: text},
    )


def is_harmless(text):
    return all(letter.isprintable() or letter in "\n\u200c\u200d" for letter in text)


@pytest.mark.parametrize("columns", [None, 40, 60, 80, 200])
def test_what_is_shown_is_printable(hostile, columns):
    for command, *rest in COMMANDS:
        found = call(command, hostile, *rest, columns=columns)
        assert found.code == 0, found.err
        assert is_harmless(found.out), command
        if columns is not None:
            assert max(cells(line) for line in found.out.splitlines()) <= columns
    assert len(call("head", hostile).out) < 20_000


def test_markup_is_shown_and_not_obeyed(hostile):
    assert "[red]name[red] :smile:" in call("inspect", hostile).out
    assert "[bold]x[/bold]" in call("inspect", hostile).out


def test_errors_are_printable_too(hostile):
    for arguments in (
        ["head", hostile, "--columns", "nope"],
        ["inspect", hostile.parent / EVIL.replace("\ud83d", "").replace("\0", "")],
        ["unfinished", hostile.parent, "--remove", "a\x1b[31mred"],
    ):
        found = call(*arguments)
        assert found.code != 0
        assert is_harmless(found.err), found.err


@pytest.mark.parametrize("columns", [None, 40, 80])
def test_what_is_said_of_lost_samples_is_printable(hostile, columns):
    shard = hostile / "shards/000000.arrow"
    put(shard, bytes(shard.stat().st_size))
    for command in (["repair", "--dry-run"], ["verify"], ["stats", "--payloads"], ["head"]):
        found = call(*command, hostile, columns=columns)
        assert found.code == 1, command
        assert is_harmless(found.out), command
        assert is_harmless(found.err), command
        if columns is not None:
            assert max(cells(line) for line in found.out.splitlines()) <= columns


def test_a_terminal_gets_no_escape_of_the_cache(hostile):
    for command in ("inspect", "stats"):
        terminal = Terminal(command, hostile)
        assert terminal.finish() == 0
        for escape in (b"\x1b[2J", b"\x1b]0", b"\x07", b"\x9b", "\u202e".encode()):
            assert escape not in terminal.shown, command


def test_a_manifest_that_lies_drives_nothing(hostile):
    manifest = hostile / "manifest.json"
    text = manifest.read_text().replace('"[red]name[red] :smile:"', '"a\\u001b[2J\\nb"')
    text = text.replace('"shards/000000.arrow"', '"../../../etc/passwd\\u001b[2J"')
    put(manifest, text.encode())
    for command in ("inspect", "verify"):
        found = call(command, hostile)
        assert found.code == 1
        assert is_harmless(found.out)
        assert is_harmless(found.err)
    assert call("inspect", hostile, "--json").json["shards"][0]["size_bytes_found"] is None


def test_fifteen_hundred_columns_and_none(runtime, tmp_path):
    wide = written(
        runtime, tmp_path, [(b"", {f"c{i:04}": i for i in range(1500)})] * 3, name="wide"
    )
    none = written(runtime, tmp_path, [(b"x", {}), (b"y", {})], name="none")
    for command in ("inspect", "head", "stats"):
        for path in (wide, none):
            found = call(command, path, columns=80)
            assert found.code == 0, found.err
            assert len(found.out.splitlines()) < 80
    assert "c1499" in call("inspect", wide, "--all").out
    assert len(call("stats", wide, "--json").json["columns"]) == 1500
    assert "samples are payloads alone" in call("inspect", none).out
    assert call("cat", none, 0, "--metadata").json["metadata"] == {}


def test_texts_are_escaped_and_cut():
    assert is_harmless(safe(EVIL))
    assert safe("größe 狐狸 👨\u200d👩\u200d👧 שלום") == "größe 狐狸 👨\u200d👩\u200d👧 שלום"
    assert safe("a\nb\x1b") == "a\\nb\\x1b"
    for text in ("狐狸" * 30, "a" * 41, "é" * 100, "x" * 10**6):
        assert cells(cut(text)) <= 40
        assert cells(value_text(text)) <= 40
    assert value_text("short") == "short"


def test_sizes_have_three_digits_and_a_unit():
    shown = [size(number) for number in (0, 999, 1000, 999_949, 999_950, 10**18, 2**63)]
    assert shown == ["0 B", "999 B", "1.0 kB", "999.9 kB", "1.0 MB", "1.0 EB", "9.2 EB"]


def test_ranges_are_said_with_both_ends():
    assert ranges_text([(3, 4), (7, 1010)]) == "3, 7 to 1,009"
    assert ranges_text([(2 * i, 2 * i + 1) for i in range(9)]).endswith("14 and 1 more ranges")


def test_json_has_no_values_of_its_own():
    found = json_value({"n": float("nan"), "b": b"\x00\xff", "l": (float("inf"), None)})
    assert found == {"n": "NaN", "b": "AP8=", "l": ["Infinity", None]}


@pytest.mark.parametrize(
    ("payload", "kind"),
    [
        (b"", "empty"),
        (b"\x89PNG\r\n\x1a\n...", "PNG"),
        (b"RIFF\0\0\0\0WEBPVP8 ", "WebP"),
        (b"\x93NUMPY\x01\x00", "npy"),
        (b"BMW is a car", "UTF-8 text"),
        (b"BM\x0a\0\0\0....", "BMP"),
        (b'{"a": 1}', "JSON text"),
        ("größe".encode() * 200, "UTF-8 text"),
        ("狐".encode() * 171, "UTF-8 text"),
        (b"plain\x1b[31m", "bytes"),
        (b"\x00\x01\x02", "bytes"),
    ],
)
def test_payloads_are_called_what_they_look_like(payload, kind):
    assert payload_kind(payload[:512], len(payload)) == kind
