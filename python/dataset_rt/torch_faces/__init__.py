"""What PyTorch's loops take; each module that needs PyTorch is imported when it is asked for.

    CachedDataset ─┬─ itself ─────────────────► DataLoader(dataset, batch_size=b)       map-style
                   ├─ sample_stream.py ───────► DataLoader(stream, batch_size=None)     iterable
                   └─ dataset_loader.py ──────► for batch in loader                     a DataLoader
                        batch_task.py       what a worker is told of a batch
                        loader_dataset.py   reads it by batch_reader.py, in the trainer or a worker
                        batch_maker.py      transform, collate_fn, the safe way back
                        lost_batch.py       what comes back in place of a batch
                        loader_iterator.py  counts what the trainer took
                        loader_arguments.py, worker_counts.py    how many processes and threads
                        pytorch.py          PyTorch, or an ImportError that says what to do

Epochs and positions are counted in the trainer's process alone: workers are told positions.
"""
