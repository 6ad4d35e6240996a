"""One HTML file that tells what a cache is and what training on it sees.

    write_report -> collect -> facts -> page -> file

collect.py     all facts of a cache, from columns, draws, samples and `dataset_rt.inspection`
columns.py, histograms.py, draws.py, telling.py, samples.py, images.py
               one part of the facts each, in bounded memory
facts.py       plain data, what both halves know
page.py        the page, from sections, status and charts over `dataset_rt.html`
writing.py     the file: whole or not at all, never within the cache
"""

from dataset_rt.report.writing import WrittenReport, write_report

__all__ = ["WrittenReport", "write_report"]
