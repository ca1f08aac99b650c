"""OpenCL devices: as their drivers describe them, and as profiles state them for kernels."""
