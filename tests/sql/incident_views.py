"""The views that tests of incidents make."""

from __future__ import annotations

from typing import Final

from coordinator_udf.sql.shapes import views_named
from schemas.views import INCIDENT_VIEWS

#: Those that explain an incident, and those that they stand on.
VIEWS_IN_PROCESS: Final = tuple(views_named(" ".join(INCIDENT_VIEWS)))
