"""`python -m edgedeploy` is the `edgedeploy` command."""

from edgedeploy.cli import main

main()
