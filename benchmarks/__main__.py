"""The command: `python -m benchmarks` measures everything and writes results and report.

Every repetition is a fresh process, engines take turns, and an engine that fails costs its own
figures and nothing else. This file plans and collects; it measures nothing itself.
"""

import argparse
import contextlib
import datetime as dt
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

from benchmarks import environments, report
from benchmarks.engines import STORES
from benchmarks.machine import describe
from benchmarks.workloads import QUICK, SHAPES

ROOT = Path(__file__).resolve().parents[1]
RESULTS = Path(__file__).parent / "results"
# A worker beyond this hangs: the longest takes about 30 s on a quiet machine with 2 cores.
WORKER_SECONDS_MAX = 180
# Who would write longer than this writes fewer samples; the table says how many.
WRITE_SECONDS = 5
# A pass is cut after this: enough for a rate. A first epoch that verifies every byte must come to
# its end, or later ones would still verify.
PASS_SECONDS = 1
FIRST_PASS_SECONDS = 8


def parse(arguments):
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a few samples: for tests, no figures")
    parser.add_argument("--repetitions", type=int, help="default 3, quick 1")
    parser.add_argument("--minutes", type=float, default=25, help="no repetition beyond this")
    parser.add_argument("--engines", nargs="*", help="names of stores, default all")
    parser.add_argument("--workloads", nargs="*", default=list(SHAPES), choices=list(SHAPES))
    parser.add_argument("--cache", type=Path, default=ROOT / ".cache/benchmarks")
    parser.add_argument("--output", type=Path, help="result file; the report is then not rewritten")
    options = parser.parse_args(arguments)
    names = [store.name for store in STORES]
    options.repetitions = options.repetitions or (1 if options.quick else 3)
    unknown = set(options.engines or ()) - set(names)
    if unknown:
        parser.error(f"unknown engines {sorted(unknown)}, choose from {names}")
    return options


