"""Quantised layers in integers."""
