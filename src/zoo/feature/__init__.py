"""Features of the older interface: preprocessings, feature sets and image sets."""
