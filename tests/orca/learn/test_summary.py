"""Summaries: read back by us and by TensorFlow, whole after a crash, and written when triggers say so."""

from __future__ import annotations

import json
import math
import os
import pickle
import signal
import struct
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from zoo.orca.errors import InvalidArgumentError, NotOfferedError
from zoo.orca.learn.event_file import Histogram
from zoo.orca.learn.summary import SummaryWriter, TrainSummary, ValidationSummary, read_scalar
from zoo.orca.learn.trigger import EveryEpoch, SeveralIteration, TrainState

# Reads a folder's event files with TensorFlow and prints what they hold.
READ = """
import json, sys, glob
from tensorflow.compat.v1.train import summary_iterator
found = []
for path in sorted(glob.glob(sys.argv[1] + "/*")):
    for event in summary_iterator(path):
        for value in event.summary.value:
            entry = {"tag": value.tag, "step": event.step, "time": event.wall_time, "kind": value.WhichOneof("value")}
            if entry["kind"] == "simple_value":
                entry["value"] = value.simple_value
            else:
                histogram = value.histo
                entry["value"] = [histogram.min, histogram.max, histogram.num, histogram.sum, histogram.sum_squares]
                entry["buckets"] = [list(histogram.bucket_limit), list(histogram.bucket)]
            found.append(entry)
        if event.file_version:
            found.append({"version": event.file_version})
print(json.dumps(found))
"""


def float32(value: float) -> float:
    return struct.unpack("<f", struct.pack("<f", value))[0]


def test_tensorflow_reads_what_we_write(tmp_path):
    values = np.array([1.0, 2.0, 2.5, -3.0])
    with SummaryWriter(tmp_path) as writer:
        writer.add_scalar("Loss", 0.1, 1, wall_time=1700000000.25)
        writer.add_scalar("Größe/μ", -2.5e20, 2**40, wall_time=2.0)
        writer.add_histogram("weights", values, 300, wall_time=3.0)
        writer.add_scalar("empty", 0.0, 0, wall_time=0.0)
    done = subprocess.run(
        [sys.executable, "-c", READ, str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": ""},
    )
    assert done.returncode == 0, done.stderr
    version, loss, large, weights, zero = json.loads(done.stdout)
    assert version == {"version": "brain.Event:2"}
    assert loss == {"tag": "Loss", "step": 1, "time": 1700000000.25, "kind": "simple_value", "value": float32(0.1)}
    assert (large["tag"], large["step"], large["value"]) == ("Größe/μ", 2**40, float32(-2.5e20))
    assert (weights["kind"], weights["step"]) == ("histo", 300)
    assert weights["value"] == [-3.0, 2.5, 4.0, 2.5, 20.25]
    limits, counts = weights["buckets"]
    assert (limits[-1], sum(counts), len(limits)) == (2.5, 4.0, len(counts))
    assert zero == {"tag": "empty", "step": 0, "time": 0.0, "kind": "simple_value", "value": 0.0}


def test_a_summary_is_read_as_iteration_value_and_time(tmp_path):
    with SummaryWriter(tmp_path) as writer:
        assert writer.read_scalar("Loss") == []
        for iteration in range(1, 4):
            writer.add_scalar("Loss", 1 / iteration, iteration, wall_time=100.0 + iteration)
            writer.add_scalar("Throughput", 10.0, iteration)
        assert read_scalar(tmp_path, "Loss") == [[n, float32(1 / n), 100.0 + n] for n in (1, 2, 3)]
        assert [entry[:2] for entry in writer.read_scalar("Throughput")] == [[1, 10.0], [2, 10.0], [3, 10.0]]
        assert read_scalar(tmp_path, "LearningRate") == []


@given(
    entries=st.lists(
        st.tuples(st.text(max_size=8), st.floats(width=32, allow_nan=False), st.integers(0, 2**62), st.floats(0, 1e12))
    )
)
def test_whatever_is_written_is_read(tmp_path_factory, entries):
    folder = tmp_path_factory.mktemp("summaries")
    with SummaryWriter(folder) as writer:
        for tag, value, iteration, wall_time in entries:
            writer.add_scalar(tag, value, iteration, wall_time)
    for tag in {entry[0] for entry in entries}:
        expected = [[iteration, value, seconds] for name, value, iteration, seconds in entries if name == tag]
        assert read_scalar(folder, tag) == expected


def test_what_is_no_number_survives(tmp_path):
    with SummaryWriter(tmp_path) as writer:
        writer.add_scalar("Loss", math.nan, 1)
        writer.add_scalar("Loss", math.inf, 2)
        writer.add_scalar("Loss", 1e300, 3)
    assert [str(entry[1]) for entry in read_scalar(tmp_path, "Loss")] == ["nan", "inf", "inf"]


def test_a_killed_process_loses_nothing(tmp_path):
    code = (
        "import os, signal, sys\n"
        "from zoo.orca.learn.summary import SummaryWriter\n"
        "writer = SummaryWriter(sys.argv[1])\n"
        "for n in range(1, 101): writer.add_scalar('Loss', n, n)\n"
        "os.kill(os.getpid(), signal.SIGKILL)"
    )
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], timeout=60)
    assert done.returncode == -signal.SIGKILL
    assert [entry[0] for entry in read_scalar(tmp_path, "Loss")] == list(range(1, 101))


