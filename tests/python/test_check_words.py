"""A verification in words: nothing is said to be checked that damage left out."""

import pytest
from conftest import numbered, put, written

from dataset_rt import verify_cache
from dataset_rt.inspection.caches import report_of_remains
from dataset_rt.inspection.checks import MEANING, amount, checked, shortened, verdict

LEVELS = ["quick", "full", "deep"]


@pytest.fixture
def cache(runtime, tmp_path):
    return written(runtime, tmp_path, numbered(40))


def test_a_whole_cache_was_checked_as_its_level_says(cache):
    words = [(checked(report), verdict(report)) for report in reports(cache)]
    assert words == [
        (
            "manifest, sizes and structure; payloads were not read",
            "structure ok, payloads not read",
        ),
        ("every byte against its digest", "every byte verified"),
        ("every byte against its digest, every row and value", "every byte and value verified"),
    ]


def reports(cache):
    return [verify_cache(cache, level) for level in LEVELS]


def test_only_the_deepest_level_reads_twice_and_says_so(cache):
    whole = sum(file.stat().st_size for file in cache.rglob("*") if file.is_file())
    quick, full, deep = reports(cache)
    assert "twice" not in amount(quick) + amount(full)
    assert amount(full) == f"5 files, {whole / 1000:.1f} kB"
    assert amount(deep).endswith(", most read twice")
    (cache / "index.bin").unlink()
    assert "twice" not in amount(verify_cache(cache, "deep"))


@pytest.mark.parametrize("damage", ["missing", "cut"])
def test_rows_that_were_not_compared_are_not_said_to_be(cache, damage):
    file = cache / "metadata.arrow"
    file.unlink() if damage == "missing" else put(file, file.read_bytes()[:-9])
    why = "since files are missing or cut"
    read = "every byte that is there against its digest"
    assert [checked(report) for report in reports(cache)] == [
        f"manifest and sizes; structure was not compared, {why}",
        f"{read}; structure was not compared, {why}",
        f"{read}; rows and values were not compared, {why}",
    ]
    assert {verdict(report) for report in reports(cache)} == {"damaged"}


def test_a_malformed_file_ends_the_comparison_of_rows(cache):
    file = cache / "metadata.arrow"
    content = file.read_bytes()
    put(file, content[:-1] + b"?")
    deep = verify_cache(cache, "deep")
    assert checked(deep).endswith("rows and values were not compared, since files are malformed")
    assert "rows" not in checked(verify_cache(cache, "full"))


def test_of_a_damaged_manifest_nothing_else_was_checked(cache):
    manifest = cache / "manifest.json"
    put(manifest, manifest.read_bytes().replace(b"words", b"wards"))
    alone = "the manifest alone; nothing else, since it is missing or damaged"
    assert {checked(report) for report in reports(cache)} == {alone}
    manifest.unlink()
    assert checked(report_of_remains(cache, "deep")) == alone


def test_a_flipped_byte_of_a_payload_leaves_nothing_out(cache):
    shard = cache / "shards" / "000000.arrow"
    content = bytearray(shard.read_bytes())
    content[content.index(b"payload-")] ^= 1
    put(shard, bytes(content))
    deep = verify_cache(cache, "deep")
    assert checked(deep) == "every byte against its digest, every row and value"
    for finding in deep.findings:
        assert finding.rule in MEANING


def test_digests_are_shortened_and_nothing_else():
    digest = "0123456789abcdef" * 4
    assert shortened(f"size 12, {digest}") == "size 12, 0123456789ab..."
    assert shortened(digest[:63]) == digest[:63]
