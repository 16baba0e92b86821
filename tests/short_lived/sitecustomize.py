"""Run by every Python that a test starts, as it starts: most live for seconds, and import torch or TensorFlow in them.

While those are imported Python would look for garbage hundreds of times, and find none: a fifth of the time it takes.
"""

import gc

gc.set_threshold(100_000, 50, 1_000)
