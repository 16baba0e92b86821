"""A learner of MXNet by itself, against plain MXNet in this process: steps, states, metrics."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from zoo.orca.errors import BatchError, CheckpointError, InvalidArgumentError, NotOfferedError, PreconditionError
from zoo.orca.feed.base import Share
from zoo.orca.feed.taste import Alone
from zoo.orca.learn.checkpoint import need_plain
from zoo.orca.learn.mxnet import create_config
from zoo.orca.learn.mxnet.learner import MXNetLearner
from zoo.orca.learn.mxnet.measures import Measures
from zoo.orca.learn.mxnet.recipe import MXNetRecipe
from zoo.orca.learn.sync.solo import SoloGroup
from zoo.orca.mxnet_library import load

mx = load()
autograd, gluon = mx.autograd, mx.gluon

ROWS = 12
X = np.random.default_rng(0).normal(size=(ROWS, 4)).astype(np.float32)
Y = (X.sum(axis=1) > 0).astype(np.int64)
OPTIMIZERS = ["sgd", "nag", "adam", "adamax", "nadam", "adagrad", "adadelta", "rmsprop", "ftrl", "ftml", "signum",
              "lamb", "lars", "dcasgd"]  # fmt: skip


def softmax(config):
    return gluon.loss.SoftmaxCrossEntropyLoss()


def dense(config):
    net = gluon.nn.HybridSequential()
    net.add(gluon.nn.Dense(5, activation="relu"), gluon.nn.BatchNorm(), gluon.nn.Dense(2))
    return net


def learner(model=dense, loss=softmax, metrics=None, state=None, **config) -> MXNetLearner:
    recipe = MXNetRecipe(model, loss, metrics, metrics, create_config(**config))
    return MXNetLearner(recipe, Alone(), SoloGroup(), state)


def share(start=0, stop=ROWS, x=X, y=Y) -> Share:
    return Share((x[start:stop], y[start:stop]), stop - start, stop - start)


def train(made: MXNetLearner, shares, epoch=0) -> dict:
    made.start_epoch(epoch)
    figures = made.train_epoch([made.take(each) for each in shares], {})
    made.after_epoch(ROWS, made.loss, None)
    return figures


def weights(made: MXNetLearner) -> dict[str, np.ndarray]:
    return {name: array.asnumpy() for name, array in made.net.parameters().items()}


def assert_same(found: dict, expected: dict, tolerance=0.0) -> None:
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, rtol=tolerance, atol=tolerance, err_msg=name)


def test_steps_are_those_of_a_plain_trainer():
    made = learner(optimizer="adam", optimizer_params={"learning_rate": 0.1, "wd": 0.01})
    made.take(share())
    plain = dense({})
    plain.initialize()
    plain(mx.nd.array(X))
    for name, parameter in plain._collect_params_with_prefix().items():
        parameter.set_data(mx.nd.array(weights(made)[name]))
    trainer = gluon.Trainer(plain.collect_params(), "adam", {"learning_rate": 0.1, "wd": 0.01})
    for start in (0, 5, 10):
        x, y = mx.nd.array(X[start : start + 5]), mx.nd.array(Y[start : start + 5])
        with autograd.record():
            loss = softmax({})(plain(x), y)
        loss.backward()
        trainer.step(len(x))
    figures = train(made, [share(0, 5), share(5, 10), share(10, 12)])
    plain_weights = {name: p.data().asnumpy() for name, p in plain._collect_params_with_prefix().items()}
    assert_same(weights(made), plain_weights, 1e-6)
    assert made.loss == pytest.approx(float(loss.mean().asscalar()), rel=1e-5)
    assert figures["train_loss"] > 0
    assert figures["epoch_time"] > 0


def scheduled():
    return {"learning_rate": 0.1, "lr_scheduler": mx.lr_scheduler.FactorScheduler(2, 0.5)}


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_a_state_goes_on_to_the_bit(optimizer):
    def with_dropout(config):
        net = dense(config)
        net.add(gluon.nn.Dropout(0.3))
        return net

    halves = [share(0, 6), share(6, 12)]
    straight = learner(with_dropout, optimizer=optimizer, optimizer_params=scheduled())
    for epoch in (0, 1):
        train(straight, halves, epoch)
    first = learner(with_dropout, optimizer=optimizer, optimizer_params=scheduled())
    train(first, halves, 0)
    state = first.state()
    need_plain(state)
    second = learner(with_dropout, optimizer=optimizer, optimizer_params=scheduled(), state=state)
    train(second, halves, 1)
    assert_same(weights(second), weights(straight))
    assert second.rate == straight.rate < 0.1
    assert second.digest() == straight.digest() != first.digest()


def test_weights_of_convolutions_are_read_and_written():
    """They lie in an order of their own in memory, once a layer has computed with them."""

    def convolution(config):
        net = gluon.nn.HybridSequential()
        net.add(gluon.nn.Conv2D(16, 3, padding=1), gluon.nn.BatchNorm(), gluon.nn.Flatten(), gluon.nn.Dense(2))
        net.hybridize()
        return net

    images = np.random.default_rng(1).normal(size=(ROWS, 16, 6, 6)).astype(np.float32)
    halves = [share(0, 6, images), Share((images[:2], Y[:2]), 0, 6), share(6, 12, images)]
    straight, first = learner(convolution, optimizer="adam"), learner(convolution, optimizer="adam")
    train(straight, halves)
    train(straight, halves, 1)
    train(first, halves)
    second = learner(convolution, optimizer="adam", state=first.state())
    second.take(share(0, 6, images))
    assert_same(weights(second), weights(first))
    train(second, halves, 1)
    assert_same(weights(second), weights(straight))
    for ranks in (first.net.contributions(0, 6), second.net.contributions(6, 6)):
        assert all(each.stype == "default" for each in ranks)
    assert not any(each.asnumpy().any() for each in first.net.contributions(0, 6))


def test_a_scalar_loss_is_a_mean_over_rows():
    def mean_loss(config):
        own = gluon.loss.SoftmaxCrossEntropyLoss()
        return lambda output, label: own(output, label).mean()

    by_rows, by_mean = learner(), learner(loss=mean_loss)
    for made in (by_rows, by_mean):
        train(made, [share(0, 7), share(7, 12)])
    assert_same(weights(by_mean), weights(by_rows), 1e-6)
    assert by_mean.loss == pytest.approx(by_rows.loss, rel=1e-6)


def test_ghost_rows_leave_no_trace_in_statistics():
    made = learner()
    made.take(share())
    before = weights(made)
    train(made, [Share((X[:2] + 100, Y[:2]), 0, 4)])
    after = weights(made)
    assert_same({name: after[name] for name in after if "running" in name},
                {name: before[name] for name in before if "running" in name})  # fmt: skip


def test_gradients_that_add_up_and_sparse_ones():
    def embedding(config):
        net = gluon.nn.Sequential()
        net.add(gluon.nn.Embedding(20, 3, sparse_grad=config["sparse"]), gluon.nn.Dense(2))
        net.collect_params().setattr("grad_req", config["grad_req"])
        return net

    ids, found = np.arange(ROWS).reshape(ROWS, 1) % 7, {}
    for sparse, grad_req in ((False, "write"), (False, "add"), (True, "write")):
        extra = {"sparse": sparse, "grad_req": grad_req}
        made = learner(embedding, extra_config=extra, optimizer="adagrad", optimizer_params={"learning_rate": 0.1})
        train(made, [share(0, 6, ids), share(6, 12, ids)])
        found[sparse, grad_req] = weights(made)
        # What is summed over ranks is dense, and goes back to the kind that the gradient is of.
        sums = made.net.contributions(1, 1)
        assert all(each.stype == "default" for each in sums)
        made.net.take_sums()
    assert_same(found[False, "add"], found[False, "write"])
    assert_same(found[True, "write"], found[False, "write"], 1e-6)


@pytest.mark.parametrize("dtype", ["float16", "float64"])
def test_other_types_of_numbers(dtype):
    class Scaled(gluon.HybridBlock):  # MXNet has no dense layer in float16 on CPUs
        def __init__(self):
            super().__init__()
            self.scale = self.params.get("scale", shape=(1, 4), init="ones")

        def hybrid_forward(self, F, x, scale):
            return F.broadcast_mul(x, scale)

    def typed(config):
        net = Scaled()
        net.cast(dtype)
        return net

    made = learner(typed)
    train(made, [share()])
    assert {str(value.dtype) for value in weights(made).values()} == {dtype}
    need_plain(made.state())
    assert_same(weights(learner_from(made, typed)), weights(made))


def learner_from(made: MXNetLearner, model) -> MXNetLearner:
    again = learner(model, state=made.state())
    again.take(share())
    return again


def test_several_inputs_outputs_and_losses():
    class Two(gluon.Block):
        def __init__(self):
            super().__init__()
            self.one, self.other = gluon.nn.Dense(2), gluon.nn.Dense(1)

        def forward(self, right, left):
            return self.one(left), self.other(right)

    def loss(config):
        first, second = softmax({}), gluon.loss.L2Loss()
        return lambda outputs, labels: [first(outputs[0], labels[0]), second(outputs[1], labels[1])]

    labels = [Y, X[:, :1]]
    in_a_list = learner(lambda config: Two(), loss)
    by_name = learner(lambda config: Two(), loss)
    train(in_a_list, [Share((X[:, :1], X, labels), ROWS, ROWS)])
    train(by_name, [Share(({"left": X, "right": X[:, :1]}, {"a": labels[0], "b": labels[1]}), ROWS, ROWS)])
    assert_same(weights(by_name), weights(in_a_list))
    assert weights(by_name)["one.weight"].shape == (2, 4)
    with pytest.raises(BatchError, match="calls its inputs right, left, but the data has left, wrong"):
        train(learner(lambda config: Two(), loss), [Share(({"left": X, "wrong": X}, labels), ROWS, ROWS)])

    class Half(Two):
        def forward(self, x):
            return self.one(x)

    half = learner(lambda config: Half())
    with pytest.raises(InvalidArgumentError, match=r"forward never came to .*other\.weight"):
        train(half, [share()])
    half.net.native.other(mx.nd.array(X))
    with pytest.raises(InvalidArgumentError, match=r"Gradient of Parameter `.*Does the model use all of its layers"):
        train(half, [share()])


def graph(normalization="null", **attributes):
    data = mx.sym.Variable("data")
    hidden = mx.sym.BatchNorm(mx.sym.FullyConnected(data, num_hidden=3, name="fc1"), name="bn", fix_gamma=False)
    out = mx.sym.FullyConnected(hidden, num_hidden=2, name="fc2")
    return mx.sym.SoftmaxOutput(out, name="softmax", normalization=normalization, **attributes)


def module(config):
    return mx.mod.Module(graph(config.get("normalization", "null")))


def test_a_module_trains_as_its_own_fit_does():
    made = learner(module, None, metrics="acc", optimizer_params={"learning_rate": 0.2, "momentum": 0.9})
    made.take(share(0, 4))
    plain = module({})
    batches = mx.io.NDArrayIter(X, Y, batch_size=4)
    plain.bind(batches.provide_data, batches.provide_label)
    known = {name: mx.nd.array(value) for name, value in weights(made).items()}
    names = plain.symbol.list_auxiliary_states()
    plain.init_params(arg_params={k: v for k, v in known.items() if k not in names},
                      aux_params={k: v for k, v in known.items() if k in names})  # fmt: skip
    plain.fit(batches, optimizer_params={"learning_rate": 0.2, "momentum": 0.9}, num_epoch=2)
    for epoch in (0, 1):
        figures = train(made, [share(0, 4), share(4, 8), share(8, 12)], epoch)
    arguments, auxiliary = plain.get_params()
    expected = {name: each.asnumpy() for name, each in (arguments | auxiliary).items()}
    assert_same(weights(made), expected, 1e-6)
    assert 0 <= figures["accuracy"] <= 1
    assert "train_loss" not in figures
    state = made.state()
    need_plain(state)
    again = learner(module, None, state=state, optimizer_params={"learning_rate": 0.2, "momentum": 0.9})
    for each in (made, again):
        train(each, [share(0, 5)], 2)  # of another length than those before
    assert_same(weights(again), weights(made))


@pytest.mark.parametrize("normalization", ["null", "batch", "valid"])
def test_parts_of_a_batch_add_up_in_a_module(normalization):
    """What ranks hand to the sum makes the gradient of the whole batch, by the graph's own way to divide."""
    ignoring = {"use_ignore": True, "ignore_label": 0}

    def plain_graph(config):
        out = mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=2, name="fc2")
        return mx.mod.Module(mx.sym.SoftmaxOutput(out, name="softmax", normalization=normalization, **ignoring))

    from zoo.orca.learn.mxnet.module_net import ModuleNet

    recipe = MXNetRecipe(plain_graph, config=create_config())
    nets = [ModuleNet(recipe.build_model(), recipe, world_size) for world_size in (1, 3, 3, 3)]
    for net in nets:
        net.build((X,), Y)
        net.load({name: array.copy() for name, array in nets[0].parameters().items()})
    parts = [(0, 3), (3, 12), (0, 2)]
    nets[0].train((X,), Y, ROWS)
    expected = [each.asnumpy() for each in nets[0]._gradients()]
    handed = []
    for net, (start, stop) in zip(nets[1:], parts, strict=True):
        net.train((X[start:stop],), Y[start:stop], stop - start)
        rows = 0 if (start, stop) == (0, 2) else stop - start
        handed.append(net.contributions(rows, ROWS))
    for arrays in zip(*handed, strict=True):
        total = sum(each.asnumpy() for each in arrays)
        arrays[0][:] = total
    nets[1].take_sums()
    for found, value in zip(nets[1]._gradients(), expected, strict=True):
        np.testing.assert_allclose(found.asnumpy(), value, rtol=1e-5, atol=1e-6)


