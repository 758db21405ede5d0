"""Greets: a task, and a workflow of it."""

import weft


@weft.task(name="shop:greet")
def greet(name: str) -> str:
    return f"Hello, {name}!"


@weft.workflow
def welcome(name: str) -> str:
    return greet(name)