class Suite:
    """One run: what was measured so far, and how a worker is started."""

    def __init__(self, options):
        self.options = options
        self.begin = time.monotonic()
        self.directory = options.cache / "data"
        shutil.rmtree(self.directory, ignore_errors=True)
        self.directory.mkdir(parents=True)
        self.stores = [s for s in STORES if not options.engines or s.name in options.engines]
        self.counts = QUICK if options.quick else {name: SHAPES[name][0] for name in SHAPES}
        self.pythons = {}
        self.results = {name: {} for name in options.workloads}
        self.record = {
            "date": dt.datetime.now(dt.UTC).isoformat(timespec="seconds"),
            "commit": git("rev-parse", "--short", "HEAD"),
            "changed files": bool(git("status", "--porcelain", "--", "crates", "python")),
            "quick": options.quick,
            "machine": describe(self.directory),
            "workloads": {name: self.counts[name] for name in options.workloads},
            "versions": {},
            "failures": {},
            "floors": {},
            "results": self.results,
        }

    def prepare(self):
        """Make the environments; a peer that cannot be installed is left out with its reason."""
        for store in self.stores:
            try:
                if store.is_peer:
                    python = environments.python_of(store.module, self.options.cache)
                    self.record["versions"][store.name] = environments.versions(store.module)
                else:
                    python = Path(sys.executable)
                self.pythons[store] = python
            except (OSError, RuntimeError, subprocess.SubprocessError) as error:
                self.fail(store.name, f"not installed: {error}")

    def fail(self, label, reason):
        self.record["failures"][label] = reason
        print(f"  {label}: {reason}", flush=True)

    def work(self, python, **job):
        """Run one worker; its JSON, or a RuntimeError with the last line of its complaint."""
        command = [str(python), "-m", "benchmarks.worker", json.dumps(job)]
        # Caches and temporary files of the libraries come and go with the data.
        home = self.directory / "home"
        home.mkdir(exist_ok=True)
        environment = {**os.environ, "HOME": str(home), "TMPDIR": str(home)}
        # One session for the worker and whatever it starts, so that all of it ends.
        process = subprocess.Popen(
            command,
            cwd=ROOT,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        try:
            out, complaint = process.communicate(timeout=WORKER_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            raise RuntimeError(f"stopped after {WORKER_SECONDS_MAX} s") from None
        finally:
            end_session(process)
        if process.returncode:
            lines = [line for line in complaint.strip().splitlines() if line.strip()]
            raise RuntimeError(lines[-1] if lines else f"exit code {process.returncode}")
        return json.loads(out.strip().splitlines()[-1])

    def measure_floors(self):
        values = self.work(
            sys.executable, task="floors", directory=str(self.directory), quick=self.options.quick
        )
        for name, value in values.items():
            self.record["floors"].setdefault(name, []).append(value)

    def measure_store(self, store, workload):
        """Write once, read in each mode; the store is removed afterwards."""
        directory = self.directory / "store"
        known = self.results[workload].get(store.name, {}).get("count")
        fixed = self.options.quick or known is not None
        job = {"module": store.module, "workload": workload, "directory": str(directory)}
        try:
            written = self.work(
                self.pythons[store],
                task="write",
                count=known[0] if known else self.counts[workload],
                count_is_fixed=fixed,
                plain=not store.is_peer,
                seconds_max=WRITE_SECONDS,
                **job,
            )
            self.add(workload, store.name, written)
            for mode in store.modes:
                values = self.work(
                    self.pythons[store],
                    task="read",
                    count=written["count"],
                    mode=mode,
                    seconds_max=PASS_SECONDS,
                    first_seconds_max=PASS_SECONDS if store.is_peer else FIRST_PASS_SECONDS,
                    **job,
                )
                self.add(workload, store.label(mode), values)
        except RuntimeError as error:
            # Not tried again: a hanging peer would take the time of all others.
            self.fail(f"{store.name}, {workload}", str(error))
            return False
        finally:
            shutil.rmtree(directory, ignore_errors=True)
        return True

    def add(self, workload, label, values):
        known = self.results[workload].setdefault(label, {})
        checksums = values.pop("checksums", {})
        for task, value in values.items():
            if isinstance(value, str):
                known[task] = value
            else:
                known.setdefault(task, []).append(value)
        for task, checksum in checksums.items():
            known.setdefault("checksums", {})[task] = checksum

    def run(self):
        self.prepare()
        # Installing is done once and is not what the time limit is about.
        self.begin = time.monotonic()
        given_up = set()
        for repetition in range(self.options.repetitions):
            if repetition and self.minutes() * (1 + 1 / repetition) > self.options.minutes:
                print(f"{self.minutes():.1f} min: no time for repetition {repetition + 1}")
                break
            self.measure_floors()
            for workload in self.options.workloads:
                for store in self.stores:
                    if (
                        store not in self.pythons
                        or (store, workload) in given_up
                        or (workload not in store.workloads)
                    ):
                        continue
                    begin = time.monotonic()
                    if not self.measure_store(store, workload):
                        given_up.add((store, workload))
                    seconds = time.monotonic() - begin
                    print(
                        f"{self.minutes():5.1f} min  repetition {repetition + 1}  {workload:5}  "
                        f"{store.name:15} {seconds:5.1f} s",
                        flush=True,
                    )
            # After each: whoever stops the command keeps what was measured.
            self.save()
        self.compare_checksums()
        self.record["minutes"] = self.minutes()
        self.save()
        shutil.rmtree(self.directory, ignore_errors=True)

    def minutes(self):
        return (time.monotonic() - self.begin) / 60

    def compare_checksums(self):
        """Engines that read the same rows in the same order delivered the same bytes and values."""
        for workload, engines in self.results.items():
            groups = {}
            for store in self.stores:
                for mode in store.modes:
                    values = engines.get(store.label(mode), {})
                    count = engines.get(store.name, {}).get("count", [None])[0]
                    for task, checksum in values.get("checksums", {}).items():
                        # Ours draws by its own sampler: compared with the source in the worker.
                        if task != "weighted":
                            groups.setdefault((task, count), set()).add(checksum)
            for (task, count), checksums in groups.items():
                if len(checksums) > 1:
                    self.fail(f"{workload}, {task}", f"checksums differ among {count} samples")

    def save(self):
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.write_text(json.dumps(self.record, indent=1) + "\n")

    @property
    def path(self):
        if self.options.output:
            return self.options.output
        folder = self.options.cache if self.options.quick else RESULTS
        return folder / f"{self.record['date'][:16].replace(':', '')}.json"


def end_session(process):
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def git(*arguments):
    done = subprocess.run(
        ["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False
    )
    return done.stdout.strip()


def main():
    options = parse(sys.argv[1:])
    suite = Suite(options)
    suite.run()
    print(f"results: {suite.path}")
    if options.quick or options.output:
        print(report.to_markdown(suite.record))
    else:
        report.write(suite.record, ROOT / "docs")
        print("report: docs/benchmarks.md")
    return 1 if suite.record["failures"] else 0


if __name__ == "__main__":
    sys.exit(main())
