"""`dataset.plot`: Altair charts of what a dataset holds and draws; needs the extra `plot`.

    plots.py    the methods of `dataset.plot`
    figures.py  the few numbers that a chart shows, counted batch by batch
    bins.py     ranges of a histogram
    charts.py   those numbers as charts; the only place that knows Altair

No payload is read, no stream is moved, and a chart holds some dozens of numbers, whatever the
number of rows.
"""

from dataset_rt.plotting.plots import DatasetPlots

__all__ = ["DatasetPlots"]
