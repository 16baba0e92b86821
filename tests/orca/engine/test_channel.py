"""The channel lets nobody in who does not know the run's token."""

from __future__ import annotations

import os
import pickle
import socket
import struct
import threading
import time

import psutil
import pytest

from zoo.orca.engine import channel as channel_module
from zoo.orca.engine.base import Seat
from zoo.orca.engine.channel import Beat, Channel, Hello, Line, Lost

pytestmark = pytest.mark.alone  # it waits for what is to come, or not to come, by the clock


@pytest.fixture
def channel():
    with Channel("127.0.0.1", 2) as opened:
        yield opened


def poll_until(channel, count=1, seconds=5.0):
    deadline, events = time.monotonic() + seconds, []
    while len(events) < count and time.monotonic() < deadline:
        events += channel.poll(0.05)
    return events


class Joining(threading.Thread):
    """A worker that joins while the driver polls."""

    def __init__(self, seat):
        super().__init__()
        self.seat, self.line, self.error = seat, None, None
        self.start()

    def run(self):
        try:
            self.line = Line(self.seat, timeout=5)
            self.line.send(Hello("here", 1))
        except Exception as error:
            self.error = error


def seat(channel, rank=0, token=None):
    return Seat(rank, 2, channel.address, token or channel.token)


def test_it_listens_on_the_address_it_was_given_alone(channel):
    listening = [c.laddr for c in psutil.Process().net_connections("inet") if c.status == psutil.CONN_LISTEN]
    assert ("127.0.0.1", channel.address[1]) in [(address.ip, address.port) for address in listening]


def test_who_knows_the_token_is_heard(channel):
    joining = Joining(seat(channel, rank=1))
    assert poll_until(channel) == [(1, Hello("here", 1))]
    joining.join()
    joining.line.close()
    assert poll_until(channel) == [(1, Lost())]


def test_a_wrong_token_is_dropped_unheard(channel):
    joining = Joining(seat(channel, token=b"x" * 32))
    assert poll_until(channel, seconds=0.5) == []
    joining.join()
    assert isinstance(joining.error, EOFError | ConnectionError)


def test_a_pickle_from_a_stranger_is_never_loaded(channel, tmp_path):
    class Evil:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "evil"),)

    body = pickle.dumps(Evil())
    with socket.create_connection(channel.address) as stranger:
        stranger.sendall(struct.pack("!Q", len(body)) + body + b"\0" * 200)
        assert poll_until(channel, seconds=0.5) == []
    assert not (tmp_path / "evil").exists()


def test_a_silent_stranger_is_dropped_and_keeps_nobody_out(channel, monkeypatch):
    monkeypatch.setattr(channel_module, "_HANDSHAKE_SECONDS", 0.2)
    with socket.create_connection(channel.address) as stranger:
        joining = Joining(seat(channel))
        assert poll_until(channel) == [(0, Hello("here", 1))]
        joining.join()
        poll_until(channel, seconds=0.4)
        stranger.settimeout(2)
        assert len(stranger.recv(100)) == 32  # the nonce
        assert stranger.recv(100) == b""
        joining.line.close()


def test_a_rank_joins_once_and_only_ranks_of_the_gang(channel):
    first = Joining(seat(channel))
    assert poll_until(channel) == [(0, Hello("here", 1))]
    again, beyond = Joining(seat(channel)), Joining(seat(channel, rank=7))
    assert poll_until(channel, seconds=0.5) == []
    for joining in (again, beyond):
        joining.join()
        assert joining.error is not None
    first.join()
    first.line.close()


def test_a_false_driver_is_refused():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        joining = Joining(Seat(0, 1, listener.getsockname(), b"t" * 32))
        connection, _ = listener.accept()
        with connection:
            connection.sendall(b"n" * 32)
            connection.recv(1000)
            connection.sendall(b"p" * 32)
            joining.join()
    assert isinstance(joining.error, ConnectionRefusedError)
    assert "does not know this run's token" in str(joining.error)


def test_large_messages_go_both_ways(channel):
    blob = os.urandom(3_000_000)
    joining = Joining(seat(channel))
    poll_until(channel)
    joining.join()
    sender = threading.Thread(target=joining.line.send, args=(blob,))
    sender.start()
    assert poll_until(channel) == [(0, blob)]
    sender.join()
    channel.send(0, blob)
    received = []
    reader = threading.Thread(target=lambda: received.append(joining.line.receive()))
    reader.start()
    while reader.is_alive():
        channel.poll(0.05)
    assert received == [blob]
    channel.send(1, Beat())  # a rank that is not there is passed over
    joining.line.close()
