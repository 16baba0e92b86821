"""Data to train on: a helper to fetch files, and `DataSet`."""
