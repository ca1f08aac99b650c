"""The version, which packages, agents and pages state."""

__version__ = "0.2.0"
