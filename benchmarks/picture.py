"""The picture of a run: rates of every engine relative to the mmap floor, one panel a workload."""

import matplotlib as mpl
from matplotlib.figure import Figure

from benchmarks.engines import FLOOR
from benchmarks.report import labels, median

TASKS = {"sequential": "sequential", "weighted": "weighted epoch", "batched": "random, 64 at once"}


def draw(record, path):
    # Text stays text, and the file is the same whenever it is drawn anew.
    mpl.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "benchmarks", "font.size": 8})
    workloads = record["results"]
    figure = Figure(figsize=(11, 5), layout="constrained")
    panels = figure.subplots(1, len(workloads), sharey=True, squeeze=False)[0]
    read = list(workloads.values())
    names = [n for n in labels() if any(set(TASKS) & set(results.get(n, {})) for results in read)]
    places = {name: len(names) - number for number, name in enumerate(names)}
    for panel, (workload, results) in zip(panels, workloads.items(), strict=True):
        for marker, (task, title) in zip("o^s", TASKS.items(), strict=True):
            floor = median(results.get(FLOOR, {}).get(task))
            points = {
                places[name]: median(results.get(name, {}).get(task)) / floor
                for name in names
                if floor and median(results.get(name, {}).get(task))
            }
            panel.plot(list(points.values()), list(points), marker, label=title, alpha=0.8)
        panel.axvline(1, color="gray", linewidth=0.8)
        panel.set_xscale("log")
        panel.set_title(f"{workload}: {record['workloads'][workload]:,} samples")
        panel.grid(visible=True, alpha=0.3)
    panels[0].set_yticks(list(places.values()), list(places))
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside upper center", ncols=3)
    figure.supxlabel("rate as a multiple of the mmap floor (right is faster)")
    figure.savefig(path, metadata={"Date": None})
