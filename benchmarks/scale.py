"""The command: `python -m benchmarks.scale` measures the table and many files at scale.

Rows are tiny, so that what is measured belongs to rows and files, not to payloads. Every step runs
in a fresh process, beside its floor in the same run; medians of a few runs are kept as dated JSON
in `benchmarks/results/` and written as tables into `docs/scale.md`.
"""

import argparse
import datetime as dt
import json
import shutil
import statistics
import subprocess
import sys
from pathlib import Path

from benchmarks.machine import describe
from benchmarks.report import BEGIN, END, rate
from benchmarks.report import table as markdown

ROOT = Path(__file__).resolve().parents[1]
RESULTS = Path(__file__).parent / "results"
WORKER_SECONDS_MAX = 300
# What a process may hold open unless somebody asked for more, on most systems.
DESCRIPTORS_MAX = 1024
DRAWS = ["cargo", "run", "--quiet", "--release", "--locked", "-p", "dataset_rt_sampler"]
MIB = 1 << 20


def parse(arguments):
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scale", description=__doc__)
    parser.add_argument("--rows", type=int, nargs="*", default=[10**4, 10**6, 10**7])
    parser.add_argument("--caches", type=int, default=1000, help="caches opened as one dataset")
    parser.add_argument("--shards", type=int, default=10_000, help="shards of one cache")
    parser.add_argument("--draws", type=int, nargs="*", default=[10**4, 10**6, 10**7, 10**8])
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--cache", type=Path, default=ROOT / ".cache/scale")
    parser.add_argument("--output", type=Path, help="result file; the report is then not rewritten")
    return parser.parse_args(arguments)


def work(**job):
    """The values that one fresh process measured."""
    command = [sys.executable, "-m", "benchmarks.scale_worker", json.dumps(job)]
    return json.loads(run(command))


def run(command):
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=WORKER_SECONDS_MAX, check=False
    )
    if done.returncode:
        raise RuntimeError(f"{command[:4]} failed: {done.stderr.strip()[-2000:]}")
    return done.stdout


def medians(runs):
    return {name: statistics.median(values[name] for values in runs) for name in runs[0]}


def measure(options):
    directory = options.cache / "data"
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    times = range(options.repetitions)
    record = {
        "date": dt.datetime.now(dt.UTC).isoformat(timespec="seconds"),
        "commit": run(["git", "rev-parse", "--short", "HEAD"]).strip(),
        "repetitions": options.repetitions,
        "machine": describe(directory),
        "rows": {},
    }
    try:
        paths = {rows: directory / str(rows) / "rows" for rows in options.rows}
        for rows, path in paths.items():
            work(task="write", directory=str(path.parent), rows=rows)
        opened = {(rows, order): [] for rows in paths for order in (True, False)}
        for _ in times:
            for (rows, order), values in opened.items():
                values.append(work(task="open", paths=str(paths[rows]), shuffle=order))
        for rows, path in paths.items():
            tables = [work(task="table", path=str(path), rows=rows) for _ in times]
            record["rows"][str(rows)] = {
                "open, drawn": medians(opened[rows, True]),
                "open, in order": medians(opened[rows, False]),
                "table": medians(tables),
            }
            shutil.rmtree(path)
        record["many"] = many(options, directory, times)
        record["imports"] = work(task="imports", times=3 * options.repetitions)
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    record["draws"] = draws(options.draws)
    return record


def many(options, directory, times):
    rows = 100
    work(
        task="write many",
        directory=str(directory),
        caches=options.caches,
        rows=rows,
        shards=options.shards,
    )
    places = {
        f"{options.caches:,} caches of {rows} rows": str(directory / "caches"),
        f"{options.shards:,} shards of a row": str(directory / "shards"),
    }
    record = {
        name: medians([work(task="many", place=place, limit=DESCRIPTORS_MAX) for _ in times])
        for name, place in places.items()
    }
    shutil.rmtree(directory / "caches")
    shutil.rmtree(directory / "shards")
    work(task="write subset", directory=str(directory), rows=max(options.rows))
    record["subset"] = work(task="subset", directory=str(directory))
    return record


def draws(sizes):
    """The sampler alone, from its own example; nothing without cargo."""
    if not sizes or shutil.which("cargo") is None:
        return []
    lines = run([*DRAWS, "--example", "draws", "--", *map(str, sizes)]).splitlines()
    return [json.loads(line) for line in lines]


def duration(value):
    return f"{1000 * value:,.3g} ms" if value < 1 else f"{value:,.2f} s"


