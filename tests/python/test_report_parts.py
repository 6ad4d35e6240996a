"""Parts of a report: histograms count exactly, pictures are pixels, values have texts."""

import io
import re
import sys
import warnings
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from report_tools import EVIL, SVG, picture, written

import dataset_rt as drt
from dataset_rt.inspection import column_stats
from dataset_rt.inspection.positions import spread
from dataset_rt.inspection.values import edge_text, text_of
from dataset_rt.report.charts import sample_card
from dataset_rt.report.facts import SampleFacts
from dataset_rt.report.histograms import BINS, histogram_of
from dataset_rt.report.images import MIME, SIDE_MAX, image_size, picture_of
from dataset_rt.report.samples import payload_facts

DATE = '<span class="whole">2024-01-01</span>'


def counted(values, pieces=1, dtype=None):
    """The histogram of values that come in pieces, with edges as numbers."""
    series = pl.Series(values, dtype=dtype)
    step = max(1, len(series) // pieces)
    frames = [
        pl.DataFrame({"value": series[at : at + step]}).with_columns(count=pl.lit(1, pl.Int64))
        for at in range(0, len(series), step)
    ]
    return histogram_of(lambda: frames, len(series), lambda edge: edge)


@pytest.mark.parametrize("pieces", [1, 7])
def test_counts_of_floats_are_those_of_numpy(pieces):
    values = np.random.default_rng(0).normal(5, 2, 10_000)
    found = counted(values, pieces)
    expected, edges = np.histogram(values, bins=BINS)
    assert found.counts == expected.tolist()
    assert found.edges == pytest.approx(edges.tolist())
    assert (found.below, found.above) == (0, 0)


@pytest.mark.parametrize(
    ("low", "high"), [(0, 12), (-5, 90), (-(2**63), 2**63 - 1), (2**63, 2**64 - 1), (0, 39), (7, 7)]
)
def test_counts_of_integers_are_exact(low, high):
    draw = np.random.default_rng(1)
    drawn = [int(low + (high - low) * float(part)) for part in draw.random(3000)] + [low, high]
    values = [min(max(value, low), high) for value in drawn]
    found = counted(values, 5, pl.UInt64 if low >= 2**63 else pl.Int64)
    edges = found.edges
    assert (edges[0], edges[-1]) == (low, high)
    assert len(found.counts) <= BINS
    for i, number in enumerate(found.counts):
        is_last = i == len(found.counts) - 1
        assert number == sum(
            edges[i] <= value < edges[i + 1] or (is_last and value == high) for value in values
        )
    assert sum(found.counts) == len(values)


@pytest.mark.parametrize("number", [13, 40, 41, 60, 97, 121, 365, 5000])
def test_integers_that_come_alike_have_bars_alike(number):
    """No bin holds more of them than another; the last is drawn as wide as it is."""
    found = counted(list(range(number)))
    (width,) = set(found.counts[:-1])
    assert 13 <= len(found.counts) <= BINS
    assert found.last_width == pytest.approx(found.counts[-1] / width)
    assert found.last_width > 0.25


@pytest.mark.parametrize(
    ("text", "drawn"),
    [
        ("2024-01-01 06:59:00+00:00", f'{DATE} 06:59:00<wbr/><span class="whole">+00:00</span>'),
        ("2024-01-01 06:59:00.5-03:30", ' 06:59:00.5<wbr/><span class="whole">-03:30</span>'),
        ("2024-01-01 06:59:00", f"<dd>{DATE} 06:59:00</dd>"),
        ("2024-01-01", f"<dd>{DATE}</dd>"),
        ("<i>2024-01-01", "<dd>&lt;i&gt;2024-01-01</dd>"),
    ],
)
def test_a_time_breaks_between_its_parts_and_not_within(text, drawn):
    payload = payload_facts(memoryview(b""), 0)
    assert drawn in sample_card(SampleFacts(1, [("taken_at", text)], payload))


def test_outliers_are_counted_beside_it():
    values = [*np.random.default_rng(2).normal(0, 1, 5000), 1e12, 1e13, -1e300]
    found = counted(values)
    assert -5 < found.edges[0] < found.edges[-1] < 5
    assert found.below == sum(value < found.edges[0] for value in values)
    assert found.above == sum(value > found.edges[-1] for value in values)
    assert sum(found.counts) + found.below + found.above == len(values)


@pytest.mark.parametrize(
    "values",
    [[-1.7e308, 1.7e308, 0.0], [float("inf"), 1.0, float("-inf"), 2.0], [5e-324, 0.0], [3.0, 3.0]],
)
def test_extreme_floats_have_a_histogram(values):
    found = counted(values)
    assert sum(found.counts) == sum(np.isfinite(values))
    assert found.edges == sorted(found.edges)
    assert np.isfinite(found.edges).all()


def test_none_is_drawn_of_no_finite_value():
    assert counted([float("inf")]) is None
    assert counted([], dtype=pl.Float64) is None


def test_more_distinct_values_than_are_told_apart_have_the_same_histogram(
    runtime, tmp_path, monkeypatch
):
    """They are read once more instead of counted from what is kept."""
    draw = np.random.default_rng(3)
    samples = [(b"", {"x": float(x), "n": int(n)}) for x, n in draw.integers(0, 10**6, (3000, 2))]
    path = written(runtime, tmp_path, samples)
    drt.write_report(path, tmp_path / "few.html")
    monkeypatch.setattr(column_stats, "DISTINCT_MAX", 100)
    drt.write_report(path, tmp_path / "many.html")
    few, many = ((tmp_path / name).read_text() for name in ("few.html", "many.html"))
    assert "over 500,000" in many
    assert few.count("<rect") == many.count("<rect") > 40
    charts = [re.findall("<svg.*?</svg>", text) for text in (few, many)]
    assert charts[0] == charts[1]


@pytest.mark.parametrize("form", MIME)
def test_every_format_is_made_small(form):
    image_module = pytest.importorskip("PIL.Image")
    payload = picture(1, form, 600)
    found = picture_of(memoryview(payload), form)
    assert (found.width, found.height) == (608, 600)
    with image_module.open(io.BytesIO(found.content)) as small:
        assert max(small.size) == SIDE_MAX
        assert small.get_format_mimetype() == found.mime
    assert len(found.content) < 60_000


@pytest.mark.parametrize("form", MIME)
def test_without_pillow_small_files_are_embedded_and_large_ones_not(form, monkeypatch):
    small, large = picture(1, form, 20), picture(1, form, 500)
    assert image_size(large, form) == (508, 500)
    monkeypatch.setitem(sys.modules, "PIL", None)
    found = picture_of(memoryview(small), form)
    assert (found.content, found.mime, found.width, found.height) == (small, MIME[form], 28, 20)
    assert "Pillow" in picture_of(memoryview(large), form)


@pytest.mark.parametrize("has_pillow", [True, False])
def test_what_only_begins_like_a_picture_is_none(has_pillow, monkeypatch):
    heads = {"PNG": b"\x89PNG\r\n\x1a\n", "JPEG": b"\xff\xd8\xff", "GIF": b"GIF89a"}
    heads |= {"WebP": b"RIFF\0\0\0\0WEBP", "BMP": b"BM\x40\0\0\0"}
    if not has_pillow:
        monkeypatch.setitem(sys.modules, "PIL", None)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for kind, head in heads.items():
            for rest in (b"", b"\xff" * 7, bytes(58), EVIL.encode()):
                found = picture_of(memoryview(head + rest), kind)
                # Pixels by the size of whatever header stands there, or the reason why not.
                assert isinstance(found, str) or found.mime == MIME[kind]


def test_a_picture_that_would_fill_memory_is_not_decoded():
    image_module = pytest.importorskip("PIL.Image")
    out = io.BytesIO()
    image_module.new("1", (30_000, 30_000)).save(out, "PNG")
    assert len(out.getvalue()) < 500_000
    found = picture_of(memoryview(out.getvalue()), "PNG")
    assert isinstance(found, str)
    assert "30000 x 30000" in found or "DecompressionBomb" in found


def test_nothing_but_pixels_is_passed_on():
    image_module = pytest.importorskip("PIL.Image")
    from PIL.PngImagePlugin import PngInfo

    info, out = PngInfo(), io.BytesIO()
    info.add_text("where", "52.5200N 13.4050E")
    image_module.new("RGB", (9, 9)).save(out, "PNG", pnginfo=info)
    assert b"52.5200N" in out.getvalue()
    assert b"52.5200N" not in picture_of(memoryview(out.getvalue()), "PNG").content


def test_a_document_that_draws_is_shown_as_its_text():
    found = payload_facts(memoryview(SVG), 10**6)
    assert found.picture is None
    assert found.text.startswith("<svg")


def test_pictures_of_a_report_are_bounded():
    payload = memoryview(picture(1))
    assert payload_facts(payload, 10**6).picture
    refused = payload_facts(payload, 100)
    assert refused.picture is None
    assert "pictures enough" in refused.note


def test_samples_are_evenly_spread_and_those_of_the_seed():
    ids = spread(1000, 12, 5)
    assert ids == spread(1000, 12, 5) != spread(1000, 12, 6)
    assert [sample * 12 // 1000 for sample in ids] == list(range(12))
    assert spread(5, 12, 0) == [0, 1, 2, 3, 4]
    assert spread(5, 0, 0) == []


def test_dates_and_times_are_said_as_python_says_them():
    moment = datetime(2024, 7, 1, 12, 30, 5, 250_000, tzinfo=UTC)
    micros = int(moment.timestamp() * 10**6)
    local = moment.astimezone(ZoneInfo("Europe/Berlin"))
    assert text_of(micros, pl.Datetime("us", "Europe/Berlin")) == local.isoformat(" ").replace(
        ".250000", ".25"
    )
    assert text_of(micros, pl.Datetime("us")) == "2024-07-01 12:30:05.25"
    assert text_of(micros * 1000 + 7, pl.Datetime("ns")) == "2024-07-01 12:30:05.250000007"
    assert text_of(-1, pl.Date()) == "1969-12-31"
    day = 86_400 * 10**6
    assert edge_text(micros, pl.Datetime("us"), 4 * day) == "2024-07-01"
    assert edge_text(micros, pl.Datetime("us"), day) == "2024-07-01 12:30:05.25"


def test_dates_beyond_every_calendar_are_counts(runtime, tmp_path):
    """Polars panics over them."""
    table = pa.table(
        {
            "day": pa.array([2**31 - 1, 0, -(2**31), None] * 9, pa.int32()).cast(pa.date32()),
            "seen": pa.array([2**63 - 1, 0, -(2**63), None] * 9, pa.int64()).cast(
                pa.timestamp("us", "UTC")
            ),
            "payload": pa.array([b"x"] * 36),
        }
    )
    source = drt.ArrowSource("far", table)
    (result,) = runtime.write_cache(source, tmp_path)
    found = drt.write_report(result.path, tmp_path / "far.html", by="day", samples=36)
    assert found.ok, found.troubles
    text = found.path.read_text()
    assert "1970-01-01 + 2,147,483,647 days" in text
    assert "1970-01-01 - 9,223,372,036,854,775,808 us" in text
