"""Charts of `dataset.plot`: their few numbers are those of the table and of the samples read."""

import copy
import json
import re
import subprocess
import sys

import polars as pl
import pyarrow as pa
import pytest
from conftest import opened

from dataset_rt import ArrowSource, CorruptError, InvalidInputError, open_dataset

alt = pytest.importorskip("altair", reason="needs the extra `plot`")

from dataset_rt.plotting import figures  # noqa: E402
from dataset_rt.plotting.bins import BINS  # noqa: E402

ROWS = 700
HOSTILE = "<script>\u202e\x1b[31m"


@pytest.fixture
def caches(runtime, tmp_path):
    """Two caches, 700 rows together, of unequal classes and payloads of 0 to 4,096 bytes."""
    labels = ["abcdefgh"[min(7, (row * row) % 13)] for row in range(ROWS)]
    table = pa.table(
        {
            "payload": pa.array([b"x" * (2 ** (row % 14) // 2) for row in range(ROWS)]),
            "label": pa.array([None if row % 50 == 0 else one for row, one in enumerate(labels)]),
            "user": pa.array([row % 101 for row in range(ROWS)]),
            HOSTILE: pa.array(["y" * 100 + HOSTILE + str(row % 3) for row in range(ROWS)]),
        }
    )
    sources = [ArrowSource("one", table.slice(0, 450)), ArrowSource("two", table.slice(450))]
    runtime.write_cache(sources, tmp_path)
    return [tmp_path / "one", tmp_path / "two"]


@pytest.fixture
def weighted(caches):
    dataset = open_dataset(caches, seed=5, shuffle=True)
    weight = (pl.int_range(pl.len()) % 17 + 1) ** 2 / 4
    table = dataset.get_metadata().sample(fraction=0.9, seed=1, shuffle=True)
    dataset.update_metadata(table.with_columns(weight=weight, extra=pl.col("user") * 0.5))
    return dataset


def drawn(chart):
    """The rows of a chart's data; it is valid by the schema of Vega-Lite."""
    assert isinstance(chart, alt.Chart)
    document = json.loads(chart.to_json())
    (data,) = document["datasets"].values() if "datasets" in document else [None]
    return pl.DataFrame(document["data"]["values"] if data is None else data)


def of(chart, kind):
    frame = drawn(chart).filter(pl.col("kind") == kind)
    return dict(frame.select("value", "share").rows())


def test_weights_are_counted_in_ranges_of_all_of_them(weighted):
    weights = weighted.get_metadata()["weight"]
    frame = drawn(weighted.plot.weights())
    assert frame.height == BINS
    assert (frame["begin"][0], frame["end"][-1]) == (weights.min(), weights.max())
    for row in frame.iter_rows(named=True):
        is_last = row["end"] == weights.max()
        inside = (weights >= row["begin"]) & (
            (weights <= row["end"]) if is_last else (weights < row["end"])
        )
        assert row["rows"] == inside.sum(), row
        assert row["share"] == pytest.approx(weights.filter(inside).sum() / weights.sum())
    assert json.loads(weighted.plot.weights().to_json())["encoding"]["x"]["scale"]["type"] == "log"


def test_equal_weights_are_one_bar(caches):
    chart = open_dataset(caches).plot.weights()
    assert drawn(chart)["rows"].to_list() == [ROWS]
    assert json.loads(chart.to_json())["title"]["subtitle"] == ["all equal: 1"]


def test_balance_is_that_of_rows_and_weights(weighted):
    table = weighted.get_metadata()
    expected = table.group_by(pl.col("label").fill_null("null")).agg(
        rows=pl.len() / table.height, weight=pl.col("weight").sum() / table["weight"].sum()
    )
    chart = weighted.plot.class_balance("label")
    rows = dict(expected.select("label", "rows").rows())
    assert of(chart, "share of the rows") == pytest.approx(rows)
    weights = dict(expected.select("label", "weight").rows())
    assert of(chart, "share of the weight") == pytest.approx(weights)
    order = expected.sort(["rows", "label"], descending=[True, False])["label"].to_list()
    assert json.loads(chart.to_json())["encoding"]["y"]["sort"] == order


def subtitle_of(chart):
    return " ".join(json.loads(chart.to_json())["title"].get("subtitle", []))


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"shuffle": False}, "in table order (shuffle=False) weights do nothing"),
        (
            {"shuffle": True, "sampling": "permutation"},
            'sampling="permutation" reads each row once a cycle: weights do nothing',
        ),
        ({"shuffle": True}, None),
    ],
)
def test_charts_say_where_weights_do_nothing(runtime, caches, weighted, options, says):
    dataset = opened(runtime, caches, **options)
    for chart in (dataset.plot.weights(), dataset.plot.class_balance("label")):
        assert "do nothing" not in subtitle_of(chart)
    dataset.update_metadata(weighted.get_metadata())
    for chart in (dataset.plot.weights(), dataset.plot.class_balance("label")):
        assert says in subtitle_of(chart) if says else "do nothing" not in subtitle_of(chart)


