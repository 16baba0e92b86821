"""Models of the older interface: what configures them."""
