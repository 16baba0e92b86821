"""Triggers: the published table against a loop, what they remember, and what stands for one."""

from __future__ import annotations

import copy
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zoo.orca.errors import InvalidArgumentError
from zoo.orca.learn.trigger import (
    EveryEpoch,
    MaxEpoch,
    MaxIteration,
    MaxScore,
    MinLoss,
    SeveralIteration,
    TrainState,
    Trigger,
    TriggerAnd,
    TriggerOr,
)


def states(records: int, batch_size: int, epochs: int):
    """The state after each iteration of a training loop."""
    state = TrainState()
    while state.epoch <= epochs:
        state.advance(batch_size, records)
        yield copy.copy(state)


def fired(trigger: Trigger, records: int, batch_size: int, epochs: int) -> list[bool]:
    return [trigger(state) for state in states(records, batch_size, epochs)]


def test_five_epochs_of_one_iteration_give_five_losses_and_four_validations():
    losses = 0
    validation = EveryEpoch()
    validations = 0
    for state in states(records=4, batch_size=4, epochs=5):
        losses += 1
        validations += validation(state)
    assert (losses, validations) == (5, 4)


@given(records=st.integers(1, 40), batch_size=st.integers(1, 40), epochs=st.integers(1, 5), interval=st.integers(1, 9))
def test_the_table_of_triggers(records, batch_size, epochs, interval):
    per_epoch = -(-records // batch_size)
    total = per_epoch * epochs

    after = range(2, total + 2)  # neval after each iteration
    assert fired(SeveralIteration(interval), records, batch_size, epochs) == [n % interval == 0 for n in after]
    assert fired(MaxIteration(interval), records, batch_size, epochs) == [n > interval for n in after]
    assert fired(MaxEpoch(interval), records, batch_size, epochs) == [
        1 + done // per_epoch > interval for done in range(1, total + 1)
    ]
    ends = [done % per_epoch == 0 for done in range(1, total + 1)]
    if per_epoch == 1:
        ends[0] = False  # the first call only remembers, and it comes when the first epoch is over
    assert fired(EveryEpoch(), records, batch_size, epochs) == ends


def test_several_iteration_first_fires_one_early():
    assert fired(SeveralIteration(4), records=8, batch_size=1, epochs=1) == [False, False, True, False] * 2


def test_the_end_of_an_epoch_shows_in_the_state():
    assert [(s.epoch, s.neval, s.records, s.epoch_finished) for s in states(10, 4, 1)] == [
        (1, 2, 4, False),
        (1, 3, 8, False),
        (2, 4, 0, True),
    ]


def test_scores_and_losses():
    assert not MaxScore(0.9)(TrainState())
    assert not MinLoss(0.1)(TrainState())
    assert MaxScore(0.9)(TrainState(score=0.91))
    assert not MaxScore(0.9)(TrainState(score=0.9))
    assert MinLoss(0.1)(TrainState(loss=0.09))
    assert not MinLoss(0.1)(TrainState(loss=0.1))
    assert not MinLoss(0.1)(TrainState(loss=float("nan")))


def test_combined_triggers_all_see_every_state():
    both = TriggerAnd(SeveralIteration(4), EveryEpoch())
    either = TriggerOr(EveryEpoch(), SeveralIteration(4), MaxIteration(100))
    # Two iterations an epoch: epochs end after iterations 2, 4, 6, 8; neval is a multiple of 4 after 3 and 7.
    assert fired(both, 4, 2, 4) == [False] * 8
    assert fired(either, 4, 2, 4) == [False, True, True, True, False, True, True, True]
    # Three an epoch: after 3 both fire. Had And not asked EveryEpoch before, it would only remember there.
    assert fired(TriggerAnd(SeveralIteration(4), EveryEpoch()), 6, 2, 1) == [False, False, True]


@pytest.mark.parametrize("carry", [lambda t: pickle.loads(pickle.dumps(t)), copy.copy, copy.deepcopy, Trigger.copy])
def test_memory_travels(carry):
    trigger = EveryEpoch()
    trigger(TrainState(epoch=1))
    other = carry(trigger)
    assert other(TrainState(epoch=2))
    assert trigger(TrainState(epoch=2)), "the copy must remember for itself"


def test_a_copy_of_combined_triggers_shares_nothing():
    trigger = TriggerOr(EveryEpoch())
    other = trigger.copy()
    assert not other(TrainState(epoch=1))
    assert not trigger(TrainState(epoch=2)), "the first call of the original only remembers"


def test_convert_trigger():
    assert Trigger.convert_trigger(None) is None
    for text in ("everyepoch", "EveryEpoch", " EVERYEPOCH "):
        assert isinstance(Trigger.convert_trigger(text), EveryEpoch)
    trigger = SeveralIteration(3)
    assert Trigger.convert_trigger(trigger) is trigger
    assert trigger.get_trigger() is trigger

    def even(state):
        return state.neval % 2 == 0

    assert Trigger.convert_trigger(even) is even


@pytest.mark.parametrize("wrong", ["every epoch", "", 5, EveryEpoch, object()])
def test_what_is_no_trigger_is_refused(wrong):
    with pytest.raises(InvalidArgumentError, match=r"Expected a trigger"):
        Trigger.convert_trigger(wrong)


def test_a_class_is_answered_with_how_to_make_one():
    with pytest.raises(ValueError, match=r"Type EveryEpoch\(\.\.\.\)"):
        Trigger.convert_trigger(EveryEpoch)


@pytest.mark.parametrize("make", [SeveralIteration, MaxEpoch, MaxIteration])
@pytest.mark.parametrize("wrong", [0, -1, 1.5, "3", None, True])
def test_counts_must_be_counts(make, wrong):
    with pytest.raises(ValueError, match="whole number above 0"):
        make(wrong)


def test_combining_needs_triggers():
    with pytest.raises(ValueError, match="got None"):
        TriggerAnd(None)


def test_text_of_triggers():
    assert str(SeveralIteration(3)) == "SeveralIteration(3)"
    assert repr(TriggerAnd(EveryEpoch(), MaxScore(0.5))) == "TriggerAnd(EveryEpoch(), MaxScore(0.5))"
