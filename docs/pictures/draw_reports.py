"""Draws the pictures of reports for docs/command-line.md: real pages in a headless browser."""

import io
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from PIL import Image
from sklearn.datasets import load_digits

import dataset_rt as drt

PICTURES = Path(__file__).resolve().parent
BROWSERS = ("chromium-headless-shell", "chromium", "google-chrome")
COLOURS = 128
"""Enough for text and bars, and a third of the bytes."""


class Digits:
    """Digits, some rarer than others."""

    name = "digits"
    fingerprint = "8x8 at 32x32, v2"
    provenance = {"made by": "import_digits.py", "from": "scikit-learn, load_digits"}  # noqa: RUF012

    def __iter__(self) -> Iterator[drt.CacheInput]:
        """Yield them as PNG."""
        digits = load_digits()
        for i, (image, label) in enumerate(zip(digits.images, digits.target, strict=True)):
            if label % 3 == 0 and i % 4:
                continue
            pixels = np.kron((image * 15.9).astype(np.uint8), np.ones((4, 4), np.uint8))
            out = io.BytesIO()
            Image.fromarray(pixels).save(out, "PNG")
            split = "train" if i % 5 else "valid"
            metadata = {"label": int(label), "split": split, "ink": float(image.mean())}
            yield drt.CacheInput(out.getvalue(), metadata)


def draw(page: Path, picture: Path, width: int, height: int, *, is_dark: bool) -> None:
    """Take a picture of the upper part of a page."""
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is None:
        sys.exit(f"no browser on PATH: {', '.join(BROWSERS)}")
    command = [
        browser,
        "--headless",
        "--no-sandbox",
        "--hide-scrollbars",
        f"--screenshot={picture}",
    ]
    command += [f"--window-size={width},{height}"]
    command += [
        f"--blink-settings=preferredColorScheme={0 if is_dark else 1}",
        page.absolute().as_uri(),
    ]
    subprocess.run(command, check=True, capture_output=True)  # noqa: S603 - found above
    with Image.open(picture) as shot:
        shot.convert("RGB").quantize(COLOURS).save(picture, optimize=True)


def main() -> None:
    """Make the cache, a damaged copy, and both pictures."""
    with tempfile.TemporaryDirectory() as directory, drt.DatasetRuntime() as runtime:
        # What the pages say of paths is then short.
        os.chdir(directory)
        here = Path()
        config = drt.WriterConfig(max_shard_bytes=100_000, show_progress=False)
        (made,) = runtime.write_cache(Digits(), here, writer_config=config)
        if not isinstance(made, drt.CacheWriteSuccess):
            sys.exit(made.message)
        damaged = shutil.copytree(made.path, here / "old-disk")
        with (damaged / "shards/000001.arrow").open("r+b") as shard:
            shard.seek(20_000)
            shard.write(bytes(40_000))
        drt.write_report(made.path, here / "report.html", balance="label")
        drt.write_report(damaged, here / "damaged.html", balance="label")
        draw(here / "report.html", PICTURES / "report.png", 1280, 1350, is_dark=False)
        draw(here / "damaged.html", PICTURES / "report-damaged.png", 720, 1100, is_dark=True)


if __name__ == "__main__":
    main()
