"""What the catalog knows of people: orgs, users, roles and tokens, as they are told to callers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any


class Role(StrEnum):
    """What a user may do in an org; each includes those before it."""

    READER = "reader"
    WRITER = "writer"
    ADMIN = "admin"

    def includes(self, other: Role) -> bool:
        """Whether whoever has this role may do what the other may."""
        order = list(Role)
        return order.index(self) >= order.index(other)


class TokenRole(StrEnum):
    """What a token is good for: what a user of that role may do, or the worker protocol and nothing else."""

    READER = "reader"
    WRITER = "writer"
    ADMIN = "admin"
    WORKER = "worker"


@dataclass(frozen=True, slots=True)
class Org:
    """A tenant: nothing of one is ever seen by another."""

    id: int
    slug: str
    name: str
    settings: Mapping[str, Any]
    created_at: datetime


@dataclass(frozen=True, slots=True)
class User:
    """A person of an org; ``external_id`` is what the identity provider calls him, ``roles`` are those of the org."""

    id: int
    external_id: str
    email: str | None
    role: Role
    roles: tuple[str, ...]
    deactivated_at: datetime | None
    created_at: datetime


@dataclass(frozen=True, slots=True)
class OrgRole:
    """A role that an org has defined, by which it is told who may see what; ``users`` are how many have it."""

    id: int
    slug: str
    name: str
    users: int
    created_at: datetime


@dataclass(frozen=True, slots=True)
class Token:
    """A credential, without what would let anybody use it. One with ``queues`` is for workers of these alone."""

    id: int
    name: str
    role: TokenRole
    user: str | None
    queues: tuple[str, ...] | None
    hint: str
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None
    last_used_at: datetime | None


@dataclass(frozen=True, slots=True)
class NewToken:
    """A token that was just made: ``secret`` is shown this once and kept nowhere."""

    token: Token
    secret: str


@dataclass(frozen=True, slots=True)
class SignIn:
    """A code that was just made: it lets somebody in once, at ``/sign-in?code=…`` of a server."""

    code: str
    expires_at: datetime


@dataclass(frozen=True, slots=True)
class Principal:
    """Who a credential stands for: the org it acts in, the name under which acts are kept, and what it may do."""

    org_id: int
    org: str
    actor: str
    role: TokenRole
    queues: tuple[str, ...] | None = None
    user_id: int | None = None
    token_id: int | None = None
    roles: frozenset[str] = frozenset()

    @property
    def sees(self) -> frozenset[str] | None:
        """The roles by which datasets are seen; None for an admin, who sees all."""
        return None if self.role is TokenRole.ADMIN else self.roles
