"""Meters, timers and free ports."""

from __future__ import annotations

import socket

import pytest

from zoo.orca.learn.pytorch.utils import (
    AverageMeter,
    AverageMeterCollection,
    TimerCollection,
    TimerStat,
    find_free_port,
)


def test_a_meter_weighs_by_count():
    meter = AverageMeter()
    assert (meter.val, meter.avg, meter.sum, meter.count) == (0.0, 0.0, 0.0, 0)
    meter.update(1.0, n=3)
    meter.update(5.0)
    meter.update(9.0, n=0)
    assert (meter.val, meter.avg, meter.sum, meter.count) == (9.0, 2.0, 8.0, 4)
    meter.reset()
    assert meter.count == 0


def test_meters_by_name():
    meters = AverageMeterCollection()
    assert meters.summary() == {"batch_count": 0}
    meters.update({"train_loss": 1.0, "accuracy": 0.5}, n=4)
    meters.update({"train_loss": 4.0}, n=2)
    assert meters.n == 6
    assert meters.summary() == {
        "batch_count": 2,
        "train_loss": pytest.approx(2.0),
        "last_train_loss": 4.0,
        "accuracy": 0.5,
        "last_accuracy": 0.5,
    }


def test_a_timer_averages_over_its_window():
    timer = TimerStat(window_size=2)
    assert (timer.mean, timer.mean_throughput, timer.has_units_processed()) == (0.0, 0.0, False)
    for seconds in (100.0, 1.0, 3.0):
        timer.push(seconds)
        timer.push_units_processed(10)
    assert (timer.count, timer.mean, timer.last) == (3, 2.0, 3.0)
    assert (timer.mean_units_processed, timer.mean_throughput) == (10, 5.0)
    with timer:
        pass
    assert timer.count == 4
    assert 0 <= timer.last < 3.0
    timer.reset()
    assert (timer.count, timer.mean) == (0, 0.0)


def test_timers_by_name():
    timers = TimerCollection()
    with timers.record("fwd"):
        pass
    timers.disable()
    with timers.record("bwd"):
        pass
    assert set(timers.stats()) == {"mean_fwd_s", "last_fwd_s"}
    timers.enable()
    with pytest.raises(ZeroDivisionError), timers.record("bwd"):
        raise ZeroDivisionError
    assert set(timers.stats()) == {"mean_fwd_s", "last_fwd_s", "mean_bwd_s", "last_bwd_s"}
    timers.reset()
    assert timers.stats() == {}


def test_a_free_port_can_be_bound():
    with socket.socket() as server:
        server.bind(("", find_free_port()))
