"""Estimators, one package a framework, and the parts that all of them share."""
