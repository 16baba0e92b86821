"""Agreement by Horovod itself: its rendezvous on rank 0, its allreduce for every sum."""

from __future__ import annotations

import hmac
import secrets
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch

from zoo.orca.learn.sync.base import Group, Sync, as_array
from zoo.orca.learn.sync.network import environment, interface_of, others_first
from zoo.orca.optional import require

if TYPE_CHECKING:
    from zoo.orca.engine.worker import Worker

WHAT_FOR = "the backend 'horovod'"
# Where the ranks of the library for TensorFlow find each other, so that they do not meet those of the one for torch.
_OTHER = "tensorflow"


class HorovodGroup(Group):
    """All ranks of Horovod. Everything but a broadcast is one allreduce, which is what it is good at."""

    def __init__(self, rank: int, world_size: int, hvd: Any):
        super().__init__(rank, world_size)
        self._hvd = hvd

    def all_reduce(self, flat: Any) -> None:
        if len(flat):
            with others_first():
                self._hvd.allreduce_(torch.from_numpy(as_array(flat)), name="orca.sum", op=self._hvd.Sum)

    def reduce_scatter(self, flat: Any, tail: int = 0) -> None:
        self.all_reduce(flat)

    def all_gather(self, flat: Any) -> list[Any]:
        parts = [as_array(flat)[self.slice(len(flat), rank)] for rank in range(self.world_size)]
        with others_first():
            handles = [self._send(part, rank) for rank, part in enumerate(parts) if len(part)]
            for handle in handles:
                self._hvd.synchronize(handle)
        return parts

    def broadcast(self, flat: Any) -> None:
        if len(flat):
            with others_first():
                self._hvd.synchronize(self._send(as_array(flat), 0))

    def _send(self, part: Any, root: int) -> int:
        name = f"orca.from.{root}"
        return self._hvd.broadcast_async_(torch.from_numpy(part).view(torch.uint8), root_rank=root, name=name)


class HorovodSync(Sync):
    """Replicated updates. Horovod is there for the user's own code while the gang runs."""

    def check(self) -> None:
        require("horovod.torch", WHAT_FOR)

    @contextmanager
    def join(self, worker: Worker) -> Iterator[Group]:
        hvd = require("horovod.torch", WHAT_FOR)
        with _rendezvous(worker) as server, environment(_variables(worker, server)):
            with worker.waiting():
                hvd.init()
            try:
                # Horovod for TensorFlow is a library of its own, which code of the user's may start beside this one.
                with environment({"HOROVOD_GLOO_RENDEZVOUS_ADDR": f"{server}{_OTHER}"}):
                    yield HorovodGroup(worker.rank, worker.world_size, hvd)
                worker.barrier()  # the first to shut down ends the operations of all
            finally:
                _shut_down_other()
                hvd.shutdown()


@contextmanager
def _rendezvous(worker: Worker) -> Iterator[str]:
    """Where Horovod's ranks find each other: a server of rank 0, on the address that its peers reach it at.

    Gives what Horovod takes for its host: the address, and a path that begins with a token."""
    if worker.rank != 0:
        yield worker.all_gather(None)[0]
        return
    # Not Horovod's RendezvousServer, which would listen on every address of this host and ask for no token.
    http = require("horovod.runner.http.http_server", WHAT_FOR)
    token = secrets.token_hex(32)
    handler = _handler(http.RendezvousHandler, token, frozenset(worker.peers))
    with http.RendezvousHTTPServer((worker.rendezvous[0], 0), handler, 0) as server:
        server.init([_slot(worker.peers, rank) for rank in range(worker.world_size)])
        server.scope_size |= {f"{_OTHER}.{scope}": size for scope, size in server.scope_size.items()}
        thread = threading.Thread(target=server.serve_forever, args=(0.05,), name="orca-horovod", daemon=True)
        thread.start()
        try:
            yield worker.all_gather(f"{worker.rendezvous[0]}:{server.server_port}/{token}/")[0]
        finally:
            server.shutdown()
            thread.join()


def _shut_down_other() -> None:
    """The process may be used again, by another gang."""
    other = sys.modules.get("horovod.tensorflow")
    if other is not None and other.is_initialized():
        other.shutdown()


def _handler(base: type, token: str, peers: frozenset[str]) -> type:
    """Horovod's handler of requests, for ranks that know the token. It is the beginning of every path they ask for."""

    class Handler(base):
        path: str

        def parse_request(self) -> bool:
            if not super().parse_request():
                return False
            _, given, space, path = f"{self.path}///".split("/", 3)
            if self.client_address[0] not in peers or not hmac.compare_digest(given.encode(), token.encode()):
                self.close_connection = True  # not a word to strangers
                return False
            library = space.partition(":")[0]
            self.path = f"/{library}.{path}" if library else f"/{path}"
            self.path = self.path.removesuffix("///")
            return True

    return Handler


def _slot(peers: tuple[str, ...], rank: int) -> Any:
    """Where a rank stands among all, on its host, and among the ranks of its number on the other hosts."""
    hosts = require("horovod.runner.common.util.hosts", WHAT_FOR)
    host = peers[rank]
    local_rank = peers[:rank].count(host)
    across = [each for each in dict.fromkeys(peers) if peers.count(each) > local_rank]
    return hosts.SlotInfo(
        hostname=host,
        rank=rank,
        local_rank=local_rank,
        cross_rank=across.index(host),
        size=len(peers),
        local_size=peers.count(host),
        cross_size=len(across),
    )


def _variables(worker: Worker, rendezvous: str) -> dict[str, str]:
    slot = _slot(worker.peers, worker.rank)
    names = ("hostname", "rank", "size", "local_rank", "local_size", "cross_rank", "cross_size")
    interface = interface_of(worker.peers[worker.rank])
    return {
        **{f"HOROVOD_{name.upper()}": str(getattr(slot, name)) for name in names},
        # Horovod puts ":" and the port behind the address, and a path behind that: so both become part of the path.
        "HOROVOD_GLOO_RENDEZVOUS_ADDR": rendezvous,
        "HOROVOD_GLOO_RENDEZVOUS_PORT": "0",
        "HOROVOD_CONTROLLER": "gloo",
        "HOROVOD_CPU_OPERATIONS": "gloo",
        **({"HOROVOD_GLOO_IFACE": interface} if interface else {}),
    }
