"""The hand-written kernels. X.py: when a template applies, its configs and their cost. X.cuh, X.hpp: the kernel."""
