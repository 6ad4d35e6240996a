"""What the commands beside the suite share: jobs in fresh processes, a result file, a document."""

import argparse
import datetime as dt
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

from benchmarks import report
from benchmarks.__main__ import RESULTS, ROOT, end_session, git
from benchmarks.machine import describe

JOB_SECONDS_MAX = 180


def child(module, **job):
    """The JSON that `python -m benchmarks.<module> --job` prints in a process of its own."""
    command = [sys.executable, "-m", f"benchmarks.{module}", "--job", json.dumps(job)]
    process = subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        out, _ = process.communicate(timeout=JOB_SECONDS_MAX)
    finally:
        end_session(process)
    if process.returncode:
        raise RuntimeError(f"job {job} ended with {process.returncode}")
    return json.loads(out.splitlines()[-1])


def answer(values):
    """End a job: threads that wait for nothing any more do not delay it."""
    print(json.dumps(values), flush=True)
    os._exit(0)


class Run:
    """One run of a command: where its data are, what was measured, where the figures go."""

    def __init__(self, name, options):
        self.name, self.options = name, options
        self.directory = options.cache / name
        shutil.rmtree(self.directory, ignore_errors=True)
        self.directory.mkdir(parents=True)
        self.record = {
            "date": dt.datetime.now(dt.UTC).isoformat(timespec="seconds"),
            "commit": git("rev-parse", "--short", "HEAD"),
            "changed files": bool(git("status", "--porcelain", "--", "crates", "python")),
            "machine": describe(self.directory),
            "results": {},
        }

    def add(self, group, label, values):
        known = self.record["results"].setdefault(group, {}).setdefault(label, {})
        for name, value in values.items():
            known.setdefault(name, []).append(value)
        print(f"  {group}, {label}: {values}", flush=True)

    def finish(self, to_markdown):
        """Save the result; into the document go figures of whole runs only."""
        shutil.rmtree(self.directory, ignore_errors=True)
        path = self.options.output
        if path is None:
            path = RESULTS / f"{self.name}-{self.record['date'][:16].replace(':', '')}.json"
        path.write_text(json.dumps(self.record, indent=1) + "\n")
        print(f"results: {path}")
        text = f"{heading(self.record)}\n\n{to_markdown(self.record['results'])}"
        if self.options.output:
            print(text)
        else:
            report.put(ROOT / f"docs/benchmarks-{self.name}.md", self.name, text)


def heading(record):
    machine = record["machine"]
    changed = " with changes" if record["changed files"] else ""
    return (
        f"Measured {record['date'][:10]} at commit {record['commit']}{changed}: {machine['cpu']}, "
        f"{machine['cores']} cores, Linux {machine['kernel']}, Python {machine['python']}. Medians "
        "of interleaved repetitions in processes of their own, ± half the range."
    )


def add_options(parser):
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--cache", type=Path, default=ROOT / ".cache/benchmarks")
    parser.add_argument("--output", type=Path, help="result file; the document stays as it is")
    parser.add_argument("--job", type=json.loads, help=argparse.SUPPRESS)
