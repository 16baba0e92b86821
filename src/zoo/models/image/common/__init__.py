"""What image models have in common."""
