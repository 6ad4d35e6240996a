"""The benchmark suite: `python -m benchmarks`, or `make bench`; docs/benchmarks.md explains it."""
