"""What must hold of training, on every engine: exact, every row once, the same anywhere, and again and again."""

from __future__ import annotations

import gc
import glob
import os
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from learning import (
    CLASSES,
    RAGGED,
    Hoarding,
    Limited,
    Net,
    OwnLoss,
    Recording,
    Rows,
    Stream,
    assert_same_weights,
    digest_of,
    global_batches,
    limit_memory,
    recorded,
    train_by_hand,
    two_losses,
)
from zoo.orca import OrcaContext
from zoo.orca.data import XShards
from zoo.orca.engine.local import LocalEngine
from zoo.orca.feed.plan import split
from zoo.orca.learn.metrics import Accuracy
from zoo.orca.learn.pytorch import Estimator

BATCH = 8
ROWS = sum(RAGGED)
NAMES = ["a", "b", "c", "d"]
MEBIBYTE = 2**20
CLASS_WEIGHTS = torch.tensor([0.2, 1.0, 5.0]).double()


def adam(net, config=None):
    return torch.optim.Adam(net.parameters(), lr=0.05)


def placed(engine, partitions):
    return XShards.from_placement(engine.place(partitions))


def estimator(net=None, optimizer=adam, loss=None, **options):
    net = Net() if net is None else net
    options = {"num_workers": 3, "metrics": Accuracy()} | options
    return Estimator.from_torch(model=net, optimizer=optimizer, loss=loss or nn.CrossEntropyLoss(), **options)


def by_hand(rows, epochs, sizes=RAGGED, batch_size=BATCH, seed=0, shuffle=True):
    """The model of `estimator` after that many epochs in plain torch."""
    net = Net()
    batches = global_batches(sizes, batch_size, range(epochs), seed, shuffle)
    return train_by_hand(net, adam(net), nn.CrossEntropyLoss(), rows.x, rows.classes, batches)


@dataclass(frozen=True)
class Case:
    """One way to train, for the estimator and by hand."""

    optimizer: Callable[[nn.Module], Any] = adam
    loss: Any = field(default_factory=nn.CrossEntropyLoss)
    labels: str = "classes"
    batch_size: int = BATCH
    weighted: bool = False
    clip: str | None = None
    rtol: float = 1e-9

    def estimator(self, workers, backend):
        net = Net()
        est = estimator(net, self.optimizer(net), self.loss, num_workers=workers, backend=backend)
        if self.clip == "norm":
            est.set_l2_norm_gradient_clipping(0.2)
        elif self.clip == "value":
            est.set_constant_gradient_clipping(-0.02, 0.05)
        return est

    def by_hand(self, rows, epochs):
        net = Net()
        loss = nn.CrossEntropyLoss(reduction="none") if self.weighted else self.loss
        return train_by_hand(
            net,
            self.optimizer(net),
            loss,
            rows.x,
            getattr(rows, self.labels),
            global_batches(RAGGED, self.batch_size, range(epochs)),
            rows.weights if self.weighted else None,
            {None: None, "norm": _clip_norm, "value": _clip_value}[self.clip],
        )


def _clip_norm(parameters):
    nn.utils.clip_grad_norm_(parameters, 0.2)


def _clip_value(parameters):
    for each in parameters:
        each.grad.clamp_(-0.02, 0.05)


def _sgd(net):
    return torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)


CASES = {
    "sgd-momentum": Case(_sgd),
    "adam-mse": Case(labels="values", loss=nn.MSELoss()),
    "decay-bce": Case(
        lambda net: torch.optim.AdamW(net.parameters(), lr=0.05, weight_decay=0.3),
        nn.BCEWithLogitsLoss(),
        labels="bits",
    ),
    "adam-decay": Case(lambda net: torch.optim.Adam(net.parameters(), lr=0.05, weight_decay=0.1)),
    "a-function": Case(_sgd, nn.functional.cross_entropy),
    "class-weights": Case(_sgd, nn.CrossEntropyLoss(weight=CLASS_WEIGHTS)),
    "ignored-labels": Case(_sgd, nn.CrossEntropyLoss(ignore_index=-1), labels="ignored", batch_size=6),
    "sums": Case(lambda net: torch.optim.SGD(net.parameters(), lr=0.01), nn.CrossEntropyLoss(reduction="sum")),
    "row-weights": Case(_sgd, weighted=True),
    "clip-norm": Case(_sgd, clip="norm"),
    "clip-value": Case(_sgd, clip="value"),
    "lbfgs": Case(lambda net: torch.optim.LBFGS(net.parameters(), lr=0.5, max_iter=4), rtol=1e-6),
}


