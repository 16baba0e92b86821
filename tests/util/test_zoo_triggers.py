"""The triggers of zoo.util.triggers: those of orca, under a base of their own."""

from __future__ import annotations

import pickle

import pytest

from zoo.orca.learn import trigger as orca
from zoo.orca.learn.trigger import TrainState, Trigger
from zoo.util import triggers

PAIRS = [
    (triggers.EveryEpoch(), orca.EveryEpoch()),
    (triggers.SeveralIteration(3), orca.SeveralIteration(3)),
    (triggers.MaxEpoch(max=2), orca.MaxEpoch(2)),
    (triggers.MaxIteration(max=4), orca.MaxIteration(4)),
    (triggers.MaxScore(max=0.5), orca.MaxScore(0.5)),
    (triggers.MinLoss(min=0.2), orca.MinLoss(0.2)),
    (
        triggers.TriggerAnd(triggers.MaxEpoch(1), triggers.MinLoss(0.5)),
        orca.TriggerAnd(orca.MaxEpoch(1), orca.MinLoss(0.5)),
    ),
    (
        triggers.TriggerOr(triggers.MaxEpoch(2), triggers.MaxScore(0.8)),
        orca.TriggerOr(orca.MaxEpoch(2), orca.MaxScore(0.8)),
    ),
]


@pytest.mark.parametrize(("zoo", "plain"), PAIRS, ids=lambda each: repr(each))
def test_fires_where_the_orca_trigger_fires(zoo, plain):
    zoo = pickle.loads(pickle.dumps(zoo))
    fired = []
    state = TrainState()
    for step in range(8):
        state.advance(1, 2, loss=1 - step / 8)
        state.score = step / 8
        fired.append((zoo(state), plain(state)))
    assert [mine for mine, _ in fired] == [theirs for _, theirs in fired]
    assert any(mine for mine, _ in fired)


@pytest.mark.parametrize("zoo", [pair[0] for pair in PAIRS], ids=lambda each: repr(each))
def test_is_taken_for_a_trigger_and_known_to_be_of_zoo(zoo):
    assert Trigger.convert_trigger(zoo) is zoo
    assert isinstance(zoo, triggers.ZooTrigger)
    assert zoo.slice_aware
    assert repr(zoo).startswith(type(zoo).__name__)
    assert not getattr(orca.EveryEpoch(), "slice_aware", False)
