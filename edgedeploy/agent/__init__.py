"""The agent, the program that runs packages on a board: what it is built from, and where it is."""
