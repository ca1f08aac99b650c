"""The model zoo: what networks there are, where their files come from, and the files themselves."""
