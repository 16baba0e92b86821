"""What is random in a graph draws what a seed says, so that a step can be repeated and ranks differ."""

from __future__ import annotations

import numpy as np
import pytest
from tf_graphs import tf, v1

from zoo.orca.learn.tf.opened import OpenGraph
from zoo.orca.learn.tf.recipe import GraphRecipe

DRAWS = {
    "uniform": lambda: v1.random_uniform((4,)),
    "normal": lambda: v1.random_normal((4,)),
    "truncated": lambda: v1.truncated_normal((4,)),
    "whole": lambda: v1.random_uniform((4,), 0, 1000, tf.int64, seed=3),
    "classes": lambda: tf.random.categorical(tf.zeros((1, 1000)), 4),
    "dropout": lambda: v1.nn.dropout(tf.ones((100,)), rate=0.5),
}


def opened(draw, rank=0):
    with tf.Graph().as_default():
        x = v1.placeholder_with_default(np.zeros(4, np.float32), (None,))
        drawn = draw()
        output = drawn + tf.cast(x[0], drawn.dtype)
        recipe = GraphRecipe(inputs=x, outputs=output)
    parcel = recipe.parcel_for_prediction()
    recipe.close()
    return OpenGraph(parcel, {}, rank)


def drawn(graph, seed=0):
    (value,) = graph.run(graph.parcel.outputs, {}, seed)
    return value.ravel().tolist()


@pytest.mark.parametrize("draw", DRAWS.values(), ids=list(DRAWS))
def test_a_seed_repeats_and_another_differs(draw):
    graph = opened(draw)
    assert drawn(graph, 1) == drawn(graph, 1) != drawn(graph, 2)
    graph.close()


def test_two_operations_draw_for_themselves():
    graph = opened(lambda: v1.random_uniform((4,)) - v1.random_uniform((4,)))
    assert any(drawn(graph, 1))
    graph.close()


@pytest.mark.parametrize("loop", ["shuffle", "while"])
def test_what_keeps_a_state_differs_between_ranks(loop):
    def draw():
        if loop == "shuffle":
            return v1.random_shuffle(tf.range(1000.0))[:4]
        _, found = tf.while_loop(
            lambda n, _: n < 3, lambda n, found: (n + 1, found + v1.random_uniform((4,))), (0, tf.zeros(4))
        )
        return found

    graphs = [opened(draw, rank) for rank in (0, 0, 1)]
    first, again, other = map(drawn, graphs)
    for each in graphs:
        each.close()
    assert first == again != other
