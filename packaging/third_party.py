"""Lists the licences of everything compiled into the wheel, with their texts.

    python packaging/third_party.py > THIRD_PARTY_LICENSES
    python packaging/third_party.py --check      the file is what it would be now

The crates are those that cargo resolves for the systems below, without what only runs at build
time; their texts are read from the sources cargo fetched. A crate that is offered under several
licences is taken under MIT where it has that text.
"""

import json
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
RESULT = ROOT / "THIRD_PARTY_LICENSES"
BUNDLED = "dataset_rt_ffi"
SYSTEMS = ("x86_64-unknown-linux-gnu", "aarch64-unknown-linux-gnu", "aarch64-apple-darwin")
TEXT_NAME = re.compile(r"(licen[cs]e|copying|notice|unlicense|copyright)", re.IGNORECASE)
HEAD = """\
Third-party licences

The compiled module of DatasetRT contains the Rust standard library (copyright The Rust Project
Contributors, MIT OR Apache-2.0) and the crates below, each with its licence expression. Their
texts follow, equal ones once; the Apache License stands under several of them. Made by
packaging/third_party.py; do not edit.
"""


def metadata(system: str) -> dict:
    """What cargo resolves for one system, as the lock file pins it."""
    command = ["cargo", "metadata", "--locked", "--format-version=1", "--filter-platform", system]
    run = subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE)
    return json.loads(run.stdout)


def bundled(resolved: dict) -> dict[str, dict]:
    """Packages of other people that are linked into the module, by their id."""
    packages = {package["id"]: package for package in resolved["packages"]}
    nodes = {node["id"]: node for node in resolved["resolve"]["nodes"]}
    waiting = [i for i, package in packages.items() if package["name"] == BUNDLED]
    found = {}
    while waiting:
        identity = waiting.pop()
        package = packages[identity]
        kinds = {kind for target in package["targets"] for kind in target["kind"]}
        if identity in found or "proc-macro" in kinds:
            continue
        found[identity] = package
        waiting += [
            dependency["pkg"]
            for dependency in nodes[identity]["deps"]
            if any(kind["kind"] is None for kind in dependency["dep_kinds"])
        ]
    return {i: package for i, package in found.items() if package["source"] is not None}


def texts(package: dict) -> list[str]:
    """The licence texts of one package, those of C sources inside it too."""
    directory = Path(package["manifest_path"]).parent
    # Libraries in other languages lie in directories of their own below such a crate.
    pattern = "**/*" if package["name"].endswith("-sys") else "*"
    files = [
        path
        for path in sorted(directory.glob(pattern))
        if TEXT_NAME.match(path.name) and path.is_file() and path.suffix not in {".rs", ".h", ".c"}
    ]
    # zstd is offered under the GPL (COPYING) or the licence beside it, which is the one taken.
    files = [p for p in files if p.name != "COPYING" or not (p.parent / "LICENSE").is_file()]
    mit = [path for path in files if "mit" in path.name.lower()]
    expression = package["license"] or ""
    if mit and re.search(r" OR |/", expression) and " AND " not in expression:
        files = [path for path in files if path in mit or "notice" in path.name.lower()]
    found = [path.read_text(encoding="utf-8", errors="replace").strip() for path in files]
    return ["\n".join(line.rstrip() for line in text.splitlines()) for text in found if text]


def document() -> str:
    """The whole file."""
    packages: dict[str, dict] = {}
    for system in SYSTEMS:
        packages.update(bundled(metadata(system)))
    ordered = sorted(packages.values(), key=lambda package: (package["name"], package["version"]))
    users: dict[str, list[str]] = {}
    lines = [HEAD]
    for package in ordered:
        title = f"{package['name']} {package['version']}"
        found = texts(package)
        without = "" if found else ", which ships no text"
        lines.append(f"{title}: {package['license']}{without}, {package['repository'] or ''}")
        for text in found:
            users.setdefault(text, []).append(title)
    for text, titles in users.items():
        lines += ["", "=" * 80, ", ".join(titles), "-" * 80, text]
    return "\n".join(lines) + "\n"


def main() -> int:
    """Print the file, or compare it."""
    text = document()
    if "--check" not in sys.argv:
        sys.stdout.write(text)
        return 0
    if RESULT.is_file() and RESULT.read_text(encoding="utf-8") == text:
        return 0
    print(f"{RESULT.name} is out of date: run make licences")
    return 1


if __name__ == "__main__":
    sys.exit(main())
