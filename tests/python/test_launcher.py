"""`partition()` asks the launcher which rank this is; PyTorch need not be there for that."""

import importlib.util
import os
import signal
import subprocess
import sys

import pytest
from conftest import identities, numbered, opened, run_script, written


@pytest.fixture
def dataset(runtime, tmp_path, monkeypatch):
    for name in ("RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    path = written(runtime, tmp_path / "caches", numbered(7))
    return opened(runtime, path, seed=5, shuffle=True)


def test_the_variables_of_a_launcher_name_the_rank(dataset, monkeypatch):
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "3")
    assert identities(dataset.partition()) == identities(dataset.partition(1, 3))
    share = dataset.partition(global_batch_size=5, drop_last=True)
    expected = dataset.partition(1, 3, global_batch_size=5, drop_last=True)
    assert identities(share) == identities(expected)
    # What is said goes before what is found.
    assert identities(dataset.partition(0, 2)) == identities(dataset)[::2]


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        ({}, "RANK is not set, WORLD_SIZE is not set"),
        ({"RANK": "0"}, "RANK is 0, WORLD_SIZE is not set"),
        ({"RANK": "", "WORLD_SIZE": "2"}, "RANK is not set, WORLD_SIZE is 2"),
        ({"RANK": "2", "WORLD_SIZE": "2"}, "RANK=2, WORLD_SIZE=2"),
        ({"RANK": "-1", "WORLD_SIZE": "2"}, "RANK is '-1'"),
        ({"RANK": "0", "WORLD_SIZE": "0"}, "WORLD_SIZE is '0'"),
        ({"RANK": "first", "WORLD_SIZE": "2"}, "RANK is 'first'"),
        ({"RANK": "0", "WORLD_SIZE": "1_0"}, "WORLD_SIZE is '1_0'"),
    ],
)
def test_a_launcher_that_says_nothing_sensible_is_an_error(
    dataset, monkeypatch, variables, message
):
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ValueError, match=message):
        dataset.partition()


@pytest.mark.parametrize("arguments", [(1,), (None, 2)])
def test_half_a_rank_is_an_error(dataset, arguments):
    with pytest.raises(ValueError, match="pass both, or neither"):
        dataset.partition(*arguments)


def test_pytorch_is_imported_by_those_who_ask_for_it_alone(dataset):
    script = """
        import sys
        import dataset_rt as drt
        dataset = drt.open_dataset(sys.argv[1])
        dataset.partition(0, 2)
        assert "torch" not in sys.modules
        sys.modules["torch"] = None
        for ask in (dataset.to_torch_iterable_dataset, dataset.to_torch_dataloader):
            try:
                ask()
            except ImportError as error:
                assert "pip install torch" in str(error), error
            else:
                raise AssertionError(ask)
        print("asked")
    """
    assert run_script(script, dataset.cache_paths[0]) == "asked\n"


# A rank of its own process each; told by torch.distributed alone.
TRAINING = """
import os, sys, warnings
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
import dataset_rt as drt

def batch_of(samples):
    numbers = [[float(sample.metadata["number"])] for sample in samples]
    return torch.tensor(numbers), [sample.sample_id for sample in samples]

def main(path, rank, world, port, workers):
    dist.init_process_group(
        "gloo", init_method=f"tcp://127.0.0.1:{port}", rank=int(rank), world_size=int(world)
    )
    dataset = drt.open_dataset(path, seed=5, shuffle=True)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        dataset.to_torch_dataloader()
    assert any("every rank reads everything" in str(one.message) for one in caught), caught
    loader = dataset.partition().to_torch_dataloader(
        batch_size=2, collate_fn=batch_of, num_workers=int(workers),
        **({"timeout": 60} if int(workers) else {}),
    )
    torch.manual_seed(0)
    model = DistributedDataParallel(torch.nn.Linear(1, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    steps = 0
    for epoch in range(2):
        read = []
        for batch in loader:
            # A rank without a sample takes part in the step all the same.
            numbers, samples = batch if batch else (torch.zeros(0, 1), [])
            optimizer.zero_grad()
            model(numbers).square().sum().backward()
            optimizer.step()
            read.append(samples)
            steps += 1
        print(epoch, read)
    # Weights are equal everywhere, so every step was taken together.
    weights = [torch.zeros(1, 1) for _ in range(int(world))]
    dist.all_gather(weights, model.module.weight.detach())
    assert all(torch.equal(weight, weights[0]) for weight in weights), weights
    states = [None] * int(world)
    dist.all_gather_object(states, (steps, loader.state_dict()))
    assert states == states[:1] * int(world), states
    dist.destroy_process_group()
    # All is said: threads of gloo, torn down by the interpreter's end, abort now and then.
    sys.stdout.flush()
    os._exit(0)

if __name__ == "__main__":
    main(*sys.argv[1:])
"""


@pytest.mark.skipif(
    importlib.util.find_spec("torch") is None, reason="PyTorch is not importable: see make torch"
)
@pytest.mark.parametrize(("world", "count", "workers"), [(2, 7, 2), (3, 2, 0)])
def test_ranks_of_real_processes_train_together(runtime, tmp_path, world, count, workers):
    import socket

    path = written(runtime, tmp_path / "few", numbered(count))
    script = tmp_path / "training.py"
    script.write_text(TRAINING)
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    arguments = [sys.executable, script, path]
    ranks = [
        subprocess.Popen(
            [*arguments, str(rank), str(world), str(port), str(workers)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        for rank in range(world)
    ]
    printed = []
    try:
        for rank in ranks:
            output, errors = rank.communicate(timeout=120)
            assert rank.returncode == 0, errors
            printed.append(output.splitlines())
    finally:
        for rank in ranks:
            if rank.poll() is None:
                os.killpg(rank.pid, signal.SIGKILL)  # its workers too
                rank.wait()
    dataset = opened(runtime, path, seed=5, shuffle=True)
    for epoch, lines in enumerate(zip(*printed, strict=True)):
        batches = [eval(line.removeprefix(f"{epoch} ")) for line in lines]
        merged = []
        for step in zip(*batches, strict=True):
            for i in range(2):
                merged += [samples[i] for samples in step if i < len(samples)]
        assert merged == [sample.sample_id for sample in dataset]
