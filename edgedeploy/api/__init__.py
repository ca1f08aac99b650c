"""The Python API, which the command line uses, too: one call for each command.

Users import all of it from `edgedeploy`: `import edgedeploy as ed`.
"""
