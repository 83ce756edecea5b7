"""The scenarios of KIP-848's client-side mode, wherever they stand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from tests.groups import (
    test_client_assignment,
    test_client_assignment_installed,
    test_client_assignors_of_groups,
)

_FILES: Final = (test_client_assignors_of_groups, test_client_assignment, test_client_assignment_installed)

#: The tests by their names without ``test_``.
SCENARIOS: Final[dict[str, Callable[..., Any]]] = {
    name.removeprefix("test_"): test for file in _FILES for name, test in vars(file).items() if name.startswith("test_")
}
