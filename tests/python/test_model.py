"""Any sequence of calls on a dataset agrees with a small model of stream, window and table."""

import polars as pl
from conftest import numbered, written
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

import dataset_rt as drt

ROWS = 30


class DatasetMachine(RuleBasedStateMachine):
    """A dataset in table order beside a model of it: position, epoch, length and rows."""

    caches = None  # set by the test: one cache for every run

    @initialize(prefetch=st.sampled_from([1, 2, 5, 256]), io=st.sampled_from(["mmap", "pread"]))
    def open(self, prefetch, io):
        config = drt.ReaderConfig(seed=0, shuffle=False, prefetch_size=prefetch, io=io)
        self.runtime = drt.DatasetRuntime(num_workers=2)
        self.dataset = self.runtime.cached_dataset(self.caches, reader_config=config)
        self.whole = self.dataset.get_metadata()
        self.rows = list(range(ROWS))
        self.position, self.epoch, self.length = 0, 0, ROWS
        self.length_was_set = False
        self.running = []

    def expected(self, start, count):
        return [self.rows[(start + k) % len(self.rows)] for k in range(count)]

    @rule()
    def start_an_iterator(self):
        window = self.expected(self.position, self.length)
        self.running.append((iter(self.dataset), window))
        self.position += self.length
        self.epoch += 1

    @precondition(lambda self: self.running)
    @rule(data=st.data(), count=st.integers(1, 20))
    def take_some(self, data, count):
        iterator, window = data.draw(st.sampled_from(self.running))
        for _ in range(count):
            sample = next(iterator, None)
            if not window:
                assert sample is None
                return
            assert sample.sample_id == window.pop(0)
            assert sample.metadata["number"] == sample.sample_id

    @precondition(lambda self: self.running)
    @rule(data=st.data())
    def abandon_an_iterator(self, data):
        self.running.remove(data.draw(st.sampled_from(self.running)))

    @rule(length=st.integers(1, 2 * ROWS))
    def set_the_length(self, length):
        self.dataset.set_epoch_len(length)
        self.length = length
        self.length_was_set = True

    @rule(epoch=st.integers(0, 1000))
    def set_the_epoch(self, epoch):
        self.dataset.set_epoch(epoch)
        self.epoch = epoch
        self.position = epoch * self.length

    @rule(rows=st.lists(st.integers(0, ROWS - 1), min_size=1, max_size=2 * ROWS))
    def update_the_table(self, rows):
        self.dataset.update_metadata(self.whole[rows].with_columns(extra=pl.lit(1)))
        self.rows, self.length = rows, len(rows)
        start = self.epoch * self.length
        self.position = max(self.position, start) if self.length_was_set else start

    @rule(column=st.sampled_from(["weight", "cache_id", "label"]))
    def pass_a_bad_table(self, column):
        try:
            self.dataset.update_metadata(self.whole.drop(column))
        except drt.InvalidInputError:
            return
        raise AssertionError("a table without a needed column was accepted")

    @rule(data=st.data())
    def look_at_positions(self, data):
        positions = data.draw(st.lists(st.integers(0, self.length - 1), max_size=5))
        window = self.expected(self.position, self.length)
        found = [sample.sample_id for sample in self.dataset.__getitems__(positions)]
        assert found == [window[i] for i in positions]

    @invariant()
    def length_epoch_and_table_agree(self):
        if hasattr(self, "dataset"):
            assert len(self.dataset) == self.length
            assert self.dataset.epoch == self.epoch
            assert self.dataset.get_metadata()["sample_id"].to_list() == self.rows

    def teardown(self):
        if hasattr(self, "runtime"):
            self.runtime.close()


def test_any_sequence_of_calls_agrees_with_the_model(runtime, tmp_path):
    class Machine(DatasetMachine):
        caches = written(runtime, tmp_path, numbered(ROWS))

    case = Machine.TestCase
    case.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
    case().runTest()
