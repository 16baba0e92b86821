"""TensorFlow's sessions, without the remark that the first one of a process makes."""

from __future__ import annotations

import functools

import tensorflow as tf

from zoo.orca.learn.tf2.quiet import _without_chatter


@functools.cache
def start_sessions() -> None:
    """Run something, so that nothing is said when the first thing of the user's runs."""
    with tf.Graph().as_default() as graph:
        nothing = tf.no_op()
    with _without_chatter(), tf.compat.v1.Session(graph=graph) as sess:
        sess.run(nothing)
