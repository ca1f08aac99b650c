"""Packages: everything a board needs to run one network, in one archive that can check itself."""