class TestExact:
    """The update is the one that a single process makes on the whole global batch."""

    def test_two_epochs_equal_the_plain_loop_and_train_every_row_once(self, engine, tmp_path):
        rows = Rows(ROWS)
        est = estimator(training_operator_cls=Recording, config={"folder": str(tmp_path)})
        est.fit(placed(engine, rows.cut(RAGGED)), epochs=2, batch_size=BATCH)

        assert_same_weights(est.get_model(), by_hand(rows, epochs=2))
        seen = [[recorded(tmp_path, epoch, rank) for rank in range(3)] for epoch in range(2)]
        orders = [[row for rank in ranks for row in rank["rows"]] for ranks in seen]
        assert [sorted(order) for order in orders] == [sorted(rows.x[:, 0].tolist())] * 2
        assert orders[0] != orders[1]
        for ranks in seen:
            assert len({rank["pid"] for rank in ranks}) == 3
            assert all(rank["weights"] == ranks[0]["weights"] for rank in ranks)

    @pytest.mark.engines("local")
    @pytest.mark.parametrize("case", CASES.values(), ids=list(CASES))
    def test_every_loss_and_optimizer(self, engine, case):
        rows = Rows(ROWS)
        if case.weighted:
            shards = placed(engine, framed(rows.cut(RAGGED, case.labels), weight=rows.weights))
            options = {"feature_cols": NAMES, "label_cols": ["y"], "weight_col": "weight"}
        else:
            shards, options = placed(engine, rows.cut(RAGGED, case.labels)), {}
        expected = case.by_hand(rows, epochs=2)
        for workers, backend in ((1, "bigdl"), (2, "torch_distributed"), (3, "bigdl")):
            est = case.estimator(workers, backend)
            est.fit(shards, epochs=2, batch_size=case.batch_size, **options)
            assert_same_weights(est.get_model(), expected, case.rtol)

    @pytest.mark.engines("local")
    def test_shards_of_any_shape(self, engine):
        sizes = st.lists(st.integers(0, 9) | st.integers(0, 2), min_size=1, max_size=6).filter(any)

        @settings(max_examples=10, deadline=None, derandomize=True)
        @given(sizes, st.integers(1, 3), st.integers(3, 12), st.sampled_from(["bigdl", "torch_distributed"]))
        def check(sizes, workers, batch_size, backend):
            rows = Rows(sum(sizes))
            est = estimator(num_workers=workers, backend=backend)
            est.fit(placed(engine, rows.cut(sizes)), batch_size=batch_size)
            assert_same_weights(est.get_model(), by_hand(rows, 1, sizes, batch_size))

        check()

    @pytest.mark.engines("local")
    def test_machines_that_share_no_files(self, engine, monkeypatch):
        """Each rank trains on the rows that lie with it, or gets all of the driver's; batches stay what they are."""
        monkeypatch.setattr(type(engine), "one_machine", property(lambda self: False))
        rows, more = Rows(ROWS), Rows(11, seed=1)
        for sizes, kind in ((RAGGED, "shards"), ((2, 15), "shards"), ((ROWS,), "arrays")):
            expected = by_hand(rows, 2, sizes)
            output, target = expected.eval()(torch.from_numpy(more.x)), torch.from_numpy(more.classes)
            data, validation = (
                (placed(engine, rows.cut(sizes)), placed(engine, more.cut((0, 11))))
                if kind == "shards"
                else ((rows.x, rows.classes), (more.x, more.classes))
            )
            est = estimator(backend="torch_distributed")
            figures = est.fit(data, epochs=2, batch_size=BATCH, validation_data=validation)
            assert_same_weights(est.get_model(), expected)
            assert figures[1]["val_loss"] == pytest.approx(nn.functional.cross_entropy(output, target).item(), rel=1e-9)
            assert est.evaluate(validation, batch_size=BATCH)["val_loss"] == pytest.approx(figures[1]["val_loss"])
            assert not laid_files()

    @pytest.mark.engines("local")
    def test_an_operator_can_use_another_loss(self, engine):
        """Without a criterion of ours, rows are what counts."""
        rows = Rows(ROWS)
        est = estimator(training_operator_cls=OwnLoss)
        est.fit(placed(engine, rows.cut(RAGGED)), batch_size=BATCH)
        assert_same_weights(est.get_model(), by_hand(rows, 1))


