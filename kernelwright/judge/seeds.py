"""One secret number comes in; a reproducible row of seeds goes out."""

import secrets
from hashlib import blake2b

__all__ = ["Seeds"]


class Seeds:
    """Seeds that nobody can guess before the judgement and anybody can repeat after it."""

    def __init__(self, root: int) -> None:
        self.root = root
        self._count = 0

    @classmethod
    def from_entropy(cls) -> "Seeds":
        return cls(secrets.randbits(64))

    def draw(self) -> int:
        self._count += 1
        digest = blake2b(f"{self.root}/{self._count}".encode(), digest_size=8).digest()
        return int.from_bytes(digest, "little") >> 2  # torch takes seeds below 2^63

    def branch(self, name: str) -> "Seeds":
        """An own row for one purpose: how many seeds one phase takes does not move another's."""
        digest = blake2b(f"{self.root}/{name}".encode(), digest_size=8).digest()
        return Seeds(int.from_bytes(digest, "little"))
