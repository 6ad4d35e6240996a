"""What commands and reports ask of a cache, in bounded memory; draws nothing.

caches.py        finding and opening caches, damaged ones too
rows.py          rows of columns, read no further than asked for
positions.py     samples that stand for all
values.py        values as texts and as Python has them
survivors.py     samples of damaged caches: those that can be read, and which cannot
column_stats.py  statistics of columns, batch by batch
lengths.py       payload lengths, from the index
active_sizes.py  payload sizes of the rows of an active table
payload_kind.py, kinds.py
                 what payloads look like
draws.py         how often a stream would draw which samples
weights.py       weights whose sums are finite; where weights do nothing
words.py         messages of the library in terms of options
checks.py        a verification in words
integrity.py     what a verification found, which samples that costs, and what to do about it
"""