def test_balance_without_weights_has_one_bar_a_value(caches):
    frame = drawn(open_dataset(caches).plot.class_balance("label"))
    assert frame["kind"].unique().to_list() == ["share of the rows"]
    assert frame["share"].sum() == pytest.approx(1)
    assert frame["rows"].sum() == ROWS


def test_of_many_values_the_rest_is_summed_up(weighted):
    chart = weighted.plot.class_balance("user")
    frame = drawn(chart)
    assert frame.height == 2 * figures.VALUES_MAX
    table = weighted.get_metadata()
    counts = table["user"].value_counts(sort=True)["count"]
    shown = frame.filter(kind="share of the rows")
    assert sorted(shown["rows"], reverse=True) == counts.head(30).to_list()
    rest = counts.slice(30).sum() / table.height
    choice, *more = json.loads(chart.to_json())["title"]["subtitle"]
    subtitle = " ".join(more)
    assert choice == "the 30 most frequent of 101 values"
    assert subtitle.startswith(f"other (71 values): {rest:.1%} of the rows, ")


def test_floats_are_put_into_ranges_that_lose_nothing(weighted):
    table = weighted.get_metadata()
    odd = pl.when(pl.col("user") == 3).then(None).when(pl.col("user") == 4).then(float("nan"))
    weighted.update_metadata(table.with_columns(ink=odd.otherwise(pl.col("user") / 7 - 3)))
    table = weighted.get_metadata()
    for chart, kinds in (
        (weighted.plot.class_balance("ink"), ["share of the rows", "share of the weight"]),
        (weighted.plot.draws("ink", 4000), ["due by weight", "drawn"]),
    ):
        document = json.loads(chart.to_json())
        # One of the 101 values is null: no value.
        assert "100 values, in ranges" in document["title"]["subtitle"][-1]
        order = document["encoding"]["y"]["sort"]
        assert order[-2:] in (["null", "nan"], ["nan", "null"])
        edges = [[float(edge) for edge in name.split(" to ")] for name in order[:-2]]
        assert len(edges) == figures.RANGES_MAX
        assert edges == sorted(edges)
        for kind in kinds:
            assert sum(of(chart, kind).values()) == pytest.approx(1)
    rows = of(weighted.plot.class_balance("ink"), "share of the rows")
    assert rows["null"] == pytest.approx((table["user"] == 3).mean())
    first = table["ink"].fill_nan(None) < edges[0][1]
    assert rows[order[0]] == pytest.approx(first.sum() / table.height)


def test_zero_has_no_sign_and_booleans_are_written_as_everywhere(weighted):
    table = weighted.get_metadata()
    zero = pl.when(pl.col("user") % 2 == 0).then(-0.0).otherwise(1.5)
    ink = pl.when(pl.col("user") == 0).then(-0.0).otherwise(pl.col("user") / 7)
    hard = pl.when(pl.col("user") > 3).then(pl.col("user") > 50)
    weighted.update_metadata(table.with_columns(zero=zero, hard=hard, ink=ink))
    for chart in (weighted.plot.class_balance, weighted.plot.draws):
        assert sorted(drawn(chart("zero"))["value"].unique()) == ["0", "1.5"]
        assert sorted(drawn(chart("hard"))["value"].unique()) == ["false", "null", "true"]
        assert "-0" not in " ".join(drawn(chart("ink"))["value"])


