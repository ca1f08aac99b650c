"""Convolutions as edgedeploy writes them, in TVM's tensor expressions, and the choice between their forms."""
