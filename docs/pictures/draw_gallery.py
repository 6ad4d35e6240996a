"""Draws the pictures of docs/gallery.md from what the examples compute.

Grounds are transparent and letters of a middle grey, so that light and dark pages can show them.
"""

import io
import runpy
import tempfile
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib import pyplot as plt
from PIL import Image

import dataset_rt as drt

PICTURES = Path(__file__).resolve().parent
EXAMPLES = PICTURES.parents[1] / "examples"
GREY, BLUE, ORANGE = "#808489", "#3d85c6", "#e08a1e"
WIDTH = 6.0  # inches: letters of 11 points stay readable on a telephone

STYLE = {
    "axes.edgecolor": GREY,
    "axes.labelcolor": GREY,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlesize": 11,
    "font.size": 11,
    "savefig.transparent": True,
    "svg.fonttype": "none",
    "svg.hashsalt": "gallery",
    "text.color": GREY,
    "xtick.color": GREY,
    "ytick.color": GREY,
    "legend.frameon": False,
}


def run(name: str, directory: Path) -> dict[str, Any]:
    """Run an example, and return its names."""
    scope = runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name="example")
    scope["main"](directory)
    return scope


def save(figure: Any, name: str) -> None:
    """Save a picture, small, and without the time it was drawn at."""
    if name.endswith(".svg"):
        figure.savefig(PICTURES / name, metadata={"Date": None})
    else:
        drawn = io.BytesIO()
        figure.savefig(drawn, dpi=140)
        colours = Image.open(drawn).quantize(256, method=Image.Quantize.FASTOCTREE)
        colours.save(PICTURES / name, optimize=True)
    plt.close(figure)


def draw_balancing(directory: Path) -> None:
    """The beginning of both streams as it comes, rare images framed."""
    scope = run("images_balanced", directory)
    dataset = drt.open_dataset(directory / "caches/train", seed=scope["SEED"], shuffle=True)
    rows, columns = 3, 10
    figure, panels = plt.subplots(2, 1, figsize=(WIDTH, 4.5), layout="constrained")
    for name, axes in zip(("all weights equal", "weight = 1 / class size"), panels, strict=True):
        if axes is panels[1]:
            scope["balance"](dataset)
            dataset.set_epoch(0)
        rare = 0
        for place, sample in zip(range(rows * columns), dataset, strict=False):
            top, left = place // columns * 36, place % columns * 36
            tile = np.asarray(Image.open(io.BytesIO(sample.data)))
            is_rare = sample.metadata["label"] == "flower"
            rare += is_rare
            edge = 2 if is_rare else 0.5
            axes.add_patch(
                plt.Rectangle(
                    (left - edge, top - edge),
                    32 + 2 * edge,
                    32 + 2 * edge,
                    color=ORANGE if is_rare else GREY,
                    linewidth=0,
                )
            )
            axes.imshow(tile, extent=(left, left + 32, top + 32, top), zorder=2)
        axes.set(xlim=(-3, columns * 36), ylim=(rows * 36, -3), aspect="equal")
        axes.axis("off")
        axes.set_title(f"{name}: {rare} of the first {rows * columns} are flowers", loc="left")
    save(figure, "gallery-balancing.png")


def draw_buckets(directory: Path) -> None:
    """Tokens and padding of each batch of one epoch, in both orders."""
    scope = run("text_buckets", directory)
    dataset = drt.open_dataset(directory / "caches/docstrings")
    table = dataset.get_metadata()
    figure, panels = plt.subplots(
        2, 1, figsize=(WIDTH, 3.8), sharex=True, sharey=True, layout="constrained"
    )
    for name, axes in zip(("shuffled", "bucketed"), panels, strict=True):
        dataset.update_metadata(scope[name](table, 0))
        batches = [scope["padded"](batch) for batch in dataset.iter_batches(scope["BATCH_SIZE"])]
        cells = np.array([batch.size for batch in batches])
        tokens = np.array([np.count_nonzero(batch) for batch in batches])
        axes.bar(range(len(cells)), tokens, width=0.85, color=BLUE, label="tokens")
        axes.bar(range(len(cells)), cells - tokens, 0.85, tokens, color=ORANGE, label="padding")
        share = 1 - tokens.sum() / cells.sum()
        axes.set_title(f"{name}: {share:.0%} padding", loc="left")
        axes.set(yticks=[0, 4000, 8000], yticklabels=["0", "4,000", "8,000"])
    panels[0].legend(loc="lower right", bbox_to_anchor=(1, 0.97), ncols=2, borderpad=0)
    panels[1].set_xlabel("batch of the epoch")
    figure.supylabel("cells of the padded batch", color=GREY, fontsize=11)
    save(figure, "gallery-buckets.svg")


def draw_hard(directory: Path) -> None:
    """What each class gains by mining, and what it loses."""
    scope = run("hard_examples", directory)
    cache = directory / "caches/digits"
    test, scored = (scope["open_part"](cache, test=test) for test in (True, False))
    models = {
        name: scope["train"](
            cache, directory / f"{name}.joblib", until=scope["EPOCHS"], mining=name == "mined"
        )
        for name in ("plain", "mined")  # trained already: they are loaded
    }
    plain, mined = (100 * scope["accuracies"](model, test) for model in models.values())
    hard = scope["hardest"](scope["losses_of"](models["plain"], scored))
    figure, axes = plt.subplots(figsize=(WIDTH, 3.2), layout="constrained")
    # Side by side, so that equal ones do not hide each other.
    before, after = np.arange(10) - 0.14, np.arange(10) + 0.14
    axes.plot([before, after], [plain, mined], color=GREY, linewidth=2, zorder=1)
    axes.scatter(before, plain, s=70, color=BLUE, label="equal weights", zorder=2)
    axes.scatter(after, mined, s=70, color=ORANGE, label="mined", zorder=3)
    axes.set(xticks=range(10), xlabel="digit", ylabel="recognised (%)", ylim=(None, 102))
    for label in hard:
        axes.get_xticklabels()[label].set(color=ORANGE, fontweight="bold")
    title = f"hardest by training loss: {', '.join(map(str, hard))}"
    axes.set_title(title, loc="left")
    axes.legend(loc="lower right", ncols=2, bbox_to_anchor=(1, 1), borderpad=0, handletextpad=0.1)
    save(figure, "gallery-hard.svg")


def main() -> None:
    """Draw all of them."""
    mpl.use("agg")
    plt.rcParams.update(STYLE)
    for draw in (draw_balancing, draw_buckets, draw_hard):
        with tempfile.TemporaryDirectory() as directory:
            draw(Path(directory))


if __name__ == "__main__":
    main()
