"""Resume after a kill: SIGKILL in the middle of an epoch, against a run that was never killed.

What it shows: a training process saves a checkpoint every few steps, and is killed without warning
between two of them. A new process goes on from the checkpoint. What the two delivered together is
compared with a run that nobody disturbed: sample by sample, by receipt, and by the trained model.

What to take away: a checkpoint is the model and `dataset.state_dict()`, 300 bytes of JSON. Write it
aside and rename it, and a kill costs the steps since the last one, nothing else. A receipt of the
order, `order_digest`, shows in the log that two runs read the same.

The samples are the handwritten digits that come with scikit-learn.

Run it with `python examples/resume_after_kill.py [directory]`.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np

import dataset_rt as drt

BATCH_SIZE = 32
EPOCHS = 3  # of 57 steps
CHECKPOINT_STEPS = 10
KILLED_STEP = 87  # in the second epoch, between two checkpoints
SEED = 5


class Digits:
    """A source: 8 x 8 pixels of 0 to 16 as bytes, with their label."""

    name = "digits"
    fingerprint = "digits-uint8-1"

    def __iter__(self) -> Iterator[drt.CacheInput]:
        """Yield the digits in scikit-learn's order."""
        # Here, because a process that finds the cache does not need it.
        from sklearn.datasets import load_digits  # noqa: PLC0415

        digits = load_digits()
        for image, label in zip(digits.images.astype(np.uint8), digits.target, strict=True):
            yield drt.CacheInput(image, {"label": int(label)})


def train(cache: Path, checkpoint: Path, killed_step: int | None = None) -> None:
    """Train to the end, from the checkpoint if there is one, or until something kills us."""
    dataset = drt.open_dataset(cache, seed=SEED, shuffle=True)
    weights, step, seen = np.zeros((64, 10)), 0, []
    if checkpoint.exists():
        saved = json.loads(checkpoint.read_text())
        dataset.load_state_dict(saved["dataset"])
        weights, step, seen = np.array(saved["weights"]), saved["step"], saved["seen"]

    def save() -> None:
        """Replace the checkpoint in one step: whoever reads finds a whole one, old or new."""
        state = dataset.state_dict()
        content = {
            "dataset": state,
            "weights": weights.tolist(),
            "step": step,
            "receipt": dataset.order_digest(0, int(state["position"])),
            "seen": seen,  # for the proof: a real run does without
        }
        aside = checkpoint.with_suffix(".new")
        aside.write_text(json.dumps(content))
        aside.replace(checkpoint)

    for _ in range(dataset.epoch, EPOCHS):  # the rest of this epoch, then the others
        for batch in dataset.iter_batches(BATCH_SIZE, columns=["sample_id", "label", "payload"]):
            pixels = drt.payload_arrays(batch, np.uint8, 64) / 16
            scores = np.exp(pixels @ weights)  # a softmax regression
            error = scores / scores.sum(axis=1, keepdims=True)
            error[np.arange(len(error)), batch["label"].to_numpy()] -= 1
            weights -= 0.1 * pixels.T @ error / len(error)
            seen += batch["sample_id"].to_pylist()
            step += 1
            if step % CHECKPOINT_STEPS == 0:
                save()
            if step == killed_step:
                os.kill(os.getpid(), signal.SIGKILL)  # no `finally`, no exit handler
    save()


def start(cache: Path, checkpoint: Path, killed_step: int | None = None) -> None:
    """Train in a process of its own, which may be killed at a step."""
    command = [sys.executable, __file__, "--train", str(cache), str(checkpoint)]
    if killed_step is not None:
        command.append(str(killed_step))
    ended = subprocess.run(command, check=False, timeout=60)  # noqa: S603
    if ended.returncode != (0 if killed_step is None else -signal.SIGKILL):
        raise SystemExit(f"the training process ended with {ended.returncode}")


def main(output: Path) -> None:
    """Train with a kill in the middle, and undisturbed; compare."""
    shutil.rmtree(output / "runs", ignore_errors=True)
    (output / "runs").mkdir(parents=True)
    with drt.DatasetRuntime() as runtime:
        config = drt.ReaderConfig(seed=SEED)
        match runtime.from_cache_sources(Digits(), output / "caches", reader_config=config):
            case drt.CacheSourcesDatasetError(_, message):
                raise SystemExit(message)
            case drt.CacheSourcesDatasetSuccess(dataset, _):
                (cache,) = dataset.cache_paths

    checkpoint = output / "runs/killed.json"
    start(cache, checkpoint, KILLED_STEP)
    kept = json.loads(checkpoint.read_text())
    print(f"killed after step {KILLED_STEP}; checkpoint: step {kept['step']},", end=" ")
    print(f"{len(kept['seen'])} samples, {len(json.dumps(kept['dataset']))} bytes of state")
    start(cache, checkpoint)
    resumed = json.loads(checkpoint.read_text())
    print(f"a new process went on to step {resumed['step']}, {len(resumed['seen'])} samples")

    train(cache, output / "runs/undisturbed.json")
    undisturbed = json.loads((output / "runs/undisturbed.json").read_text())
    for what in ("seen", "receipt", "weights"):
        same = "equal" if resumed[what] == undisturbed[what] else "DIFFERENT"
        print(f"compared with a run that nobody disturbed, {what}: {same}")
    print(f"receipt {resumed['receipt'][:16]}")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--train"]:
        train(Path(sys.argv[2]), Path(sys.argv[3]), *map(int, sys.argv[4:]))
    else:
        main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path("demo_output/resume_after_kill"))