def test_long_names_are_cut_in_the_middle(weighted):
    table = weighted.get_metadata()
    paths = pl.format("/data/pictures/of/animals/at/night/{}.png", pl.col("user") % 3 + 100)
    paths = pl.when(pl.col("user") < 50).then(paths.str.to_uppercase()).otherwise(paths)
    weighted.update_metadata(
        table.with_columns(path=paths, wide=pl.concat_str(paths, pl.lit("猫")))
    )
    for chart in (weighted.plot.class_balance("path"), weighted.plot.draws("path")):
        named = drawn(chart)["value"].unique().to_list()
        ends = ["100.PNG", "100.png", "101.PNG", "101.png", "102.PNG", "102.png"]
        assert sorted(name[-7:] for name in named) == ends
        for name in named:
            assert name.lower().startswith("/data/")
            assert "..." in name
        words, _ = shown_words(chart)
        # The chart cuts nothing more.
        assert set(named) <= set(words)
    assert all(
        "png猫" in name.lower() for name in drawn(weighted.plot.class_balance("wide"))["value"]
    )


def test_many_dates_are_put_into_ranges(weighted):
    table = weighted.get_metadata()
    days = pl.int_range(pl.len()) % 301
    day = pl.when(pl.col("user") != 3).then(pl.date(2024, 1, 1) + pl.duration(days=days))
    at = pl.datetime(2024, 1, 1, time_zone="UTC") + pl.duration(hours=days)
    weighted.update_metadata(table.with_columns(day=day, at=at))
    table = weighted.get_metadata()
    for chart in (weighted.plot.class_balance("day"), weighted.plot.draws("day", 900)):
        document = json.loads(chart.to_json())
        assert f"{table['day'].drop_nulls().n_unique()} values, in ranges" in subtitle_of(chart)
        *names, last = document["encoding"]["y"]["sort"]
        assert last == "null"
        assert names[0].startswith("2024-01-01 to ")
        assert names[-1].endswith(" to 2024-10-27")
        assert len(names) <= figures.RANGES_MAX
    rows = of(weighted.plot.class_balance("day"), "share of the rows")
    assert sum(rows.values()) == pytest.approx(1)
    first, last = (pl.Series([edge]).str.to_date().item() for edge in names[0].split(" to "))
    inside = table["day"].is_between(first, last).sum()
    assert rows[names[0]] == pytest.approx(inside / table.height)
    names = json.loads(weighted.plot.class_balance("at").to_json())["encoding"]["y"]["sort"]
    assert len(names) <= figures.RANGES_MAX
    assert names[:2] == ["from 2024-01-01 00:00", "from 2024-01-01 15:00"]
    assert not [name for name in names if "[" in name]


def test_many_odd_times_are_put_into_ranges(weighted):
    table = weighted.get_metadata()
    odd = (pl.int_range(pl.len()) % 70) * (2**57) - 2**62
    for unit in ("ms", "us", "ns"):
        at = odd.cast(pl.Datetime(unit))
        weighted.update_metadata(
            table.with_columns(at=at, day=pl.int_range(pl.len()).cast(pl.Date))
        )
        for column in ("at", "day"):
            rows = of(weighted.plot.class_balance(column), "share of the rows")
            assert 1 < len(rows) <= figures.RANGES_MAX
            assert sum(rows.values()) == pytest.approx(1)
            assert not [name for name in rows if "[" in name]


