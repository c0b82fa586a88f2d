"""A source that no compiler takes."""

import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = 'extern "C" void broken() { int x = undeclared_name; }'
LIBRARY = load_inline("broken", cpp_sources=SOURCE, is_python_module=False, no_implicit_headers=True)


class ModelNew(nn.Module):
    def forward(self, x):
        return x
