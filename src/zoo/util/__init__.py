"""Helpers with published import paths: nested structures, triggers, TensorFlow checkpoints and exports."""
