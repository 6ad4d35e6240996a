"""Forks inside a write end cleanly, under a hard time limit."""

from conftest import run_script

SOURCE = """
import os, sys, threading
import dataset_rt as drt

class Numbers:
    name = "numbers"
    def __iter__(self):
        for i in range(20000):
            yield drt.CacheInput(b"x" * 500, {"v": i})

runtime = drt.DatasetRuntime(num_workers=2)
"""


def test_a_child_forked_inside_a_source_cannot_go_on_writing(tmp_path):
    code = f"""{SOURCE}
class Forking(Numbers):
    def __iter__(self):
        for i, sample in enumerate(super().__iter__()):
            if i == 10000:
                self.child = os.fork()
            yield sample

source = Forking()
config = drt.WriterConfig(max_shard_bytes=200_000)
(result,) = runtime.write_cache(source, {str(tmp_path)!r}, writer_config=config)
if source.child == 0:
    os._exit(0 if "fork" in getattr(result, "message", "") else 1)
_, status = os.waitpid(source.child, 0)
print(type(result).__name__, os.waitstatus_to_exitcode(status))
print(drt.verify_cache(result.path, level="deep").ok)
"""
    assert run_script(code).split() == ["CacheWriteSuccess", "0", "True"]
