"""Tuning: kernels of a network are built in several ways, measured on the board, and the best are recorded."""
