"""Memory that is shared with nobody, and a file without a name that is not even mapped: neither is a process's own."""

import mmap
import os
import time

import torch.nn as nn

SIZE = 192 << 20


class ModelNew(nn.Module):
    def forward(self, x):
        shared = [mmap.mmap(-1, SIZE) for _ in range(int("@MAPPED@"))]
        for memory in shared:
            memory.write(bytes(SIZE))
        files = [os.memfd_create(str(number)) for number in range(int("@HELD@"))]
        for file in files:
            os.write(file, bytes(SIZE))
        time.sleep(8)
        return x.relu() * 2.0
