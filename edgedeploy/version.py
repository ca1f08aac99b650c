"""Which version of edgedeploy this is."""

__version__ = "0.2.0"
