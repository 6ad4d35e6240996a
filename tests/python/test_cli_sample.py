"""`dataset-rt sample` draws what a dataset draws; `bench` reads what is there."""

import os
import textwrap
from collections import Counter

import polars as pl
import pytest

pytest.importorskip("typer", reason="the command line needs the extra `cli`")

import cli_tools
from cli_tools import call
from conftest import numbered, opened, run_script, written

from dataset_rt import InvalidInputError, write_report


def unbalanced(count=400):
    return [(b"", {"label": "many" if i % 10 else "few", "w": i % 3 + 0.5}) for i in range(count)]


def by_value(document):
    return {entry["value"]: entry for entry in document["shares"]}


def test_a_draw_is_the_first_epoch_of_such_a_dataset(runtime, tmp_path):
    path = written(runtime, tmp_path, unbalanced())
    document = call("sample", path, "--balance", "label", "--seed", 7, "--json").json
    dataset = opened(runtime, path, seed=7, shuffle=True)
    table = dataset.get_metadata()
    dataset.update_metadata(table.with_columns(weight=1.0 / pl.len().over("label")))
    drawn = list(dataset)
    counts = Counter(sample.metadata["label"] for sample in drawn)
    shares = by_value(document)
    assert {value: entry["drawn"] for value, entry in shares.items()} == counts
    assert document["rows_drawn"] == len({sample.sample_id for sample in drawn})
    assert document["order_fingerprint"] == dataset.order_fingerprint
    assert shares["few"]["share_stored"] == pytest.approx(0.1)
    assert shares["few"]["share_expected"] == pytest.approx(0.5)


def test_weights_may_come_from_a_column(runtime, tmp_path):
    path = written(runtime, tmp_path, unbalanced())
    found = call("sample", path, "--weight-by", "w", "--by", "w", "-n", 20_000, "--json").json
    assert found["drawn"] == 20_000
    for value, entry in by_value(found).items():
        assert entry["share_expected"] == pytest.approx(
            entry["stored"] * value / sum(row["w"] for _, row in unbalanced())
        )
        assert entry["share_drawn"] == pytest.approx(entry["share_expected"], abs=0.02)


def test_a_permutation_draws_each_row_once(runtime, tmp_path):
    path = written(runtime, tmp_path, numbered(200))
    document = call("sample", path, "--sampling", "permutation", "--by", "label", "--json").json
    assert (document["rows_drawn"], document["most_often"]) == (200, 1)
    assert all(entry["drawn"] == entry["stored"] for entry in document["shares"])


@pytest.mark.parametrize("sampling", ["permutation", "weighted_without_replacement"])
def test_weights_ask_for_nothing_where_each_row_comes_once(runtime, tmp_path, sampling):
    path = written(runtime, tmp_path, unbalanced())
    options = ("--balance", "label", "--sampling", sampling)
    for n in (400, 800):
        document = call("sample", path, *options, "-n", n, "--json").json
        for entry in document["shares"]:
            assert entry["share_expected"] == entry["share_stored"] == entry["share_drawn"]
    whole = call("sample", path, *options)
    assert whole.lines[1].endswith("; all 400 rows, each once")
    assert whole.lines[2].startswith("weights change no")
    part = call("sample", path, *options, "-n", 100)
    assert part.lines[1].endswith("; 100 of 400 rows, each once, 300 never")
    document = call("sample", path, *options, "-n", 100, "--json").json
    if sampling == "permutation":
        assert by_value(document)["few"]["share_expected"] == pytest.approx(0.1)
    else:
        # Heavy rows come earlier: more than a tenth, and no share that is due.
        assert by_value(document)["few"]["share_drawn"] > 0.2
        assert by_value(document)["few"]["share_expected"] is None
        assert "label samples stored drawn" in part.lines
        assert "no share is due" in part.out


def test_shares_are_shown_beside_each_other(runtime, tmp_path):
    path = written(runtime, tmp_path, unbalanced())
    found = call("sample", path, "--balance", "label")
    assert found.code == 0
    assert "label samples stored expected drawn" in found.lines
    assert any(line.startswith("few 40 10.0% 50.0% ") for line in found.lines)
    assert "shares of classes: --by COLUMN" in call("sample", path).lines[-1]


def test_neither_a_draw_nor_a_report_needs_numpy(runtime, tmp_path):
    path = written(runtime, tmp_path, unbalanced())
    script = """
        import sys
        sys.modules["numpy"] = None
        from cli_tools import call
        print(call(*sys.argv[1:]).out)
    """
    tools = f"import sys; sys.path.insert(0, {os.path.dirname(cli_tools.__file__)!r})"
    for command in (["sample", path, "--balance", "label", "--json"], ["report", path, "-o", "-"]):
        found = run_script(f"{tools}\n{textwrap.dedent(script)}", *command)
        assert found.strip() == call(*command).out.strip()


def test_several_caches_are_one_draw(runtime, tmp_path):
    paths = [written(runtime, tmp_path, numbered(50, start=i), name=f"n{i}") for i in (0, 50)]
    document = call("sample", *paths, "--sampling", "permutation", "--json").json
    assert (document["rows"], document["rows_drawn"]) == (100, 100)


def test_what_cannot_be_drawn_by_is_wrong_usage(runtime, tmp_path):
    path = written(runtime, tmp_path, unbalanced())
    assert "there are: label, w" in call("sample", path, "--balance", "lable").err
    assert call("sample", path, "--balance", "lable").code == 2
    assert call("sample", path, "--balance", "label", "--weight-by", "w").code == 2
    assert call("sample", path, "--weight-by", "label").code == 2
    for option in ("--balance", "--weight-by", "--by"):
        for command in (["sample", path], ["report", path, "-o", "-"]):
            assert "no column ''" in call(*command, option, "").err
            with pytest.raises(InvalidInputError, match="''"):
                write_report(path, tmp_path / "r.html", **{option[2:].replace("-", "_"): ""})
    for seed in (-1, 2**64, "x"):
        outside = call("sample", path, "--seed", seed)
        assert outside.code == 2
        assert "'--seed'" in outside.err
        assert str(seed) in outside.err
    assert call("sample", path, "--sampling", "random").code == 2


def test_a_name_is_a_name_and_no_pattern(runtime, tmp_path):
    samples = [(b"", {"^.*$": i % 2, "*": i}) for i in range(10)]
    path = written(runtime, tmp_path, samples)
    document = call("sample", path, "--balance", "^.*$", "--json").json
    assert {value: entry["stored"] for value, entry in by_value(document).items()} == {0: 5, 1: 5}


def test_bench_says_how_fast_three_ways_are(runtime, tmp_path):
    path = written(runtime, tmp_path, numbered(500))
    document = call("bench", path, "--seconds", 0.1, "--workers", 1, "--json").json
    assert document["workers"] == 1
    assert [run["way"] for run in document["runs"]] == ["sequential", "shuffled", "batches"]
    payloads = sum(len(payload) for payload, _ in numbered(500))
    for run in document["runs"]:
        assert run["samples"] > 0
        assert 0 < run["first_sample_seconds"] <= run["seconds"]
        assert run["samples_per_second"] == pytest.approx(run["samples"] / run["seconds"])
    sequential = document["runs"][0]
    # Whole epochs have whole payload sums.
    whole = sequential["samples"] // 500
    assert whole * payloads <= sequential["payload_bytes"] <= (whole + 1) * payloads
    assert "sequential" in call("bench", path, "--seconds", 0.1).out
