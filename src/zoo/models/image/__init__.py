"""Image models of the older interface."""
