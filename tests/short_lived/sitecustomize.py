"""Run by every Python that a test starts, as it starts: most live for seconds, and import torch or TensorFlow in them.

While those are imported Python would look for garbage hundreds of times, and find none: a fifth of the time it takes.
In the end it would do so again for all that they hold, which is about to go anyway: a second or two. What is garbage by
then is collected as ever.
"""

import atexit
import gc

gc.set_threshold(100_000, 50, 1_000)
atexit.register(gc.freeze)
atexit.register(gc.collect)  # before that: the last comes first
