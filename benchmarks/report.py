"""The report on one run: tables and notes in Markdown, between two markers of docs/benchmarks.md.

Everything here is made from the result file, the sentences on who is ahead included, so that the
text cannot say something else than the figures. `python -m benchmarks.report FILE` makes it anew.
"""

import json
import statistics
import sys
from pathlib import Path

from benchmarks.engines import FLOOR, OURS, STORES
from benchmarks.targets import TARGETS

BEGIN, END = "<!-- figures: begin -->", "<!-- figures: end -->"
RATES = ("sequential", "weighted", "weighted, first epoch", "random", "batched")
COLUMNS = {
    "sequential": "sequential",
    "weighted": "weighted",
    "weighted, first epoch": "weighted, first",
    "random": "random, one",
    "batched": "random, 64",
    "write": "write",
    "write, durable": "write, durable",
}
MIB = 1 << 20


def labels():
    """Engines in the order of the tables, and whether each is a peer."""
    return {store.label(mode): store.is_peer for store in STORES for mode in store.modes or ("",)}


def median(values):
    return statistics.median(values) if isinstance(values, list) else None


def rate(value):
    """Samples per second in three digits: 1.23M, 45.6k, 789."""
    for factor, unit in ((1e6, "M"), (1e3, "k")):
        # What would round to 1000 takes the larger unit.
        if value >= 0.9995 * factor:
            return f"{value / factor:.3g}{unit}"
    return f"{value:.3g}"


def spread(values):
    """Half the range, in percent of the median."""
    return f"±{50 * (max(values) - min(values)) / statistics.median(values):.0f}%"


def cell(values):
    if not isinstance(values, list):
        return "-" if values is None else "cannot"
    text = rate(median(values))
    return f"{text} {spread(values)}" if len(values) > 1 else text


def table(header, rows):
    lines = ["| " + " | ".join(header) + " |", "|" + " --- |" * len(header)]
    return "\n".join([*lines, *("| " + " | ".join(row) + " |" for row in rows)])


def rates_table(results, count):
    rows = []
    for label in labels():
        values = results.get(label)
        if values:
            written = values.get("count", [count])[0]
            name = label if written == count else f"{label} ({rate(written)} samples)"
            rows.append([name, *(cell(values.get(task)) for task in COLUMNS)])
    return table(["samples/s", *COLUMNS.values()], rows)


def costs_table(results):
    rows = []
    for label in labels():
        values = results.get(label)
        if not values:
            continue
        opening = median(values.get("open to first sample"))
        stored = median(values.get("disk bytes per payload byte"))
        memory = (
            median(values.get(name)) for name in ("private memory", "mapped memory", "write memory")
        )
        rows.append(
            [
                label,
                "-" if opening is None else f"{1000 * opening:.3g} ms",
                "-" if stored is None else f"{stored:.3f}",
                *("-" if value is None else f"{value / MIB:,.0f}" for value in memory),
            ]
        )
    header = ["", "open to first sample", "disk bytes per payload byte"]
    return table([*header, "private MiB", "mapped MiB", "writer's MiB"], rows)


def ratio(results, task, label=OURS):
    """Median of ours over the floor's and over the best peer's, with the peer's name."""
    ours = median(results.get(label, {}).get(task))
    floor = median(results.get(FLOOR, {}).get(task))
    peers = {
        name: median(results.get(name, {}).get(task))
        for name, is_peer in labels().items()
        if is_peer
    }
    best = max((name for name in peers if peers[name]), key=lambda name: peers[name], default=None)
    return (
        ours / floor if ours and floor else None,
        ours / peers[best] if ours and best else None,
        best,
    )


def ratios_table(record):
    rows = []
    for task, title in COLUMNS.items():
        row = [title]
        for results in record["results"].values():
            to_floor, to_peer, best = ratio(results, task)
            floor = "-" if to_floor is None else f"{to_floor:.2f}"
            row.append(floor if to_peer is None else f"{floor}, {to_peer:.2f} of {best}")
        rows.append(row)
    return table(["of the floor, of the best peer", *record["results"]], rows)


def figure_text(value):
    """A rate in three digits, or a ratio in two decimals."""
    return rate(value) if value >= 1000 else f"{value:.2f}" if value < 100 else f"{value:.0f}"