class TestEvaluate:
    def test_figures_do_not_depend_on_the_workers(self, engine):
        rows, shards = Rows(ROWS), placed(engine, Rows(ROWS).cut(RAGGED))
        output = Net()(torch.from_numpy(rows.x))
        target = torch.from_numpy(rows.classes)
        right = (output.argmax(dim=1) == target).double().mean().item()
        for workers in (1, 2, 3, 4) if engine.name == "local" else (3,):
            figures = estimator(num_workers=workers, backend="torch_distributed").evaluate(shards, batch_size=BATCH)
            assert figures["Accuracy"] == pytest.approx(right, rel=1e-12)
            assert figures["val_loss"] == pytest.approx(nn.functional.cross_entropy(output, target).item(), rel=1e-9)
            assert figures["num_samples"] == ROWS

    @pytest.mark.engines("local")
    @pytest.mark.parametrize(
        ("loss", "labels"),
        [
            (nn.CrossEntropyLoss(weight=CLASS_WEIGHTS), "classes"),
            (nn.CrossEntropyLoss(ignore_index=-1), "ignored"),
            (nn.CrossEntropyLoss(reduction="sum"), "classes"),
            (nn.CrossEntropyLoss(weight=CLASS_WEIGHTS, ignore_index=-1, reduction="sum"), "ignored"),
        ],
        ids=["class-weights", "ignored-labels", "sum", "weighted-sum"],
    )
    def test_losses_that_divide_by_something_else(self, engine, loss, labels):
        rows, shards = Rows(ROWS), placed(engine, Rows(ROWS).cut(RAGGED, labels))
        expected = loss(Net()(torch.from_numpy(rows.x)), torch.from_numpy(getattr(rows, labels))).item()
        for workers in (1, 2, 3):
            est = estimator(loss=loss, num_workers=workers, backend="torch_distributed", metrics=None)
            assert est.evaluate(shards, batch_size=BATCH)["val_loss"] == pytest.approx(expected, rel=1e-9)

    @pytest.mark.engines("local")
    def test_training_losses_are_means_over_rows(self, engine):
        """With a rate of 0 an epoch's loss is that of the first weights over all rows."""
        rows, shards = Rows(ROWS), placed(engine, Rows(ROWS).cut(RAGGED))
        expected = nn.functional.cross_entropy(Net()(torch.from_numpy(rows.x)), torch.from_numpy(rows.classes)).item()
        for workers in (1, 3):
            est = estimator(
                optimizer=lambda net: torch.optim.SGD(net.parameters(), lr=0.0),
                num_workers=workers,
                backend="torch_distributed",
            )
            (figures,) = est.fit(shards, batch_size=BATCH)
            assert figures["train_loss"] == pytest.approx(expected, rel=1e-9)
            assert figures["num_samples"] == ROWS
            assert figures["batch_count"] == 3


class TestSameAnywhere:
    @pytest.mark.engines("spark", "ray")
    def test_engines_agree_to_the_bit(self, engine):
        """With everything that is random: first weights, order, dropout."""
        rows, found = Rows(ROWS), []
        with LocalEngine(cores=2) as embedded:
            for each in (engine, embedded):
                est = estimator(lambda config: Net(dropout=0.4).float(), num_workers=2, seed=3)
                est.fit(placed(each, rows.cut(RAGGED)), epochs=2, batch_size=BATCH)
                found.append(digest_of(est.get_model()))
        assert found[0] == found[1]

    @pytest.mark.engines("local")
    def test_what_is_random_follows_the_seed(self, engine):
        shards = placed(engine, Rows(ROWS).cut(RAGGED))

        def trained(seed):
            est = estimator(
                lambda config: nn.Sequential(nn.Linear(4, 9), nn.Dropout(0.4), nn.Linear(9, CLASSES)), seed=seed
            )
            return digest_of(est.fit(shards, batch_size=BATCH).get_model())

        assert trained(1) == trained(1)
        assert trained(1) != trained(2)

    @pytest.mark.engines("local")
    def test_backends_and_worker_counts_agree(self, engine):
        rows = Rows(ROWS)
        models = []
        for backend, workers in (("bigdl", 3), ("bigdl", 2), ("torch_distributed", 3), ("torch_distributed", 4)):
            est = estimator(num_workers=workers, backend=backend, seed=5)
            est.fit(placed(engine, rows.cut(RAGGED)), epochs=2, batch_size=BATCH)
            models.append(est.get_model())
        for model in models[1:]:
            assert_same_weights(model, models[0])


