"""What is kept of the user's file, and what is known of its forward()."""

from __future__ import annotations

from textwrap import dedent

import pytest

from kernelwright.emit.original import original_of


def source(takes: str = "self, x", above: str = "", inside: str = "") -> str:
    return f"{above}\nclass Model(nn.Module):\n{inside}    def forward({takes}):\n        return x\n"


def test_the_docstring_the_future_and_the_main_block_go_and_all_else_stays() -> None:
    text = dedent(
        '''\
        """What it is."""
        from __future__ import annotations

        import torch  # why


        class Model(torch.nn.Module):
            """Kept."""

            def forward(self, x):
                return x


        if __name__ == "__main__":
            print(Model()(1))
        '''
    )
    kept = original_of(text)
    assert kept.needs_future
    assert kept.text == text.split("\n\n", 1)[1].split("\n\n\nif")[0]


@pytest.mark.parametrize(
    ("takes", "signature", "parameters"),
    [
        ("self, x", "x", ("x",)),
        ("self", "", ()),
        ("self, x: Tensor, y: int = 3", "x, y=3", ("x", "y")),
        ("self, x, scale=2.0, /", "x, scale=2.0, /", ("x", "scale")),
        ("self, *xs", "*arguments", ()),
        ("self, x, **rest", "*arguments", ()),
        ("self, x, *, flag=True", "*arguments", ()),
        ("self, x, y=HERE", "*arguments", ()),
    ],
)
def test_a_signature_is_written_again_where_it_can_be(takes: str, signature: str, parameters: tuple[str, ...]) -> None:
    kept = original_of(source(takes))
    assert kept.signature.replace(" = ", "=") == signature
    assert kept.parameters == parameters


def test_a_default_may_name_what_the_file_defines() -> None:
    assert original_of(source("self, x, y=HERE", above="HERE = 2\n")).signature == "x, y=HERE"


def test_an_inherited_forward_is_found() -> None:
    text = source("self, x, y").replace("Model(nn.Module)", "Base(nn.Module)") + "\n\nclass Model(Base):\n    pass\n"
    assert original_of(text).parameters == ("x", "y")


@pytest.mark.parametrize(
    ("above", "own"),
    [
        ("import torch.nn.functional as F\n", False),
        ("from torch.nn import functional as F\n", False),
        ("import torch\n", False),
        ("F = 64\n", True),
        ("import torchvision.transforms.functional as F\n", True),
        ("def f(F):\n    return F\n", True),
    ],
)
def test_another_meaning_of_f_is_noticed(above: str, own: bool) -> None:
    assert original_of(source(above=above)).has_own_f == own
