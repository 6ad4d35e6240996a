"""Writing with several processes; imported only where they are asked for.

calling thread                                    spawned processes
transforming.py   one source, in order    <---->  transform_worker.py   its samples
side_by_side.py   whole sources           <---->  source_worker.py      one writer each
spawned.py        start, end, death               parent.py             the way back
                   messages.py, failures.py: what goes between
"""
