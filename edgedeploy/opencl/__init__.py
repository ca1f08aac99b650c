"""OpenCL devices as their drivers describe them, and what networks' kernels for a device go by."""