METRICS = {
    "acc": lambda: mx.metric.Accuracy(),
    "top": lambda: mx.metric.TopKAccuracy(2),
    "f1 micro": lambda: mx.metric.F1(average="micro"),
    "mcc micro": lambda: mx.metric.MCC(average="micro"),
    "ce": lambda: mx.metric.CrossEntropy(),
    "nll": lambda: mx.metric.NegativeLogLikelihood(),
    "perplexity": lambda: mx.metric.Perplexity(None),
    "custom": lambda: mx.metric.np(lambda label, pred: (float((pred.argmax(1) == label).sum()), len(label))),
    "both": lambda: mx.metric.create(["acc", "ce"]),
}


@settings(max_examples=15, deadline=None)
@given(name=st.sampled_from(sorted(METRICS)), cuts=st.lists(st.integers(0, 30), min_size=2, max_size=2),
       seed=st.integers(0, 9))  # fmt: skip
def test_metrics_of_ranks_are_those_of_all_rows(name, cuts, seed):
    rng = np.random.default_rng(seed)
    scores, labels = rng.dirichlet(np.ones(2), 30).astype(np.float32), rng.integers(0, 2, 30)
    whole = Measures(METRICS[name]())
    whole.update([mx.nd.array(labels)], [mx.nd.array(scores)], 30)
    ranks = [Measures(METRICS[name]()) for _ in range(3)]
    bounds = [0, *sorted(cuts), 30]
    for rank, (start, stop) in zip(ranks, itertools.pairwise(bounds), strict=True):
        for first in range(start, stop, 7):
            part = slice(first, min(first + 7, stop))
            rank.update([mx.nd.array(labels[part])], [mx.nd.array(scores[part])], part.stop - part.start)
    before = ranks[0].contribution()
    figures = ranks[0].figures_of(sum(rank.contribution() for rank in ranks))
    expected = whole.figures()
    assert figures.keys() == expected.keys()
    assert list(figures.values()) == pytest.approx(list(expected.values()), rel=1e-5, nan_ok=True)
    np.testing.assert_array_equal(ranks[0].contribution(), before)
    restored = Measures(METRICS[name]())
    restored.load(ranks[1].state())
    restored.add([ranks[0].state(), ranks[2].state()])
    assert list(restored.figures().values()) == pytest.approx(list(expected.values()), rel=1e-5, nan_ok=True)