class TestBatchNorm:
    @pytest.mark.engines("local")
    def test_buffers_are_means_over_rows(self, engine):
        """Each worker normalises by its own rows; the last batch, of three rows, has nothing for two of them."""
        rows, size, workers = Rows(23), 10, 3
        sizes = (12, 0, 1, 10)
        est = estimator(Net(norm=True), num_workers=workers)
        est.fit(placed(engine, rows.cut(sizes)), epochs=2, batch_size=size)
        mean, var = torch.zeros(4).double(), torch.ones(4).double()
        for epoch in range(2):
            found, seen = [], []
            for rank in range(workers):
                layer = nn.BatchNorm1d(4).double()
                layer.running_mean, layer.running_var = mean.clone(), var.clone()
                count = 0
                for batch in global_batches(sizes, size, [epoch]):
                    mine = batch[split(len(batch), workers)[rank]] if len(batch) else batch
                    if len(mine):
                        layer(torch.from_numpy(rows.x[mine]).double())
                    count += len(mine)
                found.append(layer)
                seen.append(count)
            mean = sum(each.running_mean * n for each, n in zip(found, seen, strict=True)) / sum(seen)
            var = sum(each.running_var * n for each, n in zip(found, seen, strict=True)) / sum(seen)
        layer = est.get_model().layers[0]
        assert int(layer.num_batches_tracked) == 6
        np.testing.assert_allclose(layer.running_mean, mean, rtol=1e-9)
        np.testing.assert_allclose(layer.running_var, var, rtol=1e-9)


FRAME = {"feature_cols": NAMES, "label_cols": ["y"]}
SIZE = {"batch_size": BATCH}


def in_order(rows):
    """Sizes of shards, one of them empty."""
    return (4, 0, 5, len(rows.x) - 9)


def loader_of(rows, **options):
    dataset = torch.utils.data.TensorDataset(torch.from_numpy(rows.x), torch.from_numpy(rows.classes))
    return torch.utils.data.DataLoader(dataset, BATCH, **options)


def dict_shards(engine, rows, build=lambda x: x):
    partitions = rows.cut(in_order(rows))
    return placed(engine, [[{"x": build(shard["x"]), "y": shard["y"]}] for (shard,) in partitions])


def spark_frame(rows):
    session = OrcaContext.get_spark_session()
    records = [(*map(float, x), int(y)) for x, y in zip(rows.x, rows.classes, strict=True)]
    rdd = session.sparkContext.parallelize(records, 3)
    return session.createDataFrame(rdd, "a float, b float, c float, d float, y int")


def ray_dataset(rows):
    import ray.data

    frame = pd.DataFrame({"a": rows.x[:, 0], "rest": list(rows.x[:, 1:]), "y": rows.classes})
    return ray.data.from_pandas([frame[:5], frame[5:6], frame[6:]])


