"""The hand-written kernels. X.py says when a template applies, its configs and their cost; X.cuh or X.hpp is the kernel."""
