"""What follows the compiled part of a network where sizes depend on data: a small graph that numpy computes."""