# What holds the rows, and how `fit` is told about it.
KINDS = {
    "tuple": lambda engine, rows: ((rows.x, rows.classes), SIZE),
    "dict": lambda engine, rows: ({"x": rows.x, "y": rows.classes}, SIZE),
    "pandas": lambda engine, rows: (framed(rows.cut([len(rows.x)]))[0][0], FRAME | SIZE),
    "pandas-of-arrays": lambda engine, rows: (
        pd.DataFrame({"x": list(rows.x), "y": rows.classes}),
        {"feature_cols": "x", "labels_cols": ["y"]} | SIZE,
    ),
    "shards": lambda engine, rows: (dict_shards(engine, rows), SIZE),
    "shards-of-lists": lambda engine, rows: (dict_shards(engine, rows, lambda x: [x[:, :3], x[:, 3]]), SIZE),
    "shards-of-tuples": lambda engine, rows: (dict_shards(engine, rows, lambda x: (x[:, :1], x[:, 1:])), SIZE),
    "shards-of-dicts": lambda engine, rows: (dict_shards(engine, rows, lambda x: {"a": x[:, :1], "b": x[:, 1:]}), SIZE),
    "shards-of-frames": lambda engine, rows: (placed(engine, framed(rows.cut(in_order(rows)))), FRAME | SIZE),
    "loader": lambda engine, rows: (loader_of(rows), {}),
    "loader-with-processes": lambda engine, rows: (loader_of(rows, num_workers=1), {}),
    "loader-of-a-stream": lambda engine, rows: (
        torch.utils.data.DataLoader(Stream(rows.x, rows.classes), BATCH),
        {},
    ),
    "creator": lambda engine, rows: (lambda config: loader_of(rows), SIZE),
    "creator-of-two": lambda engine, rows: (lambda config, batch_size: loader_of(rows), SIZE),
}
ENGINE_KINDS = {
    "spark": {
        "frame": lambda engine, rows: (spark_frame(rows), FRAME | SIZE),
        "creator": KINDS["creator"],
    },
    "ray": {
        "dataset": lambda engine, rows: (
            ray_dataset(rows),
            {"feature_cols": ["a", "rest"], "label_cols": "y"} | SIZE,
        ),
        "loader-of-a-stream": KINDS["loader-of-a-stream"],
    },
}


class TestKindsOfData:
    def test_all_train_and_validate_alike(self, engine):
        rows, more = Rows(ROWS), Rows(11, seed=1)
        expected = by_hand(rows, 1, (ROWS,), shuffle=False)
        output, target = expected.eval()(torch.from_numpy(more.x)), torch.from_numpy(more.classes)
        for name, make in ENGINE_KINDS.get(engine.name, KINDS).items():
            est = estimator(num_workers=2, backend="torch_distributed", config={"shuffle": False})
            data, how = make(engine, rows)
            (figures,) = est.fit(data, validation_data=make(engine, more)[0], **how)
            assert_same_weights(est.get_model(), expected)
            assert figures["num_samples"] == ROWS, name
            assert figures["val_Accuracy"] == pytest.approx((output.argmax(dim=1) == target).double().mean().item())
            assert figures["val_loss"] == pytest.approx(nn.functional.cross_entropy(output, target).item(), rel=1e-9)

    @pytest.mark.engines("spark")
    def test_a_frame_of_arrays_vectors_weights_and_two_labels(self, engine):
        from pyspark.ml.linalg import Vectors

        rows = Rows(ROWS)
        records = [
            (
                [[float(x[0])], [float(x[1])]],
                Vectors.sparse(2, [0, 1], x[2:].tolist()) if number % 2 else Vectors.dense(x[2:].tolist()),
                int(label),
                float(values[0]),
                float(weight),
            )
            for number, (x, label, values, weight) in enumerate(
                zip(rows.x, rows.classes, rows.values, rows.weights, strict=True)
            )
        ]
        session = OrcaContext.get_spark_session()
        df = session.createDataFrame(records, ["grid", "vector", "label", "number", "weight"]).coalesce(1)
        est = estimator(loss=two_losses, num_workers=2, config={"shuffle": False}, metrics=None)
        est.fit(
            df,
            batch_size=BATCH,
            feature_cols=["grid", "vector"],
            label_cols=["label", "number"],
            weight_col="weight",
        )
        net = Net()
        both = np.stack([rows.classes, rows.values[:, 0]], axis=1)
        expected = train_by_hand(
            net,
            adam(net),
            lambda output, target: two_losses(output, (target[:, 0], target[:, 1]), "none"),
            rows.x,
            both,
            global_batches((ROWS,), BATCH, shuffle=False),
            rows.weights,
        )
        assert_same_weights(est.get_model(), expected)


