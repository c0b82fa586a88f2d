"""Convolutions that reduce their own result, run on the host: one kernel gives what PyTorch computes in several."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pytest

from kernelwright.kernels import conv_mma, conv_sm90
from tests.emulator.build import g_plus_plus
from tests.emulator.run import agrees
from tests.emulator.test_convolutions import any_of, best_of, model

pytestmark = pytest.mark.skipif(g_plus_plus() is None, reason="no g++ here")

BOTH = pytest.mark.parametrize("template", [conv_mma, conv_sm90], ids=["mma", "wgmma"])

# What follows the convolution, on x of [2, 8, 6, 9], with 20 channels.
BODIES = {
    "least": "return torch.tanh(torch.min(self.conv(x), dim=1, keepdim=True)[0])",
    "softmax": "return torch.sigmoid(torch.softmax(self.conv(x), 1) * 3)",
    "logsumexp": "return torch.relu(torch.logsumexp(self.conv(x) * 2, 1))",
    "norm": "y = self.conv(x); m = y.mean(1, keepdim=True); return (y - m) * torch.rsqrt(y.var(1, keepdim=True) + 0.1)",
    "place": "return torch.argmax(self.conv(x), 1), torch.relu(self.conv(x))",
    "with another operand": "y = F.gelu(self.conv(x)) + x[:, :1]; return (y * self.scale).sum(1), y",
    "in three phases": "y = torch.softmax(self.conv(x), 1); z = y * y.amax(1, keepdim=True); return z - z.sum(1, True)",
}


@BOTH
@pytest.mark.parametrize("name", BODIES)
def test_channels_are_reduced_in_the_kernel(name: str, template: ModuleType, tmp_path: Path) -> None:
    path = model(tmp_path, "Conv2d(8, 20, 3, padding=1)", (2, 8, 6, 9), BODIES[name])
    program = agrees(path, pick=best_of(template), reducing=True)
    assert [source.template for source in program.sources] == [template.HEADERS[-1]]