def test_ages_and_days_keep_their_order(weighted):
    table = weighted.get_metadata()
    age = pl.col("user") % 50
    day = pl.date(2024, 1, 1) + pl.duration(days=age)
    weighted.update_metadata(table.with_columns(age=age, day=day))
    for chart in (weighted.plot.draws("age", 3000), weighted.plot.class_balance("age")):
        assert json.loads(chart.to_json())["encoding"]["y"]["sort"] == [str(at) for at in range(50)]
    days = json.loads(weighted.plot.class_balance("day").to_json())["encoding"]["y"]["sort"]
    assert days == sorted(days)
    assert len(days) == 50
    title = json.loads(weighted.plot.draws("user", 9).to_json())["title"]
    assert title["subtitle"][1] == "the 30 largest due shares of 101 values"


def test_days_that_no_calendar_has_are_drawn(runtime, tmp_path):
    days = pa.array([-(2**31), 2**31 - 1, 0, None], pa.int32()).cast(pa.date32())
    moments = pa.array([-(2**63), 2**63 - 1, 0, None], pa.timestamp("us"))
    table = pa.table({"payload": [b"x"] * 4, "day": days, "at": moments})
    runtime.write_cache(ArrowSource("odd", table), tmp_path)
    dataset = open_dataset(tmp_path / "odd", shuffle=True, seed=1)
    for column in ("day", "at"):
        named = drawn(dataset.plot.class_balance(column))["value"].to_list()
        assert any(name.startswith("1970-01-01") and len(name) > 19 for name in named)
        assert not drawn(dataset.plot.draws(column, 9)).is_empty()
    assert "day | Date" in re.sub(r"(<[^>]*>)+", " | ", dataset._repr_html_())


def test_each_meaning_has_one_colour(weighted):
    colours = {}
    for chart in (
        weighted.plot.class_balance("label"),
        weighted.plot.draws("label"),
        open_dataset(weighted.cache_paths).plot.draws("label"),
    ):
        scale = json.loads(chart.to_json())["encoding"]["color"]["scale"]
        for name, colour in zip(scale["domain"], scale["range"], strict=True):
            meaning = name.removeprefix("share of the ").removeprefix("due by ")
            assert colours.setdefault(meaning, colour) == colour
    assert len(set(colours.values())) == len(colours) == 3
    bars = json.loads(weighted.plot.payload_sizes().to_json())["mark"]["color"]
    assert bars == colours["rows"]


def shown_words(chart):
    convert = pytest.importorskip("vl_convert", reason="see requirements/dev.in")
    svg = convert.vegalite_to_svg(chart.to_json())
    width = float(re.search(r'width="([0-9.]+)"', svg)[1])
    return re.findall(r"<text[^>]*>([^<]*)<", svg), width


def test_axes_are_written_as_people_write_them(weighted):
    table = weighted.get_metadata()
    weighted.update_metadata(table.with_columns(weight=pl.col("user").cast(float) * 100 + 1))
    words, _ = shown_words(weighted.plot.weights())
    assert "weight (logarithmic)" in words
    assert "10,000" in words
    sizes, _ = shown_words(weighted.plot.payload_sizes())
    assert "payload size before compression (logarithmic)" in sizes
    assert {"1 B", "1 kB"} <= {*sizes}
    for word in [*words, *sizes]:
        assert not re.search(r"0k|[0-9]e[+]", word)
    # Few enough to be read.
    assert sum(word.replace(",", "").isdigit() for word in words) <= 12
    title = json.loads(weighted.plot.payload_sizes().to_json())["title"]
    assert "on average" in title["subtitle"][0]


@pytest.mark.parametrize("sizes", [[1], [1, 2], [2, 3, 3], [3]])
def test_few_rows_and_bytes_are_counted_in_wholes(runtime, tmp_path, sizes):
    table = pa.table({"payload": [b"x" * size for size in sizes], "label": ["a"] * len(sizes)})
    runtime.write_cache(ArrowSource("few", table), tmp_path)
    dataset = open_dataset(tmp_path / "few")
    weight = pl.Series("weight", [float(size) for size in sizes])
    dataset.update_metadata(dataset.get_metadata().with_columns(weight))
    for chart in (dataset.plot.payload_sizes(), dataset.plot.weights()):
        words, _ = shown_words(chart)
        at = words.index("rows")
        ticks = []
        while (word := words[at - 1 - len(ticks)]).isdigit():
            ticks.append(int(word))
        assert ticks[::-1] == list(range(len(ticks))), words
        assert len(ticks) >= 2
    words, _ = shown_words(dataset.plot.payload_sizes())
    assert not [word for word in words if re.search(r"[0-9] ?[mun]B$|[.][0-9]+ B$", word)]
    ticks = [word for word in words if re.fullmatch(r"[0-9]+ B", word)]
    assert len(ticks) == len(set(ticks)) >= 2