class TestMemory:
    def test_a_partition_larger_than_a_worker_may_hold(self, engine):
        """Data is mapped: a worker that may take 48 MiB trains on a partition of 192, but cannot hold it."""
        width, shards, rows = 48, 12, 192 * MEBIBYTE // 12 // 48 // 4

        def make(number):
            return {"x": np.full((rows, width), number, np.float32), "y": np.zeros(rows, np.int64)}

        options = {"initialization_hook": limit_memory, "num_workers": 2, "backend": "torch_distributed"}
        if engine.name == "spark":
            data = OrcaContext.get_spark_session().sql(
                f"select array_repeat(cast(id as float), {width}) as x, 0 as y from range(0, {rows * shards}, 1, 1)"
            )
            options_of_fit = {"feature_cols": ["x"], "label_cols": ["y"]}
        else:
            data = placed(engine, [list(range(shards))]).transform_shard(make)
            options_of_fit = {}

        def fit(operator):
            est = estimator(nn.Linear(width, CLASSES), training_operator_cls=operator, **options)
            return est.fit(data, batch_size=16384, **options_of_fit)

        (figures,) = fit(Limited)
        assert figures["num_samples"] == rows * shards
        with pytest.raises(
            (MemoryError, RuntimeError), match="allocate"
        ):  # numpy's error, or torch's: whoever asks first
            fit(Hoarding)


class TestAgain:
    def test_fits_estimators_and_measures_take_turns(self, engine, tmp_path):
        if engine.name == "spark":
            assert engine.sc.getConf().get("spark.python.worker.reuse", "true") == "true"
        rows = Rows(ROWS)
        shards = placed(engine, rows.cut(RAGGED))
        options = {"batch_size": BATCH}
        one, other = estimator(num_workers=2), estimator(num_workers=2, backend="torch_distributed", seed=4)

        one.fit(shards, epochs=1, **options)
        assert_same_weights(one.get_model(), by_hand(rows, 1))
        other.fit(shards, epochs=2, **options)
        assert_same_weights(other.get_model(), by_hand(rows, 2, seed=4))
        before = one.get_model()
        assert one.evaluate(shards, **options).keys() == {"Top1Accuracy"}
        assert digest_of(one.get_model()) == digest_of(before)
        one.fit(shards, epochs=2, **options)
        assert_same_weights(one.get_model(), by_hand(rows, 2))

        one.save(str(tmp_path / "one.pt"))
        again = estimator(num_workers=2).load(str(tmp_path / "one.pt"))
        again.fit(shards, epochs=3, **options)
        assert_same_weights(again.get_model(), by_hand(rows, 3))
        assert_same_weights(one.get_model(), by_hand(rows, 2))

    @pytest.mark.engines("local")
    def test_another_number_of_workers_goes_on_from_a_file(self, engine, tmp_path):
        rows, shards = Rows(ROWS), placed(engine, Rows(ROWS).cut(RAGGED))
        for backend, total in (("bigdl", 2), ("torch_distributed", 1)):
            path = str(tmp_path / f"{backend}.pt")
            first = estimator(num_workers=3, backend=backend)
            first.fit(shards, epochs=1, batch_size=BATCH)
            first.save(path)
            second = estimator(num_workers=2, backend=backend).load(path)
            second.fit(shards, epochs=total, batch_size=BATCH)
            assert_same_weights(second.get_model(), by_hand(rows, 2))


class TestFiles:
    """Columns are laid down once for data that is kept, and are gone with it."""

    @pytest.mark.engines("local")
    def test_cached_shards_are_laid_down_once(self, engine):
        rows = Rows(ROWS)
        shards = placed(engine, rows.cut(RAGGED))
        est = estimator(num_workers=2)
        est.fit(shards, epochs=1, batch_size=BATCH)
        first = laid_files()
        assert first
        est.fit(shards, epochs=2, batch_size=BATCH)
        assert laid_files() == first
        assert_same_weights(est.get_model(), by_hand(rows, 2))
        shards.uncache()
        est.fit(shards, epochs=3, batch_size=BATCH)
        assert not laid_files()
        assert_same_weights(est.get_model(), by_hand(rows, 3))
        shards.cache()
        est.fit(shards, epochs=4, batch_size=BATCH)
        assert laid_files()
        del shards
        gc.collect()
        assert not laid_files()


def laid_files():
    """The files of feeds, with what tells whether they were written again."""
    gc.collect()
    paths = glob.glob(os.path.join(tempfile.gettempdir(), "orca-feed-*", "*"))
    return {path: os.stat(path).st_mtime_ns for path in paths}


def framed(partitions, **columns):
    """Dict shards as pandas frames, with more columns for all rows."""
    frames, offset = [], 0
    for (shard,) in partitions:
        frame = pd.DataFrame(shard["x"], columns=NAMES).assign(y=shard["y"])
        for name, values in columns.items():
            frame[name] = values[offset : offset + len(frame)]
        offset += len(frame)
        frames.append([frame])
    return frames
