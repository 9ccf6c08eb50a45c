"""Other ways to test the same kernels, each as a competent engineer uses it, measured beside `fuzz run`."""
