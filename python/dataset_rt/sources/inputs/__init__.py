"""What importers share; users never import from here.

files.py        which files, in which order, and whether they are still the same
importer.py     name, fingerprint, schema and transform, alike for every importer
columnar.py     batches of rows to samples: metadata columns and a payload
column_rules.py which columns are payload, which metadata, and what is refused
csv_digits.py   whether texts of a CSV that were taken for numbers are these numbers
tar_members.py  files in tar archives
"""
