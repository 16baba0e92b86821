"""The `start` rows (the first gang of two, from nothing) and the `gang` rows (the second one in the same driver)."""

from __future__ import annotations

import sys
from pathlib import Path

from benchmarks import gangs
from benchmarks.row import ROOT, Bar, Contender, Row

RAY_TRAIN, DISTRIBUTOR = "Ray Train TorchTrainer", "Spark TorchDistributor"
TORCH, SPARK, RAY = ("torch",), ("pyspark", "torch"), ("ray", "torch")


def start_rows() -> list[Row]:
    """Gangs in a fresh driver. With Ray and Spark, work alone starts when the engine runs; the whole includes it."""
    return [
        Row(
            name="start-bare",
            title="Two processes that wait for each other and tell their ranks, from nothing to the end",
            contenders=(
                Contender("embedded engine", "us", gangs.embedded),
                _torchrun("rank_bare.py"),
                Contender("two bare interpreters", "limit", gangs.bare_processes),
            ),
            bars=(Bar("at most 1.2 times torchrun's time", "torchrun", at_most=1.2),),
            clock="whole",
        ),
        Row(
            name="start-torch",
            title="The same, with torch imported and joined over gloo",
            contenders=(
                Contender("embedded engine", "us", gangs.embedded, {"torch": True}, TORCH),
                _torchrun("rank_torch.py"),
            ),
            bars=(Bar("at most 1.2 times torchrun's time", "torchrun", at_most=1.2),),
            clock="whole",
        ),
        _on_ray("start-ray", "The first gang on a Ray that runs, joined over gloo", again=False),
        _on_spark("start-spark", "The first gang on a Spark that runs, joined over gloo", again=False),
    ]


def gang_rows() -> list[Row]:
    """The second gang in a driver that has run one."""
    again = {"again": True}
    return [
        Row(
            name="gang-embedded",
            title="The second gang of two in the same driver",
            contenders=(
                Contender("embedded engine", "us", gangs.embedded, again),
                Contender("embedded engine, gloo", "us", gangs.embedded, again | {"torch": True}, TORCH),
                Contender("two idle interpreters on pipes", "limit", gangs.bare_processes, again),
            ),
        ),
        _on_ray("gang-ray", "The second gang on Ray in the same driver, joined over gloo", again=True),
        _on_spark("gang-spark", "The second gang on Spark in the same driver, joined over gloo", again=True),
    ]


def _on_ray(name: str, title: str, again: bool) -> Row:
    arguments = {"again": again}
    return Row(
        name,
        title,
        (
            Contender("Ray engine", "us", gangs.on_ray, arguments | {"torch": True}, RAY),
            Contender("Ray engine, no torch", "us", gangs.on_ray, arguments, RAY[:1]),
            Contender(RAY_TRAIN, "peer", gangs.ray_train, arguments, RAY),
        ),
        bars=() if again else (Bar("at most half of Ray Train's time", RAY_TRAIN, at_most=0.5),),
    )


def _on_spark(name: str, title: str, again: bool) -> Row:
    arguments = {"again": again}
    return Row(
        name,
        title,
        (
            Contender("Spark engine", "us", gangs.on_spark, arguments | {"torch": True}, SPARK),
            Contender("Spark engine, no torch", "us", gangs.on_spark, arguments, SPARK[:1]),
            Contender(DISTRIBUTOR, "peer", gangs.torch_distributor, arguments, SPARK),
        ),
        bars=() if again else (Bar("at most half of TorchDistributor's time", DISTRIBUTOR, at_most=0.5),),
    )


def _torchrun(script: str) -> Contender:
    """torchrun as a user types it; its processes tell their ranks themselves, since it returns nothing."""
    torchrun = str(Path(sys.executable).with_name("torchrun"))
    command = [torchrun, "--standalone", "--nproc-per-node", str(gangs.SIZE), str(ROOT / "benchmarks" / script)]
    return Contender("torchrun", "peer", command, needs=TORCH)
