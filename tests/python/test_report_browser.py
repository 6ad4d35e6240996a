"""Reports in a real headless browser: they show what they should, and nothing runs in them."""

import re
import subprocess

import pytest

pytest.importorskip("typer", reason="the command line needs the extra `cli`")

import report_tools
from browser_tools import BROWSER, WHY_NOT, Page, opened, probed
from cli_tools import call
from conftest import put

import dataset_rt as drt

pytestmark = pytest.mark.skipif(BROWSER is None, reason=WHY_NOT)

ELEMENTS = {"html", "head", "meta", "title", "style", "body", "main", "header", "section", "footer"}
ELEMENTS |= {"div", "span", "p", "h1", "h2", "h3", "code", "pre", "b", "i", "img", "bdi", "br"}
ELEMENTS |= {"table", "thead", "tbody", "tr", "th", "td", "dl", "dt", "dd", "details", "summary"}
ELEMENTS |= {"svg", "rect", "wbr"}


def damaged(runtime, directory):
    path = report_tools.pictures(runtime, directory, name="damaged")
    shard = path / "shards/000001.arrow"
    content = bytearray(shard.read_bytes())
    content[20_000:60_000] = bytes(40_000)
    put(shard, bytes(content))
    return path


MAKE = {
    "pictures": report_tools.pictures,
    "table": report_tools.table,
    "texts": report_tools.texts,
    "damaged": damaged,
    "columns": report_tools.many_columns,
    "hostile": report_tools.hostile,
}


@pytest.fixture(scope="module")
def reports(tmp_path_factory):
    """One report of each kind of cache."""
    directory = tmp_path_factory.mktemp("reports")
    found = {}
    with drt.DatasetRuntime(num_workers=2) as runtime:
        for name, make in MAKE.items():
            found[name] = directory / f"{name}.html"
            done = call("report", make(runtime, directory / name), "-o", found[name])
            assert done.code == (1 if name == "damaged" else 0), done.err
    return found


@pytest.mark.parametrize("name", MAKE)
def test_nothing_runs_and_nothing_is_asked_for(reports, name, tmp_path):
    seen = opened(reports[name], tmp_path)
    assert seen.console == []
    assert seen.requests == []
    page = Page(seen.dom)
    assert {element for element, _ in page.elements} <= ELEMENTS
    for _, attributes in page.elements:
        assert not any(key.startswith("on") or key == "href" for key in attributes), attributes
        assert re.match(
            r"data:image/(png|jpeg);base64,", attributes.get("src", "data:image/png;base64,")
        )
    assert "dataset report" in page.text


def test_the_watch_over_requests_and_scripts_sees_them(tmp_path):
    """Without this, the test above could not fail."""
    page = tmp_path / "control.html"
    page.write_text('<img src="http://example.invalid/x.png"><script>console.log("hi")</script>')
    seen = opened(page, tmp_path)
    assert seen.requests == ["http://example.invalid/x.png"]
    assert "hi" in seen.console[0]


@pytest.mark.parametrize(
    ("name", "width"), [*[(name, 400) for name in MAKE], ("columns", 1280), ("hostile", 1280)]
)
def test_nothing_is_wider_than_the_window(reports, name, width, tmp_path):
    found, _ = probed(reports[name], tmp_path, width=width)
    assert found["width"] == width
    assert found["scrollWidth"] <= width
    assert found["tooWide"] == []
    assert found["cut"] == []


def test_thumbnails_are_pictures(reports, tmp_path):
    found, _ = probed(reports["pictures"], tmp_path)
    assert found["images"] == [[True, 40, 32]] * 12
    found, _ = probed(reports["damaged"], tmp_path)
    assert 4 <= len(found["images"]) < 12
    assert {tuple(image) for image in found["images"]} == {(True, 40, 32)}


def test_hostile_values_run_nothing_though_the_page_were_allowed_to(reports, tmp_path):
    """Escaping alone holds: the policy of the page is a second wall, not the only one."""
    text = reports["hostile"].read_text()
    open_page = tmp_path / "open.html"
    open_page.write_text(re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", text))
    assert "Content-Security-Policy" not in open_page.read_text()
    seen = opened(open_page, tmp_path)
    assert seen.console == []
    assert seen.requests == []
    title = re.search("<title>(.*?)</title>", seen.dom)[1]
    assert title == "h&lt;b&gt;\u2215i \u00b7 dataset report"
    page = Page(seen.dom)
    assert {element for element, _ in page.elements} <= ELEMENTS
    assert "document.title='owned'" in page.text


def test_the_policy_forbids_scripts_even_where_one_got_in(reports, tmp_path):
    page = tmp_path / "with_script.html"
    text = reports["texts"].read_text()
    page.write_text(text.replace("</body>", "<script>document.title = 'owned'</script></body>"))
    seen = opened(page, tmp_path)
    assert "<title>texts \u00b7 dataset report</title>" in seen.dom
    assert "Content Security Policy" in seen.console[0]


def test_it_is_dark_where_the_reader_is(reports, tmp_path):
    light, _ = probed(reports["texts"], tmp_path)
    dark, _ = probed(reports["texts"], tmp_path, dark=True)
    assert sum(map(int, re.findall(r"\d+", light["background"]))) > 3 * 200
    assert sum(map(int, re.findall(r"\d+", dark["background"]))) < 3 * 60


def test_thumbnails_are_seen_in_the_colours_of_the_payload(runtime, tmp_path):
    """A picture of one colour comes to the screen in this colour."""
    image_module = pytest.importorskip("PIL.Image")
    import io

    out = io.BytesIO()
    image_module.new("RGB", (100, 100), (255, 0, 128)).save(out, "PNG")
    path = report_tools.written(runtime, tmp_path, [(out.getvalue(), {})] * 12, name="pink")
    report, shot = tmp_path / "pink.html", tmp_path / "pink.png"
    drt.write_report(path, report)
    command = [BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"]
    command += [f"--user-data-dir={tmp_path / 'profile'}", "--window-size=1280,1400"]
    subprocess.run(
        [*command, f"--screenshot={shot}", report.as_uri()],
        capture_output=True,
        timeout=60,
        check=True,
    )
    with image_module.open(shot) as screen:
        pixels = screen.convert("RGB").getcolors(2**24)
    pink = sum(number for number, colour in pixels if colour == (255, 0, 128))
    assert 12 * 90 * 90 < pink < 12 * 160 * 160
