"""Statements in Spark's SQL that DuckDB would answer otherwise, though it takes them."""

from __future__ import annotations

from typing import Final

from sqlglot import exp
from sqlglot.errors import UnsupportedError

#: Spark cuts fractions off and makes seconds of times, DuckDB rounds and refuses.
_WHOLE: Final = {
    exp.DataType.Type.TINYINT, exp.DataType.Type.SMALLINT, exp.DataType.Type.INT, exp.DataType.Type.BIGINT
}  # fmt: skip
#: The days of a week have other numbers.
_DAYS: Final = {"weekday", "dayofweek", "dow", "dow_iso", "dayofweek_iso"}


def as_spark_would(parsed: exp.Expr) -> exp.Expr:
    """Rewrites in a statement what DuckDB answers otherwise than Spark; what was parsed is used up.

    Raises:
        UnsupportedError: something can't be rewritten so that the answer is Spark's.
    """
    for node in list(parsed.walk()):
        if isinstance(node, exp.Cast) and node.to.this in _WHOLE and not node.this.is_int:
            raise UnsupportedError(node.sql(dialect="spark"))
        if _is_day(node):
            raise UnsupportedError(node.sql(dialect="spark"))
        if isinstance(node, exp.ApproxQuantile):
            # One of the values. It is a kind of the other one in sqlglot.
            node.replace(_call("quantile_disc", node))
        elif isinstance(node, exp.Quantile):
            # Between two values.
            node.replace(_call("quantile_cont", node))
        elif isinstance(node, exp.Like | exp.ILike) and not isinstance(node.parent, exp.Escape):
            node.replace(exp.Escape(this=node.copy(), expression=exp.Literal.string("\\")))
    return parsed


def _call(name: str, node: exp.Expr) -> exp.Expr:
    return exp.Anonymous(this=name, expressions=[node.this, node.args["quantile"]])


def _is_day(node: exp.Expr) -> bool:
    if isinstance(node, exp.Extract):
        return node.name.lower() in _DAYS
    named = node.name.lower() if isinstance(node, exp.Anonymous) else ""
    return isinstance(node, exp.DayOfWeek) or named in _DAYS
