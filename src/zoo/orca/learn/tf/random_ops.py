"""Random operations of a graph, made to draw what a fed number says: a step can be repeated, and ranks differ.

TensorFlow's own random operations keep a state in the session that nobody can read or set. So those that have a
stateless form are given it, keyed by their name and by what is fed to `SEED`. The rest (in loops, in functions,
shuffles) keep their state and only get another seed on each rank.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import Any

#: What is fed with a number for each step and rank.
SEED = "zoo_random/seed"
_STATELESS = {
    "RandomUniform": "StatelessRandomUniform",
    "RandomStandardNormal": "StatelessRandomNormal",
    "TruncatedNormal": "StatelessTruncatedNormal",
    "RandomUniformInt": "StatelessRandomUniformInt",
    "Multinomial": "StatelessMultinomial",
}
# Where among the inputs the seed goes, where it is not the last.
_PLACES = {"RandomUniformInt": 1}
_TYPES = {"RandomUniformInt": {"Tout": "dtype"}}
_SEEDED = frozenset({*_STATELESS, "RandomShuffle", "RandomGamma", "RandomPoisson", "RandomPoissonV2",
                     "ParameterizedTruncatedNormal"})  # fmt: skip


def make_stateless(graph: Any, fixed: frozenset[str]) -> bool:
    """Rewrite a GraphDef's random operations, but for those in `fixed`; tells whether `SEED` is now part of it."""
    found = [node for node in graph.node if node.op in _STATELESS and node.name not in fixed]
    if not found:
        return False
    _add_seed(graph)
    for node in found:
        _rewrite(graph, node)
    return True


def seed_the_rest(graph: Any, *of: int) -> None:
    """Give the random operations of a GraphDef that keep a state seeds of their own, made of some whole numbers."""
    for node in _all_nodes(graph):
        if node.op in _SEEDED:
            node.attr["seed"].i = 1 + _key(node.name) % (2**31 - 2)
            node.attr["seed2"].i = 1 + hash(of) % (2**31 - 2)


def _all_nodes(graph: Any) -> Iterator[Any]:
    yield from graph.node
    for function in graph.library.function:
        yield from function.node_def


def _add_seed(graph: Any) -> None:
    import tensorflow as tf

    default = graph.node.add(op="Const", name=f"{SEED}_default")
    default.attr["dtype"].type = tf.int64.as_datatype_enum
    default.attr["value"].tensor.CopyFrom(tf.make_tensor_proto(0, tf.int64))
    seed = graph.node.add(op="PlaceholderWithDefault", name=SEED, input=[default.name])
    seed.attr["dtype"].type = tf.int64.as_datatype_enum
    seed.attr["shape"].shape.SetInParent()


def _rewrite(graph: Any, node: Any) -> None:
    import tensorflow as tf

    key = graph.node.add(op="Const", name=f"{node.name}/zoo_key")
    key.attr["dtype"].type = tf.int64.as_datatype_enum
    key.attr["value"].tensor.CopyFrom(tf.make_tensor_proto(_key(node.name), tf.int64))
    both = graph.node.add(op="Pack", name=f"{node.name}/zoo_seed", input=[key.name, SEED])
    both.attr["T"].type = tf.int64.as_datatype_enum
    both.attr["N"].i = 2
    both.attr["axis"].i = 0
    data = [each for each in node.input if not each.startswith("^")]
    control = [each for each in node.input if each.startswith("^")]
    place = _PLACES.get(node.op, len(data))
    del node.input[:]
    node.input.extend([*data[:place], both.name, *data[place:], *control])
    for old, new in _TYPES.get(node.op, {}).items():
        node.attr[new].CopyFrom(node.attr[old])
        del node.attr[old]
    node.attr["Tseed"].type = tf.int64.as_datatype_enum
    for name in ("seed", "seed2"):
        node.attr.pop(name, None)
    node.op = _STATELESS[node.op]


def _key(name: str) -> int:
    return zlib.crc32(name.encode())
