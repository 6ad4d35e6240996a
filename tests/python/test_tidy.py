"""The repository checks itself: sizes, arrows between crates and rooms, unsafe, error lists."""

import re
import subprocess
import tomllib
from pathlib import Path

from dataset_rt import errors

ROOT = Path(__file__).resolve().parents[2]
RUST = sorted(
    path for folder in ("conformance", "crates", "fuzz") for path in (ROOT / folder).rglob("*.rs")
)
PYTHON = sorted(
    path
    for folder in ("python", "tests", "examples", "benchmarks", "packaging", "website")
    for path in (ROOT / folder).rglob("*.py*")
    if path.suffix in {".py", ".pyi"}
)
LINES_MAX = 600
UNSAFE_FILES = {
    "crates/storage/src/store/guard.rs",
    "crates/storage/src/store/guard/tests.rs",
    "crates/storage/src/store/local.rs",
    "crates/storage/src/store/mapping.rs",
    "crates/storage/src/store/memory_file.rs",
    "crates/storage/src/store/shared_page.rs",
    "crates/runtime/src/handover/dataset.rs",
    "crates/runtime/src/handover/table.rs",
    "crates/ffi/src/capsules.rs",
    "crates/ffi/src/collector.rs",
    "crates/ffi/src/ending.rs",
    "crates/ffi/src/faces.rs",
    "crates/ffi/src/filling.rs",
    "crates/ffi/src/payload_in.rs",
    "crates/ffi/src/payload_out.rs",
    "crates/ffi/src/payloads.rs",
    "crates/ffi/src/samples.rs",
    "fuzz/targets/src/foreign.rs",
}
CRATE_ARROWS = {
    "dataset_rt_storage": set(),
    "dataset_rt_sampler": set(),
    "dataset_rt_validator": {"dataset_rt_storage"},
    "dataset_rt_runtime": {"dataset_rt_storage", "dataset_rt_sampler", "dataset_rt_validator"},
    "dataset_rt_ffi": {
        "dataset_rt_storage",
        "dataset_rt_sampler",
        "dataset_rt_validator",
        "dataset_rt_runtime",
    },
}


def name(path):
    return str(path.relative_to(ROOT))


def is_test(path):
    return "tests" in path.parts or path.stem == "tests" or "fuzz" in path.parts


def product_code(path):
    """The text in front of the first test module."""
    return path.read_text().split("#[cfg(test)]")[0]


def test_no_file_is_too_long():
    sizes = {name(path): len(path.read_text().splitlines()) for path in RUST + PYTHON}
    assert {path: lines for path, lines in sizes.items() if lines > LINES_MAX} == {}


def test_every_file_says_its_duty_first():
    silent = [
        name(path)
        for path in RUST + PYTHON
        if not path.read_text().lstrip("#").startswith(("//!", '"""', 'r"""'))
        and path.read_text().strip()
    ]
    assert silent == []


def test_crates_depend_one_way():
    for manifest in (ROOT / "crates").glob("*/Cargo.toml"):
        content = tomllib.loads(manifest.read_text())
        ours = {key for key in content["dependencies"] if key.startswith("dataset_rt")}
        assert ours <= CRATE_ARROWS[content["package"]["name"]], manifest


def test_writing_and_reading_do_not_know_each_other():
    storage = ROOT / "crates/storage/src"
    for path in (storage / "write").rglob("*.rs"):
        if not is_test(path):
            assert "crate::read" not in product_code(path), name(path)
    for path in (storage / "read").rglob("*.rs"):
        if not is_test(path):
            assert "crate::write" not in product_code(path), name(path)
    for path in (storage / "format").rglob("*.rs"):
        assert "crate::store" not in product_code(path), name(path)
    for path in (ROOT / "crates/validator/src").rglob("*.rs"):
        assert "storage::read::" not in product_code(path), name(path)


def test_unsafe_stays_in_its_files_and_each_block_is_argued():
    for path in RUST:
        lines = path.read_text().splitlines()
        for number, line in enumerate(lines):
            if re.search(r"\bunsafe (\{|impl|fn)", line.split("//")[0]):
                assert name(path) in UNSAFE_FILES, f"{name(path)}:{number + 1}"
                above = "\n".join(lines[max(0, number - 8) : number + 1])
                assert "SAFETY" in above or "# Safety" in above, f"{name(path)}:{number + 1}"


def test_nothing_unwraps_outside_tests():
    for path in RUST:
        if is_test(path) or {"examples", "benches"} & {*path.parts}:
            continue
        found = re.findall(
            r"\.unwrap\(\)|\.expect\(\"|todo!\(|unimplemented!\(", product_code(path)
        )
        assert found == [], name(path)


def test_no_matches_asserts_nothing():
    for path in RUST:
        assert not re.search(r"^\s*matches!\(.*\);", path.read_text(), re.MULTILINE), name(path)


def test_error_classes_are_the_same_on_both_sides():
    border = (ROOT / "crates/ffi/src/failure.rs").read_text()
    in_rust = set(re.findall(r'"(\w+Error)"', border))
    in_python = {
        key
        for key, value in vars(errors).items()
        if isinstance(value, type) and issubclass(value, errors.DatasetRTError)
    }
    # Rust returns no results that could be failures.
    assert in_rust == in_python - {"DatasetRTError", "FailedResultError"}


def test_the_changelog_has_an_unreleased_section():
    assert "## [Unreleased]" in (ROOT / "CHANGELOG.md").read_text()


def test_one_version_of_every_arrow_crate():
    lock = tomllib.loads((ROOT / "Cargo.lock").read_text())
    names = [package["name"] for package in lock["package"]]
    arrow = [key for key in names if key.startswith("arrow-")]
    assert len(arrow) == len(set(arrow))


def test_fuzzers_try_the_versions_that_are_shipped():
    def locked(path):
        packages = tomllib.loads((ROOT / path).read_text())["package"]
        return {(package["name"], package["version"]) for package in packages}

    only_fuzzing = {"arbitrary", "dataset_rt_fuzz", "libfuzzer-sys"}
    others = locked("fuzz/engine/Cargo.lock") - locked("Cargo.lock")
    assert {name for name, _ in others} <= only_fuzzing, others


def test_version_is_in_one_place():
    version = tomllib.loads((ROOT / "Cargo.toml").read_text())["workspace"]["package"]["version"]
    from dataset_rt import __version__

    assert __version__ == version


def test_git_tracks_no_build_output():
    listed = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False
    ).stdout.splitlines()
    assert [path for path in listed if path.endswith((".so", ".pyc"))] == []
