"""Door to writing with several processes; imported only where they are asked for.

calling thread                                    spawned processes
transforming.py   one source, in order    <---->  transform_worker.py   its samples
side_by_side.py   whole sources           <---->  source_worker.py      one writer each
spawned.py        start, end, death               parent.py             the way back
                   messages.py, failures.py: what goes between
"""

from dataset_rt.processes.side_by_side import SideBySide, Task
from dataset_rt.processes.source_worker import Job
from dataset_rt.processes.spawned import stop_script_without_guard, working_directory
from dataset_rt.processes.transforming import PooledSource, TransformPool

__all__ = [
    "Job",
    "PooledSource",
    "SideBySide",
    "Task",
    "TransformPool",
    "stop_script_without_guard",
    "working_directory",
]