def test_two_metrics_of_one_instance_do_not_share_counts():
    accuracy = mx.metric.Accuracy()
    made = learner(metrics=lambda config: accuracy)
    made.start_epoch(0)
    made.train_epoch([made.take(share())], {})
    before = made.so_far()
    made.validate([share(0, 5)], {})
    assert made.so_far() == before
    assert accuracy.num_inst == 0


def test_a_scheduler_takes_the_learning_rate_without_a_word(capfd):
    made = learner(optimizer_params=scheduled())
    assert made.rate == 0.1
    made.take(share())
    assert made.rate == 0.1
    assert capfd.readouterr().out == ""


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"optimizer": "adm"}, "no optimizer of config's 'adm'"),
        ({"optimizer_params": {"lr": 1}}, "unexpected keyword argument 'lr'.*\"learning_rate\""),
        ({"loss": lambda config: None}, "loss_creator must return a loss.*but returned None"),
        ({"metrics": lambda config: "accc"}, "eval_metrics_creator returned 'accc', of which MXNet makes no metric"),
        ({"metrics": lambda config: [3]}, r"eval_metrics_creator must return .*, but returned \[3\]"),
    ],
)
def test_what_creators_and_config_may_not_give(given, words):
    with pytest.raises(InvalidArgumentError, match=words):
        learner(**given).take(share())


