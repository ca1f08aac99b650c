"""Post-training quantisation: float networks into networks of 8-bit integers, and what that costs."""
