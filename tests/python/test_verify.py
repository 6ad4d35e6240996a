"""verify_cache reports every damage with its file, at the level that looks for it."""

import json
import shutil

import pytest
from conftest import directory_digest, numbered, put, run_script, written

import dataset_rt as drt

LEVELS = ["quick", "full", "deep"]
COMPRESSIONS = {
    "none": drt.ShardCompression(),
    "lz4": drt.ShardCompression(algo="lz4"),
    "zstd buffer": drt.ShardCompression(algo="zstd", scope="buffer"),
    "zstd dictionary": drt.ShardCompression(algo="zstd", dictionary_bytes=1024),
}


def made(runtime, directory, compression="none"):
    config = drt.WriterConfig(
        max_shard_bytes=3000, show_progress=False, shard_compression=COMPRESSIONS[compression]
    )
    return written(runtime, directory, numbered(300), config=config)


@pytest.fixture(scope="module")
def pristine(tmp_path_factory):
    with drt.DatasetRuntime(num_workers=2) as runtime:
        return made(runtime, tmp_path_factory.mktemp("pristine"))


@pytest.fixture
def broken(pristine, tmp_path):
    """A copy of a good cache to be damaged."""
    return shutil.copytree(pristine, tmp_path / "broken")


def files_of(path):
    return sorted(str(file.relative_to(path)) for file in path.rglob("*") if file.is_file())


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_a_fresh_cache_is_in_order_at_every_level(runtime, tmp_path, compression, level):
    report = drt.verify_cache(made(runtime, tmp_path, compression), level=level)
    assert report.ok, str(report)
    assert report
    assert report.findings == ()
    assert report.level == level
    assert report.files_checked > 3


def test_deeper_levels_check_more_bytes(pristine):
    quick, full, _ = (drt.verify_cache(pristine, level=level).bytes_checked for level in LEVELS)
    assert quick < full
    assert full >= sum(file.stat().st_size for file in (pristine / "shards").iterdir())


def test_quick_is_the_default(pristine):
    assert drt.verify_cache(pristine).level == "quick"


def damage(path, how):
    content = path.read_bytes()
    if how == "missing":
        path.unlink()
    elif how == "empty":
        put(path, b"")
    elif how == "cut":
        put(path, content[:-1])
    else:
        put(path, content + b"\0")


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("how", ["missing", "empty", "cut", "longer"])
def test_a_damaged_size_is_found_at_every_level_in_every_file(broken, pristine, level, how):
    for name in files_of(pristine):
        if name == "manifest.json" and how == "missing":
            continue
        damage(broken / name, how)
        report = drt.verify_cache(broken, level=level)
        assert not report.ok, name
        assert name in [finding.file for finding in report.findings], (name, report)
        put(broken / name, (pristine / name).read_bytes())


def test_every_finding_says_rule_severity_file_expected_and_found(broken):
    damage(broken / "index.bin", "cut")
    for finding in drt.verify_cache(broken).findings:
        assert all([finding.rule, finding.severity, finding.file, finding.expected, finding.found])
        assert finding.rule in str(finding)


def test_several_damages_give_several_findings(broken):
    damage(broken / "index.bin", "cut")
    damage(broken / "metadata.arrow", "cut")
    files = {finding.file for finding in drt.verify_cache(broken).findings}
    assert files >= {"index.bin", "metadata.arrow"}


@pytest.mark.parametrize("level", LEVELS)
def test_a_check_that_damage_ends_early_says_so(broken, pristine, level):
    flipped = (broken / "shards" / "000000.arrow").read_bytes()
    put(broken / "shards" / "000000.arrow", bytes([flipped[0]]) + flipped[1:-1] + b"?")
    damage(broken / "metadata.arrow", "missing")
    report = drt.verify_cache(broken, level=level)
    assert not report.is_complete
    assert report.files_checked == len(files_of(pristine)) - 1
    whole = drt.verify_cache(pristine, level=level)
    assert whole.is_complete
    assert whole.files_checked == len(files_of(pristine))


def test_a_damaged_payload_ends_no_check(broken):
    shard = broken / "shards" / "000000.arrow"
    content = bytearray(shard.read_bytes())
    content[content.index(b"payload-")] ^= 1
    put(shard, bytes(content))
    report = drt.verify_cache(broken, level="deep")
    assert [(finding.rule, finding.file) for finding in report.findings] == [
        ("F03", "shards/000000.arrow")
    ]
    assert report.is_complete


def test_extra_files_are_ignored(broken):
    (broken / "note.txt").write_text("mine")
    (broken / "shards" / ".DS_Store").write_text("")
    assert drt.verify_cache(broken, level="deep").ok


def test_files_exchanged_between_two_caches_are_found(runtime, broken, tmp_path):
    config = drt.WriterConfig(max_shard_bytes=3000, show_progress=False)
    other = written(runtime, tmp_path, numbered(300, start=1001), config=config)
    for name in ("metadata.arrow", "index.bin", "shards/000001.arrow"):
        kept = (broken / name).read_bytes()
        put(broken / name, (other / name).read_bytes())
        assert not drt.verify_cache(broken, level="deep").ok, name
        put(broken / name, kept)


def test_exchanged_shards_are_found(broken):
    first, second = (broken / "shards" / f"00000{i}.arrow" for i in (0, 1))
    kept = first.read_bytes()
    put(first, second.read_bytes())
    put(second, kept)
    assert not drt.verify_cache(broken, level="full").ok


def test_checking_changes_no_file(broken):
    damage(broken / "index.bin", "cut")
    before = directory_digest(broken)
    for level in LEVELS:
        drt.verify_cache(broken, level=level)
    assert directory_digest(broken) == before


def test_many_shards_need_few_descriptors(runtime, tmp_path):
    config = drt.WriterConfig(max_shard_bytes=50, show_progress=False)
    path = written(runtime, tmp_path, numbered(200), config=config)
    assert len(drt.open_cache(path).shards()) > 64
    script = """
        import resource, sys
        import dataset_rt as drt
        resource.setrlimit(resource.RLIMIT_NOFILE, (32, 32))
        print(drt.verify_cache(sys.argv[1], level="deep").ok)
    """
    assert run_script(script, path) == "True\n"


def test_the_report_is_json_with_the_same_fields(broken):
    damage(broken / "index.bin", "cut")
    report = drt.verify_cache(broken)
    found = json.loads(report.to_json())
    assert found["ok"] is False
    assert found["path"] == str(broken)
    assert found["findings"][0]["rule"] == report.findings[0].rule


def test_nothing_at_the_path_is_not_found(tmp_path):
    with pytest.raises(drt.NotFoundError, match="nowhere"):
        drt.verify_cache(tmp_path / "nowhere")


@pytest.mark.parametrize("level", ["", "QUICK", None, 1])
def test_an_unknown_level_is_refused(pristine, level):
    with pytest.raises(drt.InvalidInputError, match="deep"):
        drt.verify_cache(pristine, level=level)
