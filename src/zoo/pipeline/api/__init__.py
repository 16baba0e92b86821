"""Models of other frameworks as layers."""
