import contextlib, sys, threading, time, types
sys.path.insert(0, "src")
import torch, torch.distributed as dist
print(sys.version, torch.__version__, torch.cuda.is_available())
from zoo.orca.engine.channel import Ask
from zoo.orca.engine.board import Board
from zoo.orca.learn.sync import torch_distributed as td
from zoo.orca.learn.sync.base import Group
asked = []
class Fake:
    rank, world_size, peers, local_size = 0, 1, ("127.0.0.1",), 1
    def __init__(self): self.board = Board(); self.lock = threading.Lock()
    def ask(self, what, *args, timeout=None):
        asked.append((what, args[0] if args else None, threading.current_thread().name))
        end = time.time() + (timeout or 60)
        while True:
            with self.lock: got = self.board.ask(0, Ask(0, what, args))
            if got: return got[0][1].value
            self.board._waiting.clear()
            if time.time() > end: raise TimeoutError(str(args))
            time.sleep(.005)
    def all_gather(self, v): return [v]
    def barrier(self): pass
    def waiting(self): return contextlib.nullcontext()
w = Fake()
for turn in range(2):
    with td.process_group(w, "cuda"):
        import os
        print({k: v for k, v in os.environ.items() if "SOCKET_IFNAME" in k})
        x = torch.ones(4, device="cuda"); dist.all_reduce(x); y = torch.ones(4); dist.all_reduce(y); dist.barrier()
        g = dist.new_group([0]); dist.all_reduce(x, group=g)
        group = td.TorchGroup(0, 1, "cuda"); group.all_reduce(x); print(group.all_gather(x)); group.broadcast(x)
        o = [None]; dist.all_gather_object(o, {"a": 1})
        s = dist.PrefixStore("p", dist.distributed_c10d._get_default_store())
        s.set("a", "b"); print(s.get("a"), s.delete_key("a"), s.num_keys() > 0, s.add("n", 3), s.compare_set("c", "", "z"), s.check(["a"]))
        torch.cuda.synchronize(); print(x, y)
        import psutil
        print([(c.laddr, c.status) for c in psutil.Process().net_connections("tcp")])
time.sleep(1)
for a in asked: print(a)
