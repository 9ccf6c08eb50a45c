"""Reports what a target never tried: code of its launcher and kernels, values of parameters, dtypes, layouts."""
