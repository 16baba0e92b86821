"""Us, the peers and the limit, measured side by side: `python -m benchmarks` (or `make bench`)."""