def targets_table(record):
    """Figure and what is wanted; bold where it is missed."""
    rows = []
    for target in TARGETS:
        row = [target.text]
        for workload, results in record["results"].items():
            value = target.measure(results) if workload in target.wanted else None
            if value is None:
                row.append("-")
                continue
            sign = "≤" if target.is_at_most else "≥"
            text = f"{figure_text(value)} ({sign} {figure_text(target.wanted[workload])})"
            row.append(text if target.is_met(workload, value) else f"**{text}**")
        rows.append(row)
    return table(["target (bold: missed)", *record["results"]], rows)


def losses(record):
    """One line for each task in which a peer is ahead of our default mode."""
    for workload, results in record["results"].items():
        for task, title in COLUMNS.items():
            _, to_peer, best = ratio(results, task)
            if to_peer is not None and to_peer < 1:
                yield f"- {workload}, {title}: {best} is ahead, ours has {to_peer:.2f} of its rate."


def cannot(record):
    """One line for each task that an engine cannot do."""
    reasons = {
        (label, COLUMNS[task], reason)
        for results in record["results"].values()
        for label, values in results.items()
        for task, reason in values.items()
        if task in COLUMNS and isinstance(reason, str)
    }
    return [f"- {label}, {task}: {reason}." for label, task, reason in sorted(reasons)]


def floors_text(floors):
    parts = []
    for name, values in floors.items():
        value = median(values)
        is_count = name.endswith(("calls", "samples"))
        parts.append(f"{name} {rate(value)}/s" if is_count else f"{name} {value / 1e9:.2f} GB/s")
    return "Floors of the machine: " + "; ".join(parts) + "."


def to_markdown(record):
    machine = record["machine"]
    repetitions = max((len(values) for values in record["floors"].values()), default=0)
    changed = " with changes" if record["changed files"] else ""
    versions = ", ".join(record["versions"].values()) or "no peers"
    text = [
        (
            f"Measured {record['date'][:10]} at commit {record['commit']}{changed}, medians of "
            f"{repetitions} interleaved repetitions, ± half the range."
        ),
        (
            f"Machine: {machine['cpu']}, {machine['cores']} cores, "
            f"{machine['memory bytes'] / 2**30:.0f} GiB, Linux {machine['kernel']}, Python "
            f"{machine['python']}, load {machine['load when started']:.1f} when started. "
            f"Peers: {versions}."
        ),
        floors_text(record["floors"]),
        "### Targets",
        targets_table(record),
        "### Ours in its default mode, beside the floor engine and the best peer",
        ratios_table(record),
    ]
    for workload, results in record["results"].items():
        count = record["workloads"][workload]
        text += [
            f"### {workload}: {count:,} samples",
            rates_table(results, count),
            costs_table(results),
        ]
    for title, lines in (
        ("Where a peer is ahead", list(losses(record))),
        ("What an engine cannot do", cannot(record)),
        ("What failed", [f"- {who}: {why}." for who, why in record["failures"].items()]),
    ):
        text += [f"### {title}", "\n".join(lines) or "Nothing in this run."]
    return "\n\n".join(text) + "\n"


def put(document, name, text):
    """Put a text between the markers of that name."""
    begin, end = (f"<!-- {name}: {place} -->" for place in ("begin", "end"))
    head, _, rest = document.read_text().partition(begin)
    tail = rest.partition(end)[2]
    document.write_text(f"{head}{begin}\n\n{text.strip()}\n\n{end}{tail}")


def write(record, docs):
    """Put the figures into the document and draw the picture beside it."""
    from benchmarks import picture

    document = docs / "benchmarks.md"
    head, _, rest = document.read_text().partition(BEGIN)
    tail = rest.partition(END)[2]
    figures = f"![rates relative to the mmap floor](benchmarks.svg)\n\n{to_markdown(record)}"
    document.write_text(f"{head}{BEGIN}\n\n{figures}\n{END}{tail}")
    picture.draw(record, docs / "benchmarks.svg")


if __name__ == "__main__":
    write(json.loads(Path(sys.argv[1]).read_text()), Path(__file__).parents[1] / "docs")
