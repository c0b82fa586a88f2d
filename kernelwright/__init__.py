"""kernelwright reads a PyTorch model file and writes a faster one, proven the same."""
