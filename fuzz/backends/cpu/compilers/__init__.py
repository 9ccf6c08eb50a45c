"""Compiles the C of kernels to machine code: in this process at once, or by the C compiler to shared objects."""
