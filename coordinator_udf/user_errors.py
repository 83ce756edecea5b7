"""Errors that a person can do something about."""

from __future__ import annotations


class UserError(Exception):
    """An error whose message says what is wrong and what to do. A command prints it in one line and ends with 1."""


class InputError(UserError):
    """An input that can't be read at all, or a place for output that can't be used; the message names it."""