def test_charts_fit_a_telephone(weighted):
    long = weighted.get_metadata().with_columns(long=pl.lit("x" * 90))
    weighted.update_metadata(long)
    for chart in (
        weighted.plot.weights(),
        weighted.plot.payload_sizes(),
        weighted.plot.class_balance("label"),
        weighted.plot.class_balance("user"),
        weighted.plot.draws("long"),
    ):
        assert shown_words(chart)[1] <= 384


def test_few_numbers_keep_their_order(weighted):
    table = weighted.get_metadata()
    weighted.update_metadata(table.with_columns(digit=(pl.col("user") * 7 % 11)))
    sort = json.loads(weighted.plot.class_balance("digit").to_json())["encoding"]["y"]["sort"]
    assert sort == [str(digit) for digit in range(11)]


def test_too_many_values_are_refused(weighted, monkeypatch):
    monkeypatch.setattr(figures, "DISTINCT_MAX", 100)
    with pytest.raises(InvalidInputError, match=r"'user' has more than 100 different values"):
        weighted.plot.class_balance("user")


def test_sizes_are_those_of_the_payloads_of_active_rows(weighted, monkeypatch):
    sizes = pl.Series([len(sample.data) for sample in in_table_order(weighted)])
    chart = weighted.plot.payload_sizes()
    frame = drawn(chart)
    some = sizes.filter(sizes > 0)
    assert frame["rows"].sum() == len(some)
    assert (frame["begin"][0], frame["end"][-1]) == (some.min(), some.max())
    assert frame["sum"].sum() == sizes.sum()
    for row in frame.filter(pl.col("rows") > 0).iter_rows(named=True):
        # Ranges are far narrower than these sizes are apart.
        (size,) = {size for size in some if row["begin"] * 0.99 <= size <= row["end"] * 1.01}
        assert row["rows"] == (sizes == size).sum()
    subtitle = " ".join(json.loads(chart.to_json())["title"]["subtitle"])
    assert f"{(sizes == 0).sum()} of them empty and not shown" in subtitle


def in_table_order(dataset):
    table = dataset.get_metadata()
    return [dataset.get_item(*row) for row in table.select("cache_id", "sample_id").rows()]


def test_no_payload_is_read_for_any_chart(caches, weighted):
    for path in caches:
        shard = path / "shards/000000.arrow"
        shard.write_bytes(b"\0" * shard.stat().st_size)
    for chart in (
        weighted.plot.weights(),
        weighted.plot.class_balance("label"),
        weighted.plot.payload_sizes(),
        weighted.plot.draws("label", 100),
    ):
        assert not drawn(chart).is_empty()


def test_a_damaged_index_is_an_error_that_names_it(caches, weighted):
    index = caches[1] / "index.bin"
    content = bytearray(index.read_bytes())
    content[64 + 12] ^= 1
    index.write_bytes(content)
    with pytest.raises(CorruptError, match=r"two/index\.bin is damaged"):
        weighted.plot.payload_sizes()


def delivered(dataset, n):
    """What training would get next, by really reading samples, epoch after epoch."""
    found = []
    while len(found) < n:
        found += [sample.metadata["label"] for sample in dataset]
    return pl.Series(found[:n], dtype=pl.String).fill_null("null")


def shares_of(values):
    return {value: number / len(values) for value, number in values.value_counts().rows()}


def missing_are_none(shares, names):
    return {name: shares.get(name, 0.0) for name in names}


