"""Door to what comes out of a cache as something else.

parquet.py     to_parquet: one Parquet file
webdataset.py  to_webdataset: tar shards
materialize.py materialize: a new cache of a dataset's rows
rows.py        which rows and columns are exported
publishing.py  files that are there whole or not at all
"""

from dataset_rt.exporters.materialize import materialize
from dataset_rt.exporters.parquet import to_parquet
from dataset_rt.exporters.webdataset import to_webdataset

__all__ = ["materialize", "to_parquet", "to_webdataset"]
