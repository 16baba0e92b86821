"""Where code runs: the engine contract and its three implementations, local, spark and ray."""