@pytest.mark.parametrize("n", [1, 400, 2500])
@pytest.mark.parametrize(
    "sampling", ["multinomial", "permutation", "weighted_without_replacement", None]
)
def test_draws_are_the_samples_that_training_gets(runtime, caches, weighted, sampling, n):
    options = {"sampling": sampling, "shuffle": True} if sampling else {"shuffle": False}
    dataset = opened(runtime, caches, seed=9, **options)
    dataset.update_metadata(weighted.get_metadata())
    dataset.set_epoch_len(150)
    dataset.set_epoch(3)
    before = (dataset.state_dict(), dataset.epoch, len(dataset))
    chart = dataset.plot.draws("label", n)
    assert (dataset.state_dict(), dataset.epoch, len(dataset)) == before
    table = dataset.get_metadata()
    by = pl.col("weight").sum() if sampling == "multinomial" else pl.len()
    due = table.group_by(pl.col("label").fill_null("null")).agg(share=by.cast(pl.Float64))
    due = due.with_columns(pl.col("share") / pl.col("share").sum())
    if sampling == "weighted_without_replacement":
        assert "no share is due" in " ".join(chart.to_dict()["title"]["subtitle"])
    else:
        name = "due by weight" if sampling == "multinomial" else "due by rows"
        assert of(chart, name) == pytest.approx(dict(due.rows()))
    found = of(chart, "drawn")
    assert found == pytest.approx(missing_are_none(shares_of(delivered(dataset, n)), found))


def test_whole_cycles_without_replacement_are_due_by_rows(runtime, caches, weighted):
    options = {"sampling": "weighted_without_replacement", "shuffle": True}
    dataset = opened(runtime, caches, **options)
    is_even = dataset.plot.draws("label", 7)
    assert {"due by rows", "drawn"} == set(drawn(is_even)["kind"])
    dataset.update_metadata(weighted.get_metadata())
    for cycles in (1, 2):
        chart = dataset.plot.draws("label", cycles * dataset.get_metadata().height)
        assert of(chart, "due by rows") == pytest.approx(of(chart, "drawn"))
    part = drawn(dataset.partition(0, 2).plot.draws("label", dataset.get_metadata().height))
    assert set(part["kind"]) == {"drawn"}


def test_draws_go_on_within_an_epoch(weighted):
    state = weighted.state_dict()
    reading = iter(weighted)
    for _ in range(100):
        next(reading)
    resumed = copy.copy(weighted)
    resumed.load_state_dict(weighted.state_dict())
    assert resumed.state_dict()["position"] == 100 != state["position"]
    chart = resumed.plot.draws("label", 800)
    found = of(chart, "drawn")
    assert found == pytest.approx(missing_are_none(shares_of(delivered(resumed, 800)), found))
    assert "stream from 100 to 900" in json.loads(chart.to_json())["title"]["subtitle"][0]


@pytest.mark.parametrize("options", [{"global_batch_size": 10, "drop_last": True}, {}])
def test_draws_of_a_share_are_those_of_its_rank(weighted, options):
    weighted.set_epoch_len(97)
    share = weighted.partition(2, 3, **options)
    chart = share.plot.draws("label", 200)
    found = of(chart, "drawn")
    assert found == pytest.approx(missing_are_none(shares_of(delivered(share, 200)), found))
    nothing = weighted.partition(0, 3, global_batch_size=100, drop_last=True)
    with pytest.raises(InvalidInputError, match="no samples to draw"):
        nothing.plot.draws("label", 5)


def test_by_default_one_epoch_is_drawn(weighted):
    weighted.set_epoch_len(321)
    frame = drawn(weighted.plot.draws("label")).filter(kind="drawn")
    assert frame["samples"].sum() == 321


def test_extra_and_identity_columns_have_charts(weighted):
    for column in ("extra", "cache_id", "weight", "sample_id"):
        assert not drawn(weighted.plot.class_balance(column)).is_empty()
        assert not drawn(weighted.plot.draws(column, 50)).is_empty()


