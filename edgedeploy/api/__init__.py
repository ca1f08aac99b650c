"""The Python API, and the command line's own way in: what a command does, one call does.

Users take all of it from `edgedeploy` itself: `import edgedeploy as ed`.
"""
