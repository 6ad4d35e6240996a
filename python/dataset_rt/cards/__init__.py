"""What a notebook shows of our objects: one card each, drawn when a cell ends with the object.

    guarded.py       a card never raises: what went wrong is said in it
    names.py         what caches are called
    columns.py       columns and their types
    dataset.py       CachedDataset, and the loader made of it
    weights.py       weights of the active table in a few numbers
    cache.py         Cache
    verification.py  VerificationReport
    repairing.py     RepairReport and SalvageReport
    reports.py       WrittenReport
    writing.py       what became of sources
    progress.py      the bar while they are written

A card reads manifests, sizes of files, columns of weights and, for a table that is no longer that
of its caches, their indices; never a payload, and nothing is verified. What it costs is bounded,
and said where it is.
"""
