"""By which request something is asked for, so that the same one, sent again, is told from another with its key."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

from weft.core.server_errors import KeyReused

_asking: ContextVar[Asking | None] = ContextVar("asking", default=None)


@dataclass(slots=True)
class Asking:
    """A request that makes something by a key: the digest that is kept with the key, and what became of it.

    With ``is_strict`` the key is that of the request alone, and good for no other one.
    """

    digest: bytes
    is_strict: bool
    is_repeated: bool = False

    def made(self, key: str, known: bytes | None) -> bool:
        """Say whether what there is of a key was made by this request, which is then sent again.

        ``known`` is what was kept with the key: None when it was no request that made it. Raises `KeyReused` when it
        was another request, and the key is for one only.
        """
        self.is_repeated = known == self.digest
        if self.is_strict and known is not None and not self.is_repeated:
            raise KeyReused(key)
        return self.is_repeated


def asked_by() -> Asking | None:
    """Return the request in hand, if what it makes is to be known by it."""
    return _asking.get()


@contextmanager
def asking(request: Asking | None) -> Iterator[None]:
    """Let what is made inside by a key be kept with the request that asks for it."""
    before = _asking.set(request)
    try:
        yield
    finally:
        _asking.reset(before)
