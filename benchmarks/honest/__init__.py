"""Good kernels by other hands, fuzzed until an oracle raises a false alarm: `make honest`."""
