"""The `cuda` backend: kernels as Triton compiles them for an NVIDIA GPU."""
