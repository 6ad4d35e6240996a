"""What goes between processes: any message in any pieces, any sample, any exception."""

import pickle
import socket
import threading

import numpy as np
import pytest
import slow_sources as slow
from hypothesis import given, settings
from hypothesis import strategies as st

from dataset_rt.processes import failures
from dataset_rt.processes.messages import Inbox, Message, Outbox
from dataset_rt.processes.transform_worker import _to_parts

PARTS = st.lists(
    st.binary(max_size=300)
    | st.integers(0, 300_000).map(lambda size: bytes(range(256)) * (size // 256))
)
MESSAGES = st.lists(
    st.tuples(st.integers(0, 255), st.integers(0, 2**64 - 1), PARTS), min_size=1, max_size=5
)


def as_bytes(message):
    return message.kind, message.number, [bytes(part) for part in message.parts]


@settings(deadline=None)
@given(messages=MESSAGES, sizes=st.lists(st.integers(1, 100_000), min_size=1))
def test_messages_arrive_whole_and_in_order_in_any_pieces(messages, sizes):
    data = b"".join(b"".join(Message(*message).to_buffers()) for message in messages)
    received = []

    class Pieces:
        """A socket that gives no more at a time than it is told, and sometimes nothing."""

        at = 0
        turn = 0

        def recv_into(self, view):
            self.turn += 1
            if self.turn % 3 == 0:
                raise BlockingIOError
            size = min(sizes[self.turn % len(sizes)], len(view), len(data) - self.at)
            view[:size] = data[self.at : self.at + size]
            self.at += size
            return size

    inbox = Inbox(Pieces())
    while len(received) < len(messages):
        message = inbox.read()
        if message is not None:
            received.append(as_bytes(message))
    assert received == messages
    with pytest.raises(EOFError):
        list(iter(inbox.read, 0))


@settings(deadline=None, max_examples=30)
@given(messages=MESSAGES)
def test_a_full_socket_is_not_waited_for(messages):
    here, there = socket.socketpair()
    with here, there:
        here.setblocking(False)
        there.setblocking(False)
        outbox, inbox = Outbox(here), Inbox(there)
        for message in messages:
            outbox.put(Message(*message))
        received = []
        while len(received) < len(messages):
            outbox.send()
            message = inbox.read()
            if message is not None:
                received.append(as_bytes(message))
        assert received == messages
        assert not outbox
        there.close()
        outbox.put(Message(1, 2, [bytes(1_000_000)]))
        outbox.send()
        assert not outbox


@given(number=st.integers(0, 2**40))
def test_a_sample_arrives_with_the_bytes_and_values_that_it_had(number):
    sample = slow.any_sample(number)
    payload, metadata = _to_parts(sample)
    assert payload == memoryview(sample.data).tobytes()
    received = pickle.loads(metadata)
    assert list(received) == list(sample.metadata)
    for mine, theirs in zip(sample.metadata.values(), received.values(), strict=True):
        assert type(mine) is type(theirs)
        assert repr(mine) == repr(theirs)
        assert getattr(mine, "tzinfo", None) == getattr(theirs, "tzinfo", None)


@pytest.mark.parametrize("kind", slow.ODD)
def test_what_may_not_arrive_as_it_is_is_not_sent(kind):
    sent = {"a missing key", "another type", "a lone surrogate"}
    why, metadata = _to_parts(slow.odd(kind))
    assert (metadata == b"") == (kind not in sent), why


@pytest.mark.parametrize("kind", slow.OTHER)
def test_no_subclass_is_sent(kind):
    why, metadata = _to_parts(slow.OTHER[kind]())
    assert metadata == b"", why


def test_a_copy_is_sent_of_what_may_change():
    buffer, metadata = bytearray(b"before"), {"a": 1}
    payload, pickled = _to_parts((buffer, metadata))
    buffer[:] = b"behind"
    metadata["a"] = 2
    assert (payload, pickle.loads(pickled)) == (b"before", {"a": 1})
    whole = b"bytes are not copied"
    assert _to_parts((whole, {}))[0] is whole
    view = memoryview(np.arange(4, dtype=np.uint16))
    assert _to_parts((view, {}))[0] == view.tobytes()


class MuteError(Exception):
    def __str__(self):
        raise RuntimeError("no text")


@pytest.mark.parametrize(
    ("error", "name", "text", "is_same"),
    [
        (KeyError("gone"), "KeyError", "'gone'", True),
        (OSError(28, "No space left", "/x"), "OSError", "[Errno 28] No space left: '/x'", True),
        (slow.CustomError("one", "two"), "CustomError", "one and two", False),
        (ValueError("a", threading.Lock()), "ValueError", "('a', <", False),
        (MuteError(), "MuteError", "", True),
        (slow.ExitError("text"), "ExitError", "text", False),
        (slow.ExitTextError(), "ExitTextError", "", True),
        (SystemExit(3), "SystemExit", "3", True),
        (ValueError("\ud800"), "ValueError", "\ud800", True),
    ],
    ids=lambda value: value if isinstance(value, str) and value.isidentifier() else "",
)
def test_exceptions_keep_name_text_and_traceback(error, name, text, is_same):
    try:
        raise error
    except BaseException as raised:
        encoded = failures.encode(raised)
    decoded = failures.decode(encoded)
    assert type(decoded).__name__ == name
    assert (type(decoded) is type(error)) == is_same
    if text:
        assert str(decoded).startswith(text)
    assert isinstance(decoded, Exception) == isinstance(error, Exception)
    assert "raise error" in decoded.__notes__[0]
