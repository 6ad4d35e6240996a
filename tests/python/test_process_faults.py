"""What goes wrong with several processes: what a pickle changes, deaths, no descriptors left."""


import slow_sources as slow
from slow_sources import At, Numbers

import dataset_rt as drt


def write(runtime, directory, sources, num_processes=2):
    config = drt.WriterConfig(num_processes=num_processes, show_progress=False)
    return runtime.write_cache(sources, directory, writer_config=config)


def test_an_exception_that_ends_programs_ends_only_its_source(runtime, tmp_path):
    kinds = (slow.ExitError, slow.ExitTextError, slow.ExitElsewhereError)
    sources = [Numbers(kind.__name__, 9, At(3, slow.fail_as, kind)) for kind in kinds]
    pickled, shown, moved = write(runtime, tmp_path, sources)
    assert 'source "ExitError" raised ExitError:  (after 3 samples)' in pickled.message
    assert 'source "ExitTextError" raised ExitTextError' in shown.message
    assert "raised ExitElsewhereError: of one process (after 3 samples)" in moved.message