@pytest.mark.filterwarnings("error")
def test_values_of_any_type_are_named(weighted):
    table = weighted.get_metadata()
    nan = pl.when(pl.col("user") > 50).then(float("nan")).otherwise(pl.col("user") % 2)
    weighted.update_metadata(
        table.with_columns(
            f=nan,
            tags=pl.concat_list(pl.col("user") % 2, pl.lit(7, pl.Int64)),
            pair=pl.struct(x=pl.col("user") % 2),
            day=pl.date(2024, 1, 31),
            raw=pl.lit(b"\xff"),
        )
    )
    named = {
        "f": ["0", "1", "nan"],
        "tags": ["[0, 7]", "[1, 7]"],
        "pair": ["{'x': 0}", "{'x': 1}"],
        "day": ["2024-01-31"],
        "raw": ["b'\\xff'"],
    }
    for column, values in named.items():
        chart = weighted.plot.class_balance(column)
        assert sorted(drawn(chart)["value"].unique()) == values
        found = of(weighted.plot.draws(column, 3000), "drawn")
        assert sorted(found) == values
        assert sum(found.values()) == pytest.approx(1)
        assert min(found.values()) > 0


def test_hostile_names_and_values_are_harmless_and_stay_apart(weighted):
    chart = weighted.plot.class_balance(HOSTILE)
    assert drawn(chart)["value"].n_unique() == 3
    text = chart.to_json(ensure_ascii=False)
    assert "\u202e" not in text
    assert "\\u001b" not in text


def test_wrong_columns_are_named_with_those_there_are(weighted):
    for method in (weighted.plot.class_balance, weighted.plot.draws):
        with pytest.raises(InvalidInputError, match=r"no column 'lable' to plot; .*label, user"):
            method("lable")
        with pytest.raises(InvalidInputError, match=r"no column 'payload'"):
            method("payload")
        with pytest.raises(TypeError, match="name of a column, found int"):
            method(3)
    with pytest.raises(InvalidInputError, match="n must be an integer from 1"):
        weighted.plot.draws("label", 0)


def test_charts_stay_small_whatever_the_table(weighted):
    for chart in (weighted.plot.weights(), weighted.plot.draws("user", 5000)):
        assert drawn(chart).height <= 2 * figures.VALUES_MAX


def test_charts_read_on_light_and_dark_pages(weighted):
    document = json.loads(weighted.plot.weights().to_json())
    assert document["background"] == document["config"].get("background", "transparent")
    for channel in ("labelColor", "titleColor"):
        colour = document["config"]["axis"][channel]
        light = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
        luminance = sum(
            part * (c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4)
            for part, c in zip((0.2126, 0.7152, 0.0722), light, strict=True)
        )
        # On white, on JupyterLab's #111111 and on the #1e1e1e of VS Code; with one colour for all
        # there is no more than 4.08.
        assert 1.05 / (luminance + 0.05) > 4
        assert (luminance + 0.05) / (0.0056 + 0.05) > 4
        assert (luminance + 0.05) / (0.0130 + 0.05) > 4
    for part in ("axis", "legend"):
        assert document["config"][part]["labelFontSize"] >= 11


def test_pictures_can_be_made_of_them(weighted):
    convert = pytest.importorskip("vl_convert", reason="see requirements/dev.in")
    for chart in (
        weighted.plot.weights(),
        weighted.plot.payload_sizes(),
        weighted.plot.class_balance("label"),
        weighted.plot.draws("label"),
    ):
        assert "<svg" in convert.vegalite_to_svg(chart.to_json())


def test_without_altair_the_error_names_the_extra(caches):
    code = (
        "import sys; sys.modules['altair'] = None\n"
        "from dataset_rt import open_dataset\n"
        "try: open_dataset(sys.argv[1]).plot.weights()\n"
        "except ImportError as error: print(error)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, caches[0]], capture_output=True, text=True, check=True
    )
    assert done.stdout == (
        "dataset.plot needs Altair: pip install altair, or this package with its extra `plot`\n"
    )