@pytest.mark.parametrize("damage", ["cut", "flip", "garbage"])
def test_a_damaged_file_is_read_up_to_the_damage(tmp_path, damage):
    with SummaryWriter(tmp_path) as writer:
        for n in range(10):
            writer.add_scalar("Loss", n, n)
    (path,) = tmp_path.iterdir()
    content = bytearray(path.read_bytes())
    if damage == "cut":
        del content[-5:]
    elif damage == "flip":
        content[-10] ^= 1
    else:
        content += b"\xff" * 40
    path.write_bytes(content)
    assert len(read_scalar(tmp_path, "Loss")) == (10 if damage == "garbage" else 9)


def test_later_writers_add_to_the_folder(tmp_path):
    for start in (0, 10, 20):
        with SummaryWriter(tmp_path) as writer:
            writer.add_scalar("Loss", 1.0, start)
            writer.close()
            writer.add_scalar("Loss", 1.0, start + 1)
    assert [entry[0] for entry in read_scalar(tmp_path, "Loss")] == [0, 1, 10, 11, 20, 21]
    assert len(list(tmp_path.iterdir())) == 3, "a closed writer goes on in its own file"


def test_folders(tmp_path):
    TrainSummary(str(tmp_path), "app")
    validation = ValidationSummary(f"file://{tmp_path}", "app")
    assert (tmp_path / "app" / "train").is_dir()
    assert (tmp_path / "app" / "validation").is_dir()
    validation.add_scalar("Top1Accuracy", 0.5, 3)
    validation.close()
    assert [entry[:2] for entry in validation.read_scalar("Top1Accuracy")] == [[3, 0.5]]
    with pytest.raises(NotOfferedError, match="s3://bucket"):
        TrainSummary("s3://bucket/logs", "app")


def due(summary: TrainSummary, iterations: int, per_epoch: int) -> dict[str, list[int]]:
    """The iterations after which each summary is due."""
    state, found = TrainState(), {}
    for done in range(1, iterations + 1):
        state.advance(1, per_epoch)
        for name in summary.due(state):
            found.setdefault(name, []).append(done)
    return found


def test_loss_and_throughput_are_always_due_and_the_rest_at_triggers(tmp_path):
    summary = TrainSummary(str(tmp_path), "app")
    assert due(summary, 3, 3) == {"Loss": [1, 2, 3], "Throughput": [1, 2, 3]}
    assert summary.set_summary_trigger("LearningRate", SeveralIteration(2)) is summary
    summary.set_summary_trigger("Parameters", EveryEpoch())
    summary.set_summary_trigger("Loss", SeveralIteration(3))
    travelled = pickle.loads(pickle.dumps(summary))
    expected = {"Loss": [2, 5], "Throughput": [1, 2, 3, 4, 5, 6], "LearningRate": [1, 3, 5], "Parameters": [3, 6]}
    assert due(travelled, 6, 3) == due(summary, 6, 3) == expected


def test_five_one_iteration_epochs_give_five_triggered_rates(tmp_path):
    summary = TrainSummary(str(tmp_path), "app").set_summary_trigger("LearningRate", SeveralIteration(1))
    assert due(summary, 5, 1)["LearningRate"] == [1, 2, 3, 4, 5]


def test_summary_triggers_are_checked(tmp_path):
    summary = TrainSummary(str(tmp_path), "app")
    with pytest.raises(InvalidArgumentError, match="one of Loss, Throughput, LearningRate, Parameters, got 'Rate'"):
        summary.set_summary_trigger("Rate", EveryEpoch())
    with pytest.raises(InvalidArgumentError, match="got None"):
        summary.set_summary_trigger("Loss", None)


def test_an_open_writer_can_be_pickled(tmp_path):
    with SummaryWriter(tmp_path) as writer:
        writer.add_scalar("Loss", 1.0, 1)
        with pickle.loads(pickle.dumps(writer)) as other:
            other.add_scalar("Loss", 2.0, 2)
        writer.add_scalar("Loss", 3.0, 3)
    assert sorted(entry[0] for entry in read_scalar(tmp_path, "Loss")) == [1, 2, 3]


def test_histograms_of_odd_arrays():
    assert Histogram.of(np.array([])).count == 0
    constant = Histogram.of(np.full((3, 2), 7.0, dtype=np.float32))
    assert (constant.minimum, constant.maximum, sum(constant.counts)) == (7.0, 7.0, 6)
    assert Histogram.of(np.array([1.0, np.nan, np.inf])).count == 1
