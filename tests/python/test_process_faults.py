"""What goes wrong with several processes: what a pickle changes, deaths, no descriptors left."""

import functools
from pathlib import Path

import pytest
import slow_sources as slow
from conftest import directory_digest, run_script
from slow_sources import At, Numbers

import dataset_rt as drt
from dataset_rt.processes.spawned import Spawned


def write(runtime, directory, sources, num_processes=2, **options):
    config = drt.WriterConfig(num_processes=num_processes, show_progress=False, **options)
    return runtime.write_cache(sources, directory, writer_config=config)


def test_what_a_pickle_would_change_is_stored_as_by_one_process(runtime, tmp_path):
    sources = [slow.Others(kind) for kind in slow.OTHER]
    serial = write(runtime, tmp_path / "1", sources, 1)
    parallel = write(runtime, tmp_path / "2", sources, 2)
    for one, other in zip(serial, parallel, strict=True):
        assert type(one) is type(other), (one, other)
        if isinstance(one, drt.CacheWriteError):
            assert one.message == other.message
    refused = [one.source_name for one in serial if isinstance(one, drt.CacheWriteError)]
    assert refused == ["pointers", "numbers of C"]
    assert directory_digest(tmp_path / "1") == directory_digest(tmp_path / "2")


def test_an_exception_that_ends_programs_ends_only_its_source(runtime, tmp_path):
    kinds = (slow.ExitError, slow.ExitTextError, slow.ExitElsewhereError)
    sources = [Numbers(kind.__name__, 9, At(3, slow.fail_as, kind)) for kind in kinds]
    pickled, shown, moved = write(runtime, tmp_path, sources)
    assert 'source "ExitError" raised ExitError:  (after 3 samples)' in pickled.message
    assert 'source "ExitTextError" raised ExitTextError' in shown.message
    assert "raised ExitElsewhereError: of one process (after 3 samples)" in moved.message


@pytest.mark.parametrize("number", [-1, 3])
def test_a_worker_that_dies_before_it_said_anything_was_ready(number):
    process = Spawned(functools.partial(slow.leave_with, number), "worker")
    process.socket.setblocking(True)
    with pytest.raises(EOFError):
        process.inbox.read()
    text = str(process.how_it_ended())
    process.forget(0)
    assert "exit code 0" in text
    assert ("at work on sample 3" in text) == (number == 3)
    assert "__main__" not in text


def test_the_import_of_a_transform_is_no_sample(runtime, tmp_path):
    (result,) = write(runtime, tmp_path, slow.SlowToLoad("a", 5), process_timeout=1.5)
    assert isinstance(result, drt.CacheWriteSuccess), result


def test_too_few_descriptors_for_a_process_are_said(tmp_path):
    script = """
    import os, resource, sys
    sys.path.insert(0, sys.argv[2])
    import dataset_rt as drt
    import dataset_rt.processes.transforming
    from slow_sources import Numbers

    if __name__ == "__main__":
        runtime = drt.DatasetRuntime(1)
        resource.setrlimit(resource.RLIMIT_NOFILE, (200, 200))
        config = drt.WriterConfig(num_processes=2, show_progress=False)
        taken = []
        try:
            while True:
                taken.append(os.open("/dev/null", os.O_RDONLY))
        except OSError:
            pass
        # Enough to begin a write, and not for two ends of a connection besides.
        for left in range(1, 9):
            os.close(taken.pop())
            (result,) = runtime.write_cache(Numbers("a", 5), sys.argv[1], writer_config=config)
            if "cannot start a worker" in result.message:
                print(type(result.exception).__name__)
            elif "OSError" in result.message:
                print(result.message)
    """
    printed = run_script(script, tmp_path, Path(__file__).parent).splitlines()
    assert set(printed) == {"ExhaustedError"}