def rows_table(record):
    sizes = list(record["rows"])
    values = {size: record["rows"][size] for size in sizes}

    def row(title, cell):
        return [title, *(cell(values[size], int(size)) for size in sizes)]

    def step(name, floor=None):
        def cell(value, _):
            seconds = value["table"][name]
            if floor is None:
                return duration(seconds)
            return f"{duration(seconds)}, {seconds / value['table'][floor]:.2f} x"

        title = name if floor is None else f"{name}, and of {floor}"
        return row(title, cell)

    def opened(order):
        return row(
            f"open to first sample, {order}",
            lambda value, _: duration(value[f"open, {order}"]["open to first sample"]),
        )

    def memory(value, size):
        held, highest = value["table"]["private memory"], value["table"]["private memory, highest"]
        return f"{held / MIB:,.0f} MiB ({held / size:.1f} B a row), {highest / MIB:,.0f} MiB"

    return markdown(
        ["", *(f"{int(size):,} rows" for size in sizes)],
        [
            opened("in order"),
            opened("drawn"),
            step("get_metadata, first"),
            step("raw import"),
            step("get_metadata", "raw import"),
            step("memory pass"),
            step("update_metadata", "memory pass"),
            step("update_metadata, reversed", "memory pass"),
            step("cumsum"),
            step("first weighted sample", "cumsum"),
            step("first weighted sample, reversed", "cumsum"),
            row(
                "weighted epoch, samples a second",
                lambda value, _: rate(value["table"]["weighted epoch, samples a second"]),
            ),
            row("private memory of the order, highest in an epoch", memory),
        ],
    )


def draws_table(record):
    rows = [
        [
            f"{line['rows']:,}",
            duration(line["cumsum"]),
            f"{duration(line['table'])}, {line['table'] / line['cumsum']:.2f} x",
            f"{line['bytes a row']:.2f}",
            *(rate(line[name]) for name in ("weighted", "equal", "equal, odd")),
        ]
        for line in record["draws"]
    ]
    header = ["rows", "running sum", "table of weights, and of the sum", "bytes a row"]
    return markdown([*header, "weighted draws/s", "equal, weight 1", "equal, weight 0.3"], rows)


def many_table(record):
    places = {name: values for name, values in record["many"].items() if name != "subset"}
    names = ("open", "open to first sample")
    rates = ("first epoch, samples a second", "second epoch, samples a second")
    counts = ("descriptors", "mappings")
    rows = [
        [
            place,
            *(duration(values[name]) for name in names),
            *(rate(values[name]) for name in rates),
            *(f"{values[name]:,.0f}" for name in counts),
        ]
        for place, values in places.items()
    ]
    return markdown(["", *names, *rates, *counts], rows)


def to_markdown(record):
    machine, subset = record["machine"], record["many"]["subset"]
    imports = record["imports"]
    head = (
        f"Measured {record['date'][:10]} at commit {record['commit']}, medians of "
        f"{record['repetitions']} runs in fresh processes: {machine['cpu']}, {machine['cores']} "
        f"cores, {machine['memory bytes'] / 2**30:.0f} GiB."
    )
    hashed = "; ".join(f"{size} bytes a payload: {ratio:.1f}" for size, ratio in subset.items())
    imported = (
        f"`import dataset_rt` takes {imports['ours'] / imports['floor']:.2f} of `import polars, "
        f"pyarrow` ({duration(imports['floor'])}), and with the first use of a dataset, which "
        f"imports the settings, {imports['with settings'] / imports['floor']:.2f}."
    )
    parts = [head, rows_table(record)]
    if record["draws"]:
        parts += ["The sampler alone, one thread:", draws_table(record)]
    parts += [
        f"Many files, drawn epochs, at most {DESCRIPTORS_MAX:,} descriptors:",
        many_table(record),
        f"Bytes read and hashed for each payload byte of a random 1 %, at first touch: {hashed}.",
        imported,
    ]
    return "\n\n".join(parts)


def write(record, document):
    """Put the figures between the markers of the document."""
    head, _, rest = document.read_text().partition(BEGIN)
    tail = rest.partition(END)[2]
    document.write_text(f"{head}{BEGIN}\n\n{to_markdown(record)}\n\n{END}{tail}")


def main():
    options = parse(sys.argv[1:])
    record = measure(options)
    path = options.output or RESULTS / f"scale-{record['date'][:16].replace(':', '')}.json"
    path.write_text(json.dumps(record, indent=1) + "\n")
    if options.output is None:
        write(record, ROOT / "docs/scale.md")
    print(to_markdown(record))


if __name__ == "__main__":
    main()
