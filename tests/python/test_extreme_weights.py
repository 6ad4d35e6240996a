"""Weights at the ends of floats: shares are those of the numbers, and nothing shown is infinite."""

import re
from fractions import Fraction

import polars as pl
import pyarrow as pa
import pytest

from dataset_rt import ArrowSource, open_dataset

NO_NUMBER = re.compile(r"\b(Infinity|NaN|nan|inf)\b")

extremes = pytest.mark.parametrize(
    "weights",
    [
        (1.7e308, 1.7e308, 1.7e308),
        (1.7e308, 8.5e307, 5e-324),
        (5e-324, 5e-324, 1e-323),
        (1e-300, 1.0, 1e300),
        (0.5, 1.0, 1.5),
    ],
)


def written(runtime, tmp_path, weights):
    """A cache of 60 rows, labels a, b and c in turn, and what is due to each."""
    columns = {"payload": [b"x"] * 60, "label": list("abc") * 20, "w": list(weights) * 20}
    (result,) = runtime.write_cache(ArrowSource("s", pa.table(columns)), tmp_path)
    total = sum(map(Fraction, weights))
    due = {name: float(Fraction(one) / total) for name, one in zip("abc", weights, strict=True)}
    return result.path, due


@extremes
def test_charts_and_cards(runtime, tmp_path, weights):
    figures = pytest.importorskip("dataset_rt.plotting.figures", reason="needs the extra `plot`")
    pytest.importorskip("altair", reason="needs the extra `plot`")
    path, due = written(runtime, tmp_path, weights)
    dataset = open_dataset(path, seed=1, shuffle=True)
    dataset.update_metadata(dataset.get_metadata().with_columns(weight=pl.col("w")))
    plot = dataset.plot
    charts = (plot.weights(), plot.class_balance("label"), plot.draws("label", n=600))
    for text in (*(chart.to_json() for chart in charts), dataset._repr_html_()):
        assert not NO_NUMBER.search(text)
    balance = figures.class_shares(dataset, "label").values
    assert dict(balance.select("value", "weight_share").iter_rows()) == pytest.approx(due)
    draw = figures.draw_shares(dataset, "label", 600).shares.values
    assert dict(draw.select("value", "expected").iter_rows()) == pytest.approx(due)


@extremes
def test_commands(runtime, tmp_path, weights):
    cli = pytest.importorskip("cli_tools", reason="the command line needs the extra `cli`")
    path, due = written(runtime, tmp_path, weights)
    options = (path, "--weight-by", "w", "--by", "label")
    shares = cli.call("sample", *options, "--json").json["shares"]
    found = {entry["value"]: entry["share_expected"] for entry in shares}
    assert found == pytest.approx(due)
    assert not NO_NUMBER.search(cli.call("sample", *options).out)
