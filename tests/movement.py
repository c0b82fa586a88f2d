"""Models that move data: by name an expression of forward(), each in every form that capture, planner and kernels know.

One model returns them all, so that each test captures and compiles once.
"""

from __future__ import annotations

from collections.abc import Mapping

# Only moved, or moved and then computed with by functions that are correctly rounded: the bits are PyTorch's.
EXACT: Mapping[str, str] = {
    "flip": "torch.flip(x, (0, 1)) + 1",
    "flip_of_a_map": "torch.flip(x.relu(), (1,))",
    "roll": "torch.roll(x, (2, -5), (0, 1)) * 2",
    "roll_of_rows": "torch.roll(x, 2, 0)",
    "roll_flat": "torch.roll(x, 7) * 2",
    "rot90": "torch.rot90(x)",
    "index_select": "x.index_select(1, i) + 1",
    "embedding": "F.embedding(k, x, padding_idx=1) + y[0]",
    "embedding_of_places": "F.embedding(torch.arange(4), x) * 2",
    "gather": "x.gather(1, j) + 1",
    "gather_of_a_map": "(x * 2).gather(1, j)",
    "take_along_dim": "torch.take_along_dim(x, j[:1], 1)",
    "take": "x.take(i - 4)",
    "rows": "x[i]",
    "columns": "x[:, i] * y[:, :3]",
    "pairs": "image[:, i % 4, :, i]",
    "a_grid": "x[i[:, None], i - 4]",
    "a_list": "x[:, [5, 0, 7]]",
    "every_other": "x[torch.arange(3) * 2 + 1]",
    "int32": "x[i.int()] + 1",
    "integers": "j[i]",
    "booleans": "(x > 0)[:, i]",
    "half": "x.half()[i] * 2",
    "an_index_of_an_index": "x[j[i, 0] % 6]",
    "an_index_that_is_found": "x.gather(1, x.argmax(1, keepdim=True))",
    "scan_of_picked": "j[i].cumsum(0)",
    "largest_of_picked": "x[:, i].amax(1)",
    "repeat": "x.repeat(2, 3) + 1",
    "tile": "x.tile(2, 1)",
    "interleaved": "x.repeat_interleave(3, 1) + 1",
    "pixel_shuffle": "F.pixel_shuffle(image, 2).relu()",
    "pixel_unshuffle": "F.pixel_unshuffle(image, 2)",
    "channel_shuffle": "F.channel_shuffle(image, 2) + 1",
    "shuffled_largest": "F.pixel_shuffle(image, 2).amax((2, 3))",
    "windows_of_a_picture": "image.view(2, 4, 2, 4, 2, 4).permute(0, 2, 4, 1, 3, 5).reshape(-1, 4, 16) * 2",
    "shifted_windows": "torch.roll(F.pad(image, (0, 1, 0, 1)), (-2, 1), (2, 3)) * 2",
    "nearest": "F.interpolate(image, scale_factor=2) + 1",
    "nearest_by_three": "F.interpolate(image, scale_factor=(3.0, 1.5))",
    "nearest_to_a_size": "F.interpolate(image, size=(13, 5))",
    "nearest_exact": "F.interpolate(image, scale_factor=1.7, mode='nearest-exact')",
    "nearest_in_a_border": "F.interpolate(F.pad(image, (1, 1, 1, 1), value=2.0), scale_factor=2)",
    "one_hot": "F.one_hot(i, 9)",
    "meshgrid": "torch.meshgrid(x[0], y[:, 0], indexing='xy')[0] + 1",
    "unfold": "x.unfold(1, 4, 3) * 2",
    "patches": "F.unfold(image, 3, padding=1, stride=2)",
    "overwritten": "x.slice_scatter(y[:, 2:5] * 2, 1, 2, 5)",
    "overwritten_row": "x.select_scatter(y[0], 0, 2) + 1",
    "unit_matrix": "torch.eye(6, 48) + x",
    "cat_then_relu": "torch.relu(torch.cat([x, y], 1))",
    "cat_of_a_map_and_an_input": "torch.cat([x * 2, y], 1)",
    "cat_cut": "torch.cat([x, y], 1)[:, 50:60] + 1",
    "rotated_half": "torch.cat([-x[..., 24:], x[..., :24]], -1) * y",
    "stack": "torch.stack([x * 2, y.relu(), x + y], 1)",
    "stack_last": "torch.stack([x * 2, y], -1)",
    "cat_of_picked": "torch.cat([x[i] * 2, y], 0)",
}

# With sums of floats, or weights: PyTorch rounds otherwise on each device.
CLOSE: Mapping[str, str] = {
    "bilinear": "F.interpolate(image, scale_factor=2, mode='bilinear') * 2",
    "bilinear_on_corners": "F.interpolate(image, size=(5, 11), mode='bilinear', align_corners=True)",
    "bilinear_by_factors": "F.interpolate(image, scale_factor=(1.7, 2.3), mode='bilinear')",
    "bilinear_to_one": "F.interpolate(image, size=(1, 1), mode='bilinear', align_corners=True)",
    "bilinear_in_double": "F.interpolate(image.double(), size=(3, 9), mode='bilinear')",
    "linear": "F.interpolate(x[None], scale_factor=2, mode='linear')",
    "trilinear": "F.interpolate(image[:, None], scale_factor=(2, 1.5, 0.7), mode='trilinear')",
    "embedding_normalised": "F.layer_norm(F.embedding(k, x) + y[0], (48,))",
    "embedding_summed": "F.embedding(k, x).sum(1)",
    "softmax_of_picked": "torch.softmax(x[:, i], 1)",
    "shuffled_sum": "F.pixel_shuffle(image, 2).sum((2, 3))",
    "windows_summed": "F.unfold(image, 3, padding=1).sum(1)",
    "product_and_embedding": "F.linear(x, y) + F.embedding(j[:, 0] % 6, y)[:, :6]",
}

CASES: Mapping[str, str] = {**EXACT, **CLOSE}

HEAD = """import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def forward(self, x, y, image, i, j, k):
        return (
"""

TAIL = """        )


PLACES = [3, 0, 5]


def get_inputs():
    i, j, k = torch.tensor(PLACES), torch.randint(48, (6, 3)), torch.randint(6, (2, 3))
    return [torch.randn(6, 48), torch.randn(6, 48), torch.randn(2, 4, 8, 8), i, j, k]


def get_init_inputs():
    return []
"""

# The text of a file with a Model that returns all of them.
SOURCE = HEAD + "".join(f"            {case},\n" for case in CASES.values()) + TAIL

# What is read past the end of x: the model has no answer, a kernel has.
OUTSIDE = HEAD + "            x[i] + 1, F.embedding(i, x), j[i], (x > 0)[i], x.half()[:, i],\n" + TAIL
