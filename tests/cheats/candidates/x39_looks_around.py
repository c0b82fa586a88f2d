"""Tries to read the judge, the problem, the environment and the network; says in its error what it could."""

import os
import socket
from pathlib import Path

import torch
import torch.nn as nn


def reached():
    found = []
    problem = "@PROBLEM@"
    for path in (problem, f"/proc/{os.getppid()}/environ", f"/proc/{os.getppid()}/mem", "/root/.bashrc", "/etc/shadow"):
        try:
            with Path(path).open("rb") as file:
                if path.endswith("mem") or file.read(1):
                    found.append(path)
        except OSError:
            continue
    if "KERNELWRIGHT_TEST_SECRET" in os.environ:
        found.append("the environment")
    for family, address in ((socket.AF_INET, ("127.0.0.1", 9)), (socket.AF_INET6, ("::1", 9))):
        try:
            with socket.socket(family, socket.SOCK_STREAM) as sock:
                sock.settimeout(1)
                sock.connect(address)
            found.append("the network")
        except ConnectionRefusedError:
            found.append("the network")
        except OSError:
            continue
    others = [p.name for p in Path("/proc").iterdir() if p.name.isdigit() and int(p.name) not in (1, os.getpid())]
    return found + ([f"processes {others}"] if others else [])


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        if found := reached():
            raise RuntimeError(f"reached {found}")

    def forward(self, x):
        return torch.relu(x) * 2.0
