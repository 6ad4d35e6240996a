"""The methods of `dataset.plot`: check what is asked for, count, and draw."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

import pyarrow as pa

from dataset_rt.arguments import to_count
from dataset_rt.errors import InvalidInputError
from dataset_rt.inspection.weights import why_unused
from dataset_rt.text import counted, safe

if TYPE_CHECKING:
    import altair as alt

    from dataset_rt.dataset import CachedDataset


class DatasetPlots:
    """Altair charts of a dataset, as `dataset.plot`.

    Each is an `altair.Chart` of a few dozen numbers: show it by ending a cell with it, change it
    as any chart, save it with `chart.save("file.html")`. Values are counted batch by batch; no
    payload is read, and nothing is moved.

    A notebook, and a saved HTML file, fetch the scripts that draw from a network. Without one say
    `alt.renderers.enable("svg")` once, and save as `.svg`, `.png`, or with
    `chart.save("file.html", inline=True)`; all of these need `vl-convert-python`.

    Example:
        >>> dataset = open_dataset(cache, shuffle=True)
        >>> chart = dataset.plot.class_balance("position")
        >>> type(chart).__name__
        'Chart'
    """

    def __init__(self, dataset: CachedDataset) -> None:
        """See the class; use `dataset.plot`."""
        self._dataset = dataset

    def weights(self) -> alt.Chart:
        """Return a histogram of the weights of the active table.

        Ranges grow by a constant factor where the largest weight is 50 times the least or more;
        the axis is logarithmic then.

        Raises:
            ImportError: Altair is not there: install the extra `plot`.
        """
        _require_altair()
        # Altair is an extra, and nothing here is imported before it is used.
        from dataset_rt.plotting.charts import weight_chart  # noqa: PLC0415
        from dataset_rt.plotting.figures import weight_histogram  # noqa: PLC0415

        unused = why_unused(self._dataset.reader_config)
        return weight_chart(weight_histogram(self._dataset), unused)

    def class_balance(self, column: str) -> alt.Chart:
        """Return bars of what each value of a column has of the rows, and of their weight.

        Args:
            column: A stored or extra column. Up to 30 values have bars of their own, and up to 60
                integers or dates, these in their own order. Of more values the 30 most frequent
                are shown, the others summed up; more than 30 floats, or 60 dates, are put into
                20 ranges.

        Raises:
            ImportError: Altair is not there: install the extra `plot`.
            InvalidInputError: There is no such column, or it has more than 1,000,000 different
                values.
        """
        _require_altair()
        self._require(column)
        # As above.
        from dataset_rt.plotting.charts import balance_chart  # noqa: PLC0415
        from dataset_rt.plotting.figures import class_shares  # noqa: PLC0415

        unused = why_unused(self._dataset.reader_config)
        return balance_chart(class_shares(self._dataset, column), column, unused)

    def payload_sizes(self) -> alt.Chart:
        """Return a histogram of the payload sizes of the active rows, before compression.

        Sizes come from the indices of the caches, 16 bytes a sample; no payload is read.

        Raises:
            ImportError: Altair is not there: install the extra `plot`.
            CorruptError: The index of a cache is damaged.
            ConflictError: A cache was replaced since the dataset was opened.
            FileUnavailableError: An index cannot be read.
        """
        _require_altair()
        # As above.
        from dataset_rt.plotting.charts import size_chart  # noqa: PLC0415
        from dataset_rt.plotting.figures import size_histogram  # noqa: PLC0415

        return size_chart(size_histogram(self._dataset))

    def draws(self, column: str, n: int | None = None) -> alt.Chart:
        """Return bars of what each value should have of the samples, and has among `n` drawn.

        The samples are those that the next iterators read, from where the stream stands, and only
        of this rank if it is a share; the stream is not moved. Due is the share of the weight,
        but that of the rows in table order, for `sampling="permutation"`, and for whole cycles of
        `"weighted_without_replacement"`: each comes once a cycle there. Of a part of such a
        cycle no share is due, unless all weights are equal: only drawn is shown. Drawing costs
        time in proportion to `n`, not memory.

        Args:
            column: A stored or extra column; values as in `class_balance`.
            n: Samples to draw, at least 1; by default those of one epoch.

        Raises:
            ImportError: Altair is not there: install the extra `plot`.
            InvalidInputError: There is no such column, it has more than 1,000,000 different
                values, or `n` is below 1.
        """
        _require_altair()
        self._require(column)
        dataset = self._dataset
        number = len(dataset) if n is None else to_count(n, "n", minimum=1)
        # As above.
        from dataset_rt.plotting.charts import draws_chart  # noqa: PLC0415
        from dataset_rt.plotting.figures import draw_shares  # noqa: PLC0415

        return draws_chart(draw_shares(dataset, column, number), column, dataset)

    def _require(self, column: object) -> None:
        names = pa.schema(self._dataset._native.face()).names
        known = [name for name in names if name != "payload"]
        if not isinstance(column, str):
            raise TypeError(f"column must be the name of a column, found {type(column).__name__}")
        if column not in known:
            listed = ", ".join(safe(name) for name in known[:50])
            more = f" and {counted(len(known) - 50, 'other')}" if len(known) > 50 else ""
            raise InvalidInputError(f"no column {column!r} to plot; there are {listed}{more}")

    def __repr__(self) -> str:
        """What there is."""
        return (
            "DatasetPlots(weights(), class_balance(column), payload_sizes(), draws(column, n)) of "
            f"{self._dataset!r}"
        )


def _require_altair() -> None:
    try:
        import_module("altair")
    except ModuleNotFoundError as error:
        if error.name != "altair":
            raise
        raise ImportError(
            "dataset.plot needs Altair: pip install altair, or this package with its extra `plot`",
            name="altair",
        ) from error
