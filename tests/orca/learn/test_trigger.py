"""Triggers: the published table against a loop, what they remember, and what stands for one."""

from __future__ import annotations

import copy
import json
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zoo.orca.errors import InvalidArgumentError
from zoo.orca.learn import trigger as trigger_module
from zoo.orca.learn.trigger import (
    EveryBatches,
    EveryEpoch,
    EveryEpochs,
    EveryTime,
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


class Clock:
    """Stands in for the module `time`, and goes as it is told."""

    def __init__(self, now: float = 0.0):
        self.now = now

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch) -> Clock:
    clock = Clock(now=1e6)
    monkeypatch.setattr(trigger_module, "time", clock)
    return clock


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


NOT_A_TRIGGER = [
    "every epoch",
    "",
    5,
    EveryEpoch,
    object(),
    "10 apples",
    "ep",
    "1.5ep",
    "0ba",
    "-1s",
    "0s",
    "10m",
    "1e9s",
]


@pytest.mark.parametrize("wrong", NOT_A_TRIGGER)
def test_what_is_no_trigger_is_refused_with_what_can_be_typed(wrong):
    with pytest.raises(InvalidArgumentError, match=r"Expected a trigger.*'1ep' .*'500ba' .*'30s', '10min', '2h'"):
        Trigger.convert_trigger(wrong)


UNITS = {
    "ep": (EveryEpochs, 1),
    "ba": (EveryBatches, 1),
    "s": (EveryTime, 1),
    "min": (EveryTime, 60),
    "h": (EveryTime, 3600),
}


@given(
    count=st.integers(1, 10**12), unit=st.sampled_from(sorted(UNITS)), space=st.sampled_from(["", " "]), data=st.data()
)
def test_text_stands_for_a_trigger_and_its_repr_makes_the_same(count, unit, space, data):
    kind, times = UNITS[unit]
    text = data.draw(st.sampled_from([f"{count}{space}{unit}", f" {count}{space}{unit.upper()} "]))
    made = Trigger.convert_trigger(text)
    assert type(made) is kind
    assert repr(made) == f"{kind.__name__}({count * times})"
    assert vars(eval(repr(made))) == vars(made)


def test_parts_of_hours_minutes_and_seconds():
    assert repr(Trigger.convert_trigger("0.5h")) == "EveryTime(1800.0)"
    assert repr(Trigger.convert_trigger("1.5 min")) == "EveryTime(90.0)"


@given(records=st.integers(1, 20), batch_size=st.integers(1, 20), epochs=st.integers(1, 6), every=st.integers(1, 4))
def test_epochs_and_batches_are_counted_from_the_first(records, batch_size, epochs, every):
    per_epoch = -(-records // batch_size)
    done = range(1, per_epoch * epochs + 1)
    assert fired(EveryEpochs(every), records, batch_size, epochs) == [n % (every * per_epoch) == 0 for n in done]
    assert fired(EveryBatches(every), records, batch_size, epochs) == [n % every == 0 for n in done]


def test_time_passes_from_the_first_call_and_from_each_firing(clock):
    every = EveryTime(10)
    clock.now += 1000  # the time before training does not count
    answers = []
    for seconds in (0, 9, 1, 25, 9, 1):
        clock.now += seconds
        answers.append(every(TrainState()))
    assert answers == [False, False, True, True, False, True]


def test_time_goes_on_in_a_process_with_another_clock(clock):
    every = EveryTime(10)
    every(TrainState())
    clock.now += 6
    sent, state = pickle.dumps(every), every.state_dict()
    assert state == {"passed": 6}
    clock.now = 5.0
    loaded = EveryTime(10)
    loaded.load_state_dict(state)
    for other in (pickle.loads(sent), loaded):
        clock.now = 5.0 + 3.9
        assert not other(TrainState())
        clock.now = 5.0 + 4
        assert other(TrainState())
        clock.now = 5.0


class EveryThird(Trigger):
    """One of a user, who keeps what it remembers under any name."""

    def __init__(self):
        self.calls = 0

    def __call__(self, state):
        self.calls += 1
        return self.calls % 3 == 0


def triggers(of):
    return st.one_of(
        st.builds(EveryEpoch),
        st.builds(EveryThird),
        st.builds(EveryEpochs, st.integers(1, 4)),
        st.builds(EveryBatches, st.integers(1, 4)),
        st.builds(SeveralIteration, st.integers(1, 4)),
        st.builds(MaxIteration, st.integers(1, 20)),
    ) | (st.nothing() if of is None else st.builds(TriggerAnd, of, of) | st.builds(TriggerOr, of, of))


@given(made=triggers(triggers(None)), records=st.integers(1, 12), epochs=st.integers(1, 4), data=st.data())
def test_taken_up_in_the_middle_it_fires_where_it_would_have(made, records, epochs, data):
    all_states = list(states(records, 3, epochs))
    middle = data.draw(st.integers(0, len(all_states)))
    whole, before, after = made.copy(), made.copy(), made.copy()
    first = [before(state) for state in all_states[:middle]]
    after.load_state_dict(json.loads(json.dumps(before.state_dict())))  # plain data
    rest = [after(state) for state in all_states[middle:]]
    assert first + rest == [whole(state) for state in all_states]


def test_what_is_remembered_is_not_what_was_asked_for():
    """A fit that is taken up with another interval goes by the new one."""
    resumed = TriggerOr(EveryEpochs(5), lambda state: False)
    resumed.load_state_dict(TriggerOr(EveryEpochs(2), lambda state: False).state_dict())
    assert fired(resumed, records=1, batch_size=1, epochs=5) == [False] * 4 + [True]
    other = EveryTime(60)
    other.load_state_dict(EveryEpoch().state_dict())
    assert repr(other) == "EveryTime(60)"


def test_only_those_with_a_clock_say_so():
    assert EveryTime(1).by_clock
    assert TriggerOr(EveryEpoch(), TriggerAnd("5s", MaxEpoch(2))).by_clock
    assert not TriggerOr(EveryEpoch(), lambda state: True).by_clock
    assert not EveryEpochs(1).by_clock


def test_a_class_is_answered_with_how_to_make_one():
    with pytest.raises(ValueError, match=r"Type EveryEpoch\(\.\.\.\)"):
        Trigger.convert_trigger(EveryEpoch)


@pytest.mark.parametrize("wrong", [0, -1, "3", None, True, float("nan"), float("inf")])
def test_seconds_must_be_a_number_above_zero(wrong):
    with pytest.raises(InvalidArgumentError, match="number above 0"):
        EveryTime(wrong)


@pytest.mark.parametrize("make", [SeveralIteration, MaxEpoch, MaxIteration, EveryEpochs, EveryBatches])
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
