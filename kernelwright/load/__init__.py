"""Stage 1: a model file comes in; a `Problem`, and from it models and inputs to run, go out."""

from kernelwright.load.effects import effects
from kernelwright.load.elsewhere import Elsewhere
from kernelwright.load.from_object import candidate_module, problem_of
from kernelwright.load.instantiate import Instance, at_home, instantiate
from kernelwright.load.problem import Problem, load

__all__ = [
    "Elsewhere",
    "Instance",
    "Problem",
    "at_home",
    "candidate_module",
    "effects",
    "instantiate",
    "load",
    "problem_of",
]