def test_a_state_of_another_optimizer_is_refused():
    made = learner(optimizer="adam")
    made.take(share())
    other = learner(optimizer="sgd", state=made.state())
    with pytest.raises(CheckpointError, match="trained with MXNet's Adam, but config's optimizer is SGD"):
        other.take(share())


def test_what_cannot_be_trained_is_said():
    with pytest.raises(PreconditionError, match="loss_creator"):
        learner(loss=None)
    with pytest.raises(InvalidArgumentError, match="must return a gluon Block"):
        learner(lambda config: 3)
    with pytest.raises(NotOfferedError, match="BucketingModule"):
        learner(lambda config: mx.mod.BucketingModule(lambda key: (graph(), ["data"], ["softmax_label"]), 1))
    made = learner(lambda config: gluon.nn.Dense(2, in_units=4))
    with pytest.raises(BatchError, match=r"float32 \(3, 9\)"):
        train(made, [Share((np.zeros((3, 9)), Y[:3]), 3, 3)])
    with pytest.raises(BatchError, match="cannot take a batch of outputs and labels"):
        train(learner(lambda config: gluon.nn.Dense(1), lambda config: gluon.loss.L2Loss()), [share(0, 3, y=X[:, :2])])
    with pytest.raises(BatchError, match=r"2\*\*24"):
        train(learner(lambda config: gluon.nn.Dense(2)), [share(0, 3, x=np.full((3, 1), 2**25))])
    with pytest.raises(BatchError, match="the inputs data"):
        train(learner(module, None), [Share((X, X, Y), ROWS, ROWS)])
    sparse = gluon.contrib.nn.SparseEmbedding(5, 2)
    with pytest.raises(NotOfferedError, match="row_sparse"):
        learner(lambda config: sparse)
    made = learner()
    made.take(share())
    other = learner(lambda config: gluon.nn.Dense(2), state=made.state())
    with pytest.raises(CheckpointError, match="another model"):
        other.take(share())
